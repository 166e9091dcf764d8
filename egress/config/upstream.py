"""The settings of corporate proxies, as written. What they mean together is read in `egress/upstream/settings.py`."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator

from egress.config.sections import Section, live, required
from egress.config.types import Count, DnsName, Duration, FilePath, Many, Some, Wait, Word, Wording
from egress.model.address import InvalidAddress, parse_authority

PROBE_PREFIX = "connect:"
ANY_OF = "any_of"

type ChainNames = tuple[tuple[str, ...], ...]
"""Alternatives, each the names of its hops from us outward."""


def read_chain(value: object) -> ChainNames:
    """`[corp]`, `[corp, bastion]`, or `{any_of: [[corp], [other]]}`."""
    if isinstance(value, dict) and set(value) == {ANY_OF}:
        alternatives = value[ANY_OF]
        if isinstance(alternatives, list) and alternatives:
            return tuple(_hop_names(item) for item in alternatives)
    return (_hop_names(value),)


def _hop_names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError("must be a list of proxy names\nwrite `[corp]`, or `{any_of: [[corp], [other]]}`")
    return tuple(value)


def read_probe(value: object) -> str:
    """`tcp`, `off` or `connect:HOST:PORT`."""
    if isinstance(value, str) and (value in ("tcp", "off") or _is_connect_probe(value)):
        return value
    raise ValueError("must be `tcp`, `connect:HOST:PORT` or `off`")


def _is_connect_probe(value: str) -> bool:
    try:
        return value.startswith(PROBE_PREFIX) and parse_authority(value.removeprefix(PROBE_PREFIX)).port is not None
    except InvalidAddress:
        return False


Chain = Annotated[ChainNames, BeforeValidator(read_chain), Wording("list of proxy names, or `{any_of: […]}`")]
Probe = Annotated[str, BeforeValidator(read_probe), Wording("`tcp`, `connect:HOST:PORT` or `off`")]


class HopAuth(Section):
    basic_file: FilePath | None = live(None, "file with `user:password`, mode 0600")
    digest_file: FilePath | None = live(None, "the same, sent only as a digest")
    bearer_file: FilePath | None = live(None, "file with a token, mode 0600")
    allow_insecure: bool = live(False, "send the credential in clear to a proxy that has no TLS")


class CorporateProxy(Section):
    url: str = required("`http://HOST:PORT`, `https://…`, `socks5://…` or `socks5h://…`")
    ca_file: FilePath | None = live(None, "certificates trusted for an `https` proxy; default the system's")
    server_name: DnsName | None = live(None, "name in its certificate; default the host of `url`")
    client_cert: FilePath | None = live(None, "our certificate and key for it as PEM, mode 0600")
    auth: HopAuth = live(HopAuth(), "who we are to it")


class UpstreamRule(Section):
    match: Some[str] = required("destinations, in the words of `no_proxy`")
    via: str = required("a chain, a proxy, or `direct`")
    target: Literal["ip", "hostname"] | None = live(None, "default `upstream_proxy.target`")


class Health(Section):
    interval: Wait = live(15.0, "time between checks")
    fail_after: Count = live(3, "failures in a row until a proxy is down")
    mode: Probe = live("tcp", "how a proxy is checked")
    verify_at_start: bool = live(False, "start only with every proxy up")


class UpstreamProxy(Section):
    proxies: Mapping[Word, CorporateProxy] = live({}, "corporate proxies by name")
    chains: Mapping[Word, Chain] = live({}, "sequences of them, from us outward, at most 3 each")
    rules: Many[UpstreamRule] = live((), "which destination takes which chain; the first that matches")
    no_proxy: str | None = live(None, "destinations that are dialled directly, before any rule")
    plain_http: Literal["direct", "absolute-form", "connect", "deny"] = live(
        "direct", "how plain requests leave that came without CONNECT"
    )
    target: Literal["ip", "hostname"] = live("ip", "what a proxy is asked for: the checked address, or the name")
    handshake_timeout: Wait = live(30.0, "reaching a destination through proxies, all hops and addresses together")
    credential_grace: Duration = live(300.0, "how long the last good credential is used when its file turns bad")
    health: Health = live(Health(), "checks of proxies")
