"""Every half-set section stops the start, with all that is wrong with it."""

from pathlib import Path
from typing import Any

import pytest

from egress.upstream.plan import NO_ROUTES, HopKind
from tests.unit.upstream.routes import codes, read, routes

URL = {"url": "http://corp.test:3128"}
CORP = {"proxies": {"corp": URL}}


def proxy(**more: Any) -> dict[str, Any]:
    return {"proxies": {"corp": {**URL, **more}}}


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "credential"
    path.touch(mode=0o600)
    path.write_text("user:s3cret")
    return str(path)


def test_nothing_set_is_no_proxy() -> None:
    assert read({}) == (NO_ROUTES, [])


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"no_proxy": "a.test"}, ["no_proxy orphan_setting"]),
        ({"rules": [{"match": ["*"], "via": "direct"}]}, ["rules orphan_setting"]),
        ({"chains": {"default": ["corp"]}}, ["chains orphan_setting"]),
        ({"target": "hostname", "plain_http": "connect"}, ["target orphan_setting", "plain_http orphan_setting"]),
        ({**CORP, "no_proxy": " "}, ["no_proxy empty_value"]),
        ({**CORP, "no_proxy": "a.test, *:443 ,b.test:99999"}, ["no_proxy dead_item"] * 2),
        ({"proxies": {"corp": {"url": "http://a:b@c:1"}}}, ["proxies.corp.url url_credentials"]),
        ({"proxies": {"direct": URL}}, ["proxies.direct name_taken"]),
        (proxy(ca_file="/x", server_name="y"),
         ["proxies.corp.ca_file orphan_setting", "proxies.corp.server_name orphan_setting"]),
        (proxy(auth={"allow_insecure": True}), ["proxies.corp.auth.allow_insecure ack_without_file"]),
        (proxy(auth={"basic_file": "/nonexistent/x"}),
         ["proxies.corp.auth.basic_file file_without_ack", "proxies.corp.auth.basic_file file_open"]),
        ({**CORP, "chains": {"corp": ["corp"]}, "rules": [{"match": ["*"], "via": "corp"}]},
         ["chains.corp name_taken"]),
        ({"proxies": {"corp": URL, "lab": {"url": "socks5h://lab.test:1"}},
          "chains": {"default": {"any_of": [["corp"], ["lab"]]}}}, ["target mixed_targets"]),
        ({**CORP, "chains": {"default": ["corp", "x"]}}, ["chains.default unknown_proxy"]),
        ({**CORP, "chains": {"default": ["corp", "corp"]}}, ["chains.default bad_chain"]),
        ({**CORP, "rules": [{"match": ["*"], "via": "lab"}]}, ["rules[0].via unknown_chain"]),
        ({**CORP, "rules": [{"match": ["*"], "via": "corp"}, {"match": ["a.test"], "via": "direct"}]},
         ["rules[1] dead_rule"]),
        ({**CORP, "rules": [{"match": ["a.*.b"], "via": "corp"}]}, ["rules[0].match[0] dead_item"]),
        ({**CORP, "rules": [{"match": ["*"], "via": "direct", "target": "ip"}]}, ["rules[0].target orphan_setting"]),
        ({"proxies": {"one": URL, "two": URL}}, ["rules no_default"]),
        ({"proxies": {"one": URL, "two": URL}, "rules": [{"match": ["a.test"], "via": "one"}]}, ["rules no_default"]),
        ({"proxies": {"corp": {"url": "http://127.0.0.1:3128"}}}, ["proxies.corp.url url_own_listener"]),
        ({"proxies": {"corp": {"url": "http://localhost:3128"}}}, ["proxies.corp.url url_own_listener"]),
    ],
)  # fmt: skip
def test_fatal(section: dict[str, Any], expected: list[str]) -> None:
    assert codes(section) == expected


def test_credentials(secret: str, tmp_path: Path) -> None:
    key = "proxies.corp.auth"
    assert codes(proxy(auth={"basic_file": secret})) == [f"{key}.basic_file file_without_ack"]
    assert codes(proxy(auth={"basic_file": secret, "allow_insecure": True})) == []
    assert codes(proxy(auth={"digest_file": secret})) == []
    assert codes(proxy(url="https://corp.test:1", auth={"basic_file": secret})) == []
    both = {"basic_file": secret, "digest_file": secret, "allow_insecure": True}
    assert codes(proxy(auth=both)) == [f"{key} several_credentials"]
    assert codes(proxy(url="socks5://corp.test:1", auth={"digest_file": secret})) == [f"{key} cred_not_for_socks"]
    long = tmp_path / "long"
    long.touch(mode=0o600)
    long.write_text("u:" + "x" * 256)
    socks = proxy(url="socks5://corp.test:1", auth={"basic_file": str(long), "allow_insecure": True})
    assert codes(socks) == [f"{key}.basic_file cred_too_long"]
    digest = {**proxy(auth={"digest_file": secret}), "plain_http": "absolute-form"}
    assert codes(digest) == ["plain_http digest_absolute_form"]


def test_everything_is_told_at_once_and_nothing_secret() -> None:
    section = {
        "proxies": {"a": {"url": "http://u:s3cret@x:1"}, "b": {"url": "nope"}, "c": {"url": "https://c.test"}},
        "no_proxy": "*:1",
        "rules": [{"match": ["*"], "via": "nowhere"}],
    }
    assert codes(section) == [
        "proxies.a.url url_credentials", "proxies.b.url url_no_scheme", "proxies.c.url url_no_port",
        "rules[0].via unknown_chain", "no_proxy dead_item",
    ]  # fmt: skip
    _, found = read(section)
    assert "s3cret" not in "".join(map(str, found))


def test_chains_of_more_than_three_hops_are_refused() -> None:
    proxies = {name: {"url": f"http://{name}.test:1"} for name in "abcd"}
    assert codes({"proxies": proxies, "chains": {"default": list("abc")}}) == []
    assert codes({"proxies": proxies, "chains": {"default": list("abcd")}}) == ["chains.default bad_chain"]


def test_a_tls_hop() -> None:
    made = routes(proxy(url="https://corp.test:8443", server_name="proxy.test"))
    (found,) = made.hops
    assert (found.kind, found.server_name, found.context is not None) == (HopKind.HTTPS, "proxy.test", True)
    assert made == routes(proxy(url="https://corp.test:8443", server_name="proxy.test"))
    assert made != routes(proxy(url="https://corp.test:8443", server_name="proxy.test", ca_file="/other"))


def test_health_and_the_proxies_that_we_reach_ourselves() -> None:
    section = {
        "proxies": {name: {"url": f"http://{name}.test:1"} for name in "abc"},
        "chains": {"default": {"any_of": [["a", "b"], ["c"]]}},
        "health": {"mode": "connect:probe.test:443", "interval": "1s"},
    }
    made = routes(section)
    assert [hop.name for hop in made.first_hops()] == ["a", "c"]
    assert (str(made.health.probe), made.health.interval, made.health.enabled) == ("probe.test:443", 1.0, True)
