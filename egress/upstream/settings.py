"""The `upstream_proxy` section to `Routes`, or everything in it that must stop a start."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext

from egress.config.types import SocketAddress
from egress.config.upstream import PROBE_PREFIX, CorporateProxy, HopAuth, UpstreamProxy, UpstreamRule
from egress.documents.diagnostic import Diagnostic, error
from egress.documents.location import KeyPath, Location, path_text
from egress.model.address import parse_authority
from egress.upstream.address import ProxyAddress, read_proxy_address
from egress.upstream.bypass import DeadItem, Item, Kind, read_item, split_list
from egress.upstream.credential import MAX_SOCKS_PART, AuthScheme, CredentialFile, Fault, read_credential
from egress.upstream.plan import MAX_HOPS, NO_ROUTES, Chain, HealthTerms, Hop, HopKind, Place, PlainHttp, Routes

from egress.upstream.plan import Rule, Target  # isort: skip

DIRECT = "direct"
DEFAULT = "default"
_EVERYTHING = (Item(Kind.ANY),)
_TOP = "upstream_proxy"


@dataclass(frozen=True, slots=True)
class Trust:
    """What proves an `https` proxy to us and us to it; `digest` differs when a file's content does."""

    context: SSLContext
    digest: str


type TrustOf = Callable[[Path | None, Path | None], Trust | str]
"""Trust from (authorities, our certificate with its key), or what is wrong with them."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the section is judged against: where its keys stand, how trust is made, and who we are ourselves."""

    locate: Callable[[KeyPath], Location]
    trust_of: TrustOf
    listeners: Collection[SocketAddress] = ()


def read_routes(section: UpstreamProxy, around: Surroundings, found: list[Diagnostic]) -> Routes:
    """The routes of a section; what is wrong with it goes to `found`, and then the result means nothing."""
    return _Reader(section, around, found).routes()


