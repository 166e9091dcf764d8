"""Commands about credentials that need no running proxy: what they give programs, what they check, what they refuse."""

import re
import subprocess
from pathlib import Path

from tests.support.proxy import COMMAND, policy_text, rest

SECRET = "{command: [printf, '%s', very-secret-value]}"

RUN = """\
version: 1
providers:
  - name: own
    profile:
      credentials: [{name: k, env_vars: [OWN_KEY], auth_style: bearer, header_name: X-Key, placeholder_prefix: sk-}]
    values: {OWN_KEY: SOURCE}
    endpoints: [{host: origin.test, port: 443, protocol: rest, access: full}]
"""


def offline(tmp_path: Path, source: str, *words: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "policy.yaml").write_text(policy_text(rest("origin.test", 443)))
    (tmp_path / "providers.yaml").write_text(RUN.replace("SOURCE", source))
    (tmp_path / "egress.yaml").write_text(
        "version: 1\npolicy: {file: policy.yaml}\nproviders: {file: providers.yaml}\nstate_dir: state\n"
        "tls: {ephemeral: true}\nevents: {dir: log}\nidentity: {mode: off}\nreload: {check_origin: off}\n"
    )
    (tmp_path / "log").mkdir(exist_ok=True)
    command = [COMMAND, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)


def test_run_gives_its_child_placeholders(tmp_path: Path) -> None:
    done = offline(tmp_path, SECRET, "run", "--config", "egress.yaml", "--", "printenv", "OWN_KEY")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"sk-OPENSHELL-RESOLVE-ENV-s[0-9a-f]{64}_OWN_KEY\n", done.stdout)


def test_check_fetches_and_tells(tmp_path: Path) -> None:
    done = offline(
        tmp_path, "{command: [printf, '%s', very-secret-value]}", "credentials", "check", "--config", "egress.yaml"
    )
    assert done.returncode == 0, done.stderr
    assert "own:OWN_KEY" in done.stdout
    assert "very-secret" not in done.stdout + done.stderr
    failing = offline(tmp_path, "{command: ['false']}", "credentials", "check", "--config", "egress.yaml")
    assert failing.returncode == 1, failing.stdout
    broken = offline(tmp_path, "{command: {argv: [x], colour: red}}", "credentials", "check", "--config", "egress.yaml")
    assert broken.returncode == 2
    assert "providers.yaml:6:" in broken.stderr


def test_values_stand_in_no_file_unless_asked_for(tmp_path: Path) -> None:
    refused = offline(tmp_path, "{literal: written-here}", "run", "--config", "egress.yaml", "--", "true")
    assert refused.returncode == 2
    assert "written-here" not in refused.stderr
    allowed = offline(
        tmp_path, "{literal: written-here}", "run", "--config", "egress.yaml", "--allow-literal-secrets", "--", "true"
    )
    assert allowed.returncode == 0, allowed.stderr
