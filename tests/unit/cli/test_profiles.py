"""`egress profiles`: what there is, one in full, and everything that is wrong with own ones."""

import json
from pathlib import Path

import pytest
import typer

from egress.cli.profiles import directories_of, lint_profiles, list_profiles, show_profile
from egress.cli.terminal import ExitCode

OWN = """\
id: desk
display_name: Desk
description: Tickets.
vendor: x
credentials:
  - {name: token, env_vars: [DESK_TOKEN], required: true, auth_style: header, header_name: X-Desk}
endpoints:
  - {host: desk.example, ports: [443, 8443], path: /v1/**, protocol: rest, access: full}
binaries: [/usr/bin/curl]
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "desk.yaml").write_text(OWN)
    return tmp_path


def test_the_list_holds_the_catalogue_and_own_profiles(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    list_profiles([own], as_json=False)
    shown = capsys.readouterr()
    lines = dict(line.split(maxsplit=1) for line in shown.out.splitlines())
    assert lines["desk"] == "Desk: DESK_TOKEN"
    assert lines["github"] == "GitHub: GITHUB_TOKEN, GH_TOKEN"
    assert "unknown key `vendor`" in shown.err


def test_one_profile_in_full(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_profile("desk", [own], as_json=False)
    assert capsys.readouterr().out == (
        "desk: Desk\n"
        "  Tickets.\n"
        "  token: DESK_TOKEN (required), header in X-Desk\n"
        "  desk.example:443,8443/v1/** rest full\n"
    )


def test_one_profile_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_profile("gh", [], as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown["id"] == "github"
    assert shown["credentials"] == [
        {"name": "token", "keys": ["GITHUB_TOKEN", "GH_TOKEN"], "required": False, "auth_style": "bearer"}
    ]
    assert {"host": "api.github.com", "ports": [443], "path": "/**", "protocol": "rest"} in shown["endpoints"]


def test_a_profile_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        show_profile("nothing", [], as_json=False)
    assert ended.value.exit_code == ExitCode.INVALID
    assert "no profile `nothing`" in capsys.readouterr().err


def test_a_sound_profile(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint_profiles([own], as_json=False) is ExitCode.FINE
    assert capsys.readouterr().err == (f"{own}/desk.yaml:4:1: warning: unknown key `vendor`\n0 errors, 1 warning\n")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "header_name: X-Desk",
            "query_param: q",
            ":6:5: error: credentials[0]: `auth_style: header` needs `header_name`",
        ),
        ("access: full", "access: all", ":8:84: error: endpoints[0].access: must be one of"),
        # Only the policy knows this.
        ("host: desk.example", "host: '*.example'", ":8:12: error: network_policies.profile.endpoints[0].host"),
        ("vendor: x", "strict: true\nvendor: x", ":5:1: error: unknown key `vendor`"),
    ],
)
def test_everything_that_is_wrong(own: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, says: str) -> None:
    assert old in OWN
    file = own / "desk.yaml"
    file.write_text(OWN.replace(old, new))
    for path in (file, own):
        assert lint_profiles([path], as_json=False) is ExitCode.INVALID
        assert f"{file}{says}" in capsys.readouterr().err
    assert lint_profiles([file], as_json=True) is ExitCode.INVALID
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert any(one["severity"] == "error" and f":{one['line']}:" in says for one in told["diagnostics"])


def test_a_file_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint_profiles([tmp_path / "none.yaml"], as_json=False) is ExitCode.INVALID
    assert "none.yaml: error: cannot be read: No such file or directory" in capsys.readouterr().err


def test_own_directories_are_those_of_the_providers_file(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("version: 1\n")
    (tmp_path / "providers.yaml").write_text("version: 1\nprofile_dirs: [own, other]\n")
    config = tmp_path / "egress.yaml"
    config.write_text("version: 1\npolicy: {file: policy.yaml}\nproviders: {file: providers.yaml}\n")
    assert directories_of(config, []) == [tmp_path / "own", tmp_path / "other"]
    assert directories_of(config, [tmp_path]) == [tmp_path]
