"""OpenShell's flags for a corporate proxy: what they stand for, and every way to half-set them."""

from pathlib import Path
from typing import Any

import pytest

from egress.config.load import Loaded, load
from egress.config.overrides import Flags
from egress.config.proxy_flags import ProxyFlags
from egress.documents.diagnostic import Diagnostic
from egress.generation.routes import routes_of
from egress.upstream.plan import Routes, Target

URL = "http://corp.test:3128"


def read(tmp_path: Path, text: str = "", environment: dict[str, str] | None = None, **flags: Any) -> list[str] | Routes:
    """The routes, or `flag code` of everything that is wrong."""
    tmp_path.chmod(0o755)
    file = tmp_path / "egress.yaml"
    file.write_text(f"version: 1\npolicy: {{file: p.yaml}}\n{text}")
    file.chmod(0o644)
    loaded = load(Flags(config=file, proxy=ProxyFlags(**flags)), environment or {})
    if not isinstance(loaded, Loaded):
        return [f"{item.location} {_code(item)}" for item in loaded]
    found: list[Diagnostic] = []
    routes = routes_of(loaded.settings, loaded.locate, found)
    return [f"{item.location} {_code(item)}" for item in found] or routes


def _code(item: Diagnostic) -> str:
    return item.message.rpartition("(")[2].rstrip(")")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"url": ""}, ["--upstream-proxy empty_value"]),
        ({"url": " "}, ["--upstream-proxy empty_value"]),
        ({"url": URL, "no_proxy": ""}, ["--upstream-no-proxy empty_value"]),
        ({"url": URL, "auth_file": " "}, ["--upstream-proxy-auth-file empty_value"]),
        ({"no_proxy": "a.test"}, ["--upstream-no-proxy orphan_setting"]),
        ({"auth_file": "/x"}, ["--upstream-proxy-auth-file orphan_setting"]),
        ({"allow_insecure": True}, ["--upstream-proxy-auth-allow-insecure orphan_setting"]),
        ({"by_hostname": True}, ["--upstream-proxy-connect-by-hostname orphan_setting"]),
        ({"url": "https://corp.test:1"}, ["--upstream-proxy url_bad_scheme"]),
        ({"url": "socks5://corp.test:1"}, ["--upstream-proxy url_bad_scheme"]),
        ({"url": "corp.test:1"}, ["--upstream-proxy url_no_scheme"]),
        ({"url": "http://corp.test"}, ["--upstream-proxy url_no_port"]),
        ({"url": "http://u:p@corp.test:1"}, ["--upstream-proxy url_credentials"]),
        ({"url": URL, "allow_insecure": True}, ["--upstream-proxy-auth-allow-insecure ack_without_file"]),
        ({"url": URL, "auth_file": "/nonexistent/x", "allow_insecure": True}, ["--upstream-proxy-auth-file file_open"]),
        ({"url": URL, "no_proxy": "a.test,*:443"}, ["--upstream-no-proxy dead_item"]),
    ],
)
def test_fatal(tmp_path: Path, flags: dict[str, Any], expected: list[str]) -> None:
    assert read(tmp_path, **flags) == expected


def test_the_acknowledgement_is_missing(tmp_path: Path) -> None:
    secret = tmp_path / "credential"
    secret.touch(mode=0o600)
    secret.write_text("user:pass")
    assert read(tmp_path, url=URL, auth_file=str(secret)) == ["--upstream-proxy-auth-file file_without_ack"]


def test_together_they_are_one_chain(tmp_path: Path) -> None:
    routes = read(tmp_path, url=URL, no_proxy="a.test", by_hostname=True)
    assert isinstance(routes, Routes)
    assert [str(hop) for hop in routes.hops] == ["upstream (http corp.test:3128)"]
    assert (len(routes.no_proxy), [rule.target for rule in routes.rules]) == (1, [Target.HOSTNAME])


def test_they_stand_for_the_whole_section_of_the_file(tmp_path: Path) -> None:
    text = "upstream_proxy: {proxies: {other: {url: 'http://other.test:1'}}, no_proxy: b.test}\n"
    routes = read(tmp_path, text, url=URL)
    assert isinstance(routes, Routes)
    assert ([hop.name for hop in routes.hops], routes.no_proxy) == (["upstream"], ())


def test_no_variable_steers_the_way_out(tmp_path: Path) -> None:
    names = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy")
    steering = dict.fromkeys(names, "http://attacker.test:1") | {"NO_PROXY": "*", "OPENSHELL_UPSTREAM_PROXY": URL}
    assert read(tmp_path, environment=steering) == Routes()
    assert read(tmp_path, environment=steering, url=URL) == read(tmp_path, url=URL)