class _Reader:
    def __init__(self, section: UpstreamProxy, around: Surroundings, found: list[Diagnostic]) -> None:
        self._section = section
        self._around = around
        self._found = found
        self._implied: dict[str, Target] = {}
        """What the scheme of a proxy's URL says about targets."""

    def routes(self) -> Routes:
        section = self._section
        if not section.proxies:
            self._orphans()
            return Routes(plain_http=PlainHttp(section.plain_http)) if section.plain_http == "deny" else NO_ROUTES
        hops = {name: hop for name, proxy in section.proxies.items() if (hop := self._hop(name, proxy))}
        chains = self._chains(hops)
        rules = [rule for index, item in enumerate(section.rules) if (rule := self._rule(index, item, chains))]
        rest = self._rest(chains)
        if rest is not None:
            rules.append(rest)
        if section.plain_http == PlainHttp.ABSOLUTE_FORM.value:
            self._absolute_form(rules)
        health = section.health
        probe = health.mode.removeprefix(PROBE_PREFIX) if health.mode.startswith(PROBE_PREFIX) else None
        return Routes(
            self._no_proxy(),
            tuple(rules),
            PlainHttp(section.plain_http),
            section.handshake_timeout,
            HealthTerms(
                health.interval, health.fail_after, health.mode != "off", _place(probe) if probe else None,
                health.verify_at_start,
            ),
            tuple(hops.values()),
        )  # fmt: skip

    def _error(self, path: KeyPath, code: str, message: str, hint: str = "") -> None:
        path = (_TOP, *path)
        self._found.append(error(self._around.locate(path), f"{path_text(path)}: {message} ({code})", hint))

    def _orphans(self) -> None:
        section = self._section
        set_ = {
            "no_proxy": section.no_proxy is not None,
            "rules": bool(section.rules),
            "chains": bool(section.chains),
            "target": section.target != Target.IP.value,
            "plain_http": section.plain_http in (PlainHttp.ABSOLUTE_FORM, PlainHttp.CONNECT),
        }
        for key in (key for key, given in set_.items() if given):
            self._error((key,), "orphan_setting", "is set, but no proxy is", "name one under `upstream_proxy.proxies`")

    # proxies ---------------------------------------------------------------------------------------------------

    def _hop(self, name: str, proxy: CorporateProxy) -> Hop | None:
        path: KeyPath = ("proxies", name)
        if name == DIRECT:
            self._error(path, "name_taken", f"`{DIRECT}` is no name for a proxy", "it means: without any")
        address = read_proxy_address(proxy.url)
        if isinstance(address, Fault):
            self._error((*path, "url"), address.code, address.text)
            return None
        if self._is_ourselves(address.place):
            self._error((*path, "url"), "url_own_listener", "is where this proxy listens itself")
        if address.target is not None:
            self._implied[name] = address.target
        credential = self._credential((*path, "auth"), proxy.auth, address.kind)
        if address.kind is not HopKind.HTTPS:
            self._tls_keys(path, proxy)
            return Hop(name, address.kind, address.place, credential=credential)
        return self._tls_hop(path, proxy, address, credential)

    def _is_ourselves(self, place: Place) -> bool:
        return any(
            place.port == own.port and (place.host == own.host or (own.loopback and place.host.name == "localhost"))
            for own in self._around.listeners
        )

    def _tls_hop(
        self, path: KeyPath, proxy: CorporateProxy, address: ProxyAddress, credential: CredentialFile | None
    ) -> Hop | None:
        trust = self._around.trust_of(proxy.ca_file, proxy.client_cert)
        if isinstance(trust, str):
            self._error(path, "tls_files", trust)
            return None
        server_name = proxy.server_name or address.place.host
        return Hop(
            str(path[-1]), address.kind, address.place, server_name.name, trust.digest, credential, trust.context
        )

    def _tls_keys(self, path: KeyPath, proxy: CorporateProxy) -> None:
        for key in ("ca_file", "server_name", "client_cert"):
            if getattr(proxy, key) is not None:
                self._error((*path, key), "orphan_setting", "is for `https://` proxies only")

    def _credential(self, path: KeyPath, auth: HopAuth, kind: HopKind) -> CredentialFile | None:
        files = {scheme: file for scheme in AuthScheme if (file := getattr(auth, f"{scheme}_file")) is not None}
        if not files:
            if auth.allow_insecure:
                self._error((*path, "allow_insecure"), "ack_without_file", "is set, but no credential is")
            return None
        scheme, file = next(iter(files.items()))
        if len(files) > 1:
            self._error(path, "several_credentials", "names several credentials", "keep one")
        if kind is HopKind.SOCKS5 and scheme is not AuthScheme.BASIC:
            self._error(path, "cred_not_for_socks", "a SOCKS proxy takes `basic_file` only")
        if scheme.reveals and kind is not HopKind.HTTPS and not auth.allow_insecure:
            hint = "use an `https://` proxy or `digest_file`, or accept it with `allow_insecure: true`"
            message = "would send the credential in clear"
            self._error((*path, f"{scheme}_file"), "file_without_ack", message, hint)
        return self._read_credential((*path, f"{scheme}_file"), file, scheme, kind)

    def _read_credential(self, path: KeyPath, file: Path, scheme: AuthScheme, kind: HopKind) -> CredentialFile | None:
        secret = read_credential(file, scheme)
        if isinstance(secret, Fault):
            self._error(path, secret.code, f"{file} {secret.text}")
            return None
        if kind is HopKind.SOCKS5:
            user, _, password = secret.reveal().partition(":")
            if max(len(user.encode()), len(password.encode())) > MAX_SOCKS_PART:
                self._error(path, "cred_too_long", f"{file} is too long for SOCKS: {MAX_SOCKS_PART} bytes a part")
        return CredentialFile(file, scheme, secret, self._section.credential_grace)

    # chains and rules ------------------------------------------------------------------------------------------

    def _chains(self, hops: Mapping[str, Hop]) -> dict[str, tuple[Chain, ...]]:
        """What a rule may call its way: chains, and each proxy by itself."""
        known: dict[str, tuple[Chain, ...]] = {name: ((hop,),) for name, hop in hops.items()}
        proxies = self._section.proxies
        for name, alternatives in self._section.chains.items():
            path: KeyPath = ("chains", name)
            if name in proxies or name == DIRECT:
                self._error(path, "name_taken", f"`{name}` means something else already")
            missing = [hop for chain in alternatives for hop in chain if hop not in proxies]
            for hop in dict.fromkeys(missing):
                self._error(path, "unknown_proxy", f"there is no proxy `{hop}`")
            if any(len(chain) > MAX_HOPS or len(set(chain)) < len(chain) for chain in alternatives):
                self._error(path, "bad_chain", f"a chain is one to {MAX_HOPS} different proxies")
            known[name] = tuple(tuple(hops[hop] for hop in chain if hop in hops) for chain in alternatives)
        return known

    def _rule(self, index: int, rule: UpstreamRule, chains: Mapping[str, tuple[Chain, ...]]) -> Rule | None:
        path: KeyPath = ("rules", index)
        items = tuple(
            item for at, text in enumerate(rule.match) if (item := self._item((*path, "match", at), text, text))
        )
        if index and any("*" in (text.strip() for text in earlier.match) for earlier in self._section.rules[:index]):
            self._error(path, "dead_rule", "never applies: an earlier rule matches everything")
        if rule.via == DIRECT:
            if rule.target is not None:
                self._error((*path, "target"), "orphan_setting", "means nothing without a proxy")
            return Rule(items, ())
        if rule.via not in chains:
            if rule.via not in self._section.proxies:
                self._error((*path, "via"), "unknown_chain", f"there is no chain or proxy `{rule.via}`")
            return None
        return Rule(items, chains[rule.via], self._target((*path, "via"), rule.target, chains[rule.via]))

    def _target(self, path: KeyPath, said: str | None, chains: tuple[Chain, ...]) -> Target:
        """What the last proxy is asked for: the rule's word, then that of the URL, then that of the section."""
        general = Target(self._section.target)
        if said is not None:
            return Target(said)
        wanted = {self._implied.get(chain[-1].name, general) for chain in chains if chain}
        if len(wanted) > 1:
            message = "leads to proxies that are asked for names and to others that are asked for addresses"
            self._error(path, "mixed_targets", message, "write `target` for it")
        return wanted.pop() if wanted else general

    def _rest(self, chains: Mapping[str, tuple[Chain, ...]]) -> Rule | None:
        """The way of destinations that no rule matches: nothing reaches `direct` unless a rule says so."""
        section = self._section
        if any("*" in (text.strip() for text in rule.match) for rule in section.rules):
            return None
        name = DEFAULT if DEFAULT in section.chains or DEFAULT in section.proxies else ""
        if not name and len(section.proxies) == 1 and not section.chains:
            name = next(iter(section.proxies))
        if not name:
            hint = f"end with a rule for `*`, or name a chain `{DEFAULT}`"
            self._error(("rules",), "no_default", "nothing says where other destinations go", hint)
            return None
        ways = chains.get(name)
        return None if ways is None else Rule(_EVERYTHING, ways, self._target(("target",), None, ways))

    def _absolute_form(self, rules: list[Rule]) -> None:
        """A digest covers the request it is sent with, and its challenge comes too late for a body that streams."""
        last = dict.fromkeys(chain[-1] for rule in rules for chain in rule.chains if chain)
        for hop in last:
            if hop.credential is not None and hop.credential.scheme is AuthScheme.DIGEST:
                message = f"`{hop.name}` takes a digest, which absolute-form requests cannot carry"
                self._error(("plain_http",), "digest_absolute_form", message, "write `plain_http: connect`")

    def _no_proxy(self) -> tuple[Item, ...]:
        text = self._section.no_proxy
        if text is None:
            return ()
        if not text.strip():
            self._error(("no_proxy",), "empty_value", "is empty", "leave the key out")
        items = (self._item(("no_proxy",), item, f"item {position}") for position, item in split_list(text))
        return tuple(item for item in items if item)

    def _item(self, path: KeyPath, text: str, name: str) -> Item | None:
        try:
            return read_item(text.strip())
        except DeadItem as problem:
            message, _, hint = str(problem).partition("\n")
            self._error(path, "dead_item", f"`{name}` can never match: {message}", hint)
            return None


def _place(text: str) -> Place:
    authority = parse_authority(text)
    assert authority.port is not None  # the type of `health.mode` saw to it
    return Place(authority.host, authority.port)
