"""May this program open this connection, and on which terms? The connection-level decision."""

from collections.abc import Iterable, Sequence

from egress.model.address import Host
from egress.model.destination import AddressRule, TlsMode
from egress.model.ids import GenerationNumber
from egress.model.intent import EgressIntent
from egress.model.process import Evidence, EvidenceUnavailable, IdentityMode
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.policy.authorization import Authorization
from egress.policy.compiled import Binary, Caller, CompiledPolicy, Endpoint, Entry, Memo, Terms
from egress.policy.hosts import RESERVED_HOSTS
from egress.policy.wording import binary_not_listed

_IDENTITY_CODES = {code.value: code for code in ReasonCode}


def authorize(
    policy: CompiledPolicy,
    intent: EgressIntent,
    evidence: Evidence,
    generation: GenerationNumber,
    identity: IdentityMode,
) -> Authorization | Denial:
    """The yes with its terms, or the reason why not. Nothing softens a denial given here."""
    host = intent.origin.host
    if host.name in RESERVED_HOSTS:
        return _denial(ReasonCode.RESERVED_HOST, f"{host.name} is answered by the proxy itself")
    if isinstance(evidence, EvidenceUnavailable) and identity is IdentityMode.REQUIRED:
        code = _IDENTITY_CODES.get(evidence.reason, ReasonCode.IDENTITY_UNAVAILABLE)
        return Denial(Stage.IDENTITY, DenialCode.POLICY_DENIED, evidence.detail, code)
    caller = caller_of(evidence)
    memo = policy.memo
    question = (host, intent.origin.port, caller)
    terms = memo.terms.get(question)
    if terms is None:
        found = _work_out(policy, intent, evidence, caller)
        if isinstance(found, Denial):
            return found
        terms = found
        if len(memo.terms) >= Memo.LIMIT:
            memo.terms.clear()
        memo.terms[question] = terms
    return Authorization(intent, evidence, generation, terms.entry, terms.endpoints, terms.addresses, terms.tls)


def caller_of(evidence: Evidence) -> Caller:
    """What a binary list is compared with: the owner's image, then its ancestors'; empty when nothing is known."""
    if isinstance(evidence, EvidenceUnavailable):
        return ()
    owner = evidence.owners[0]
    return ((owner.executable, owner.sha256), *((parent.executable, parent.sha256) for parent in evidence.ancestors))


def endpoints_for(policy: CompiledPolicy, host: Host, port: int) -> list[Endpoint]:
    """Every endpoint that matches host and port, whoever asks."""
    table = policy.ports.get(port)
    return table.lookup(host) if table is not None else []


def listed_ports(policy: CompiledPolicy, host: Host) -> list[int]:
    """Every port on which some endpoint names the host."""
    return sorted({port for endpoint in policy.hosts.named(host) for port in endpoint.ports})


def admits(policy: CompiledPolicy, entry: Entry, caller: Caller) -> bool:
    """Does some binary of the entry match the caller?"""
    return any(_binary_matches(policy, binary, caller) for binary in entry.binaries)


def _work_out(policy: CompiledPolicy, intent: EgressIntent, evidence: Evidence, caller: Caller) -> Terms | Denial:
    host, port = intent.origin.host, intent.origin.port
    candidates = endpoints_for(policy, host, port)
    if not candidates:
        return _unlisted(policy, host, str(intent.origin))
    entries = {endpoint.entry: policy.entries[endpoint.entry] for endpoint in candidates}
    admitted = {key for key, entry in entries.items() if admits(policy, entry, caller)}
    if not admitted:
        return binary_not_listed(list(entries.values()), str(intent.origin), evidence)
    endpoints = [endpoint for endpoint in candidates if endpoint.entry in admitted]
    endpoints.sort(key=lambda endpoint: (endpoint.entry, endpoint.index))
    return Terms(_reported(admitted), tuple(endpoints), _addresses(endpoints), _tls(endpoints))


def _reported(admitted: Iterable[str]) -> str:
    """The key that events name: the smallest, one that a person wrote before one that a provider brought."""
    return min(admitted, key=lambda key: (key.startswith("_provider_"), key))


def _unlisted(policy: CompiledPolicy, host: Host, where: str) -> Denial:
    if not policy.entries:
        return _denial(ReasonCode.NO_MATCHING_POLICY, "network connections not allowed by policy")
    code = ReasonCode.PORT_NOT_LISTED if listed_ports(policy, host) else ReasonCode.HOST_NOT_LISTED
    return _denial(code, f"endpoint {where} is not allowed by any policy")


def _denial(code: ReasonCode, reason: str) -> Denial:
    return Denial(Stage.POLICY, DenialCode.POLICY_DENIED, reason, code)


def _binary_matches(policy: CompiledPolicy, binary: Binary, caller: Caller) -> bool:
    if binary.any:
        return True
    numbers = policy.binaries.numbers
    wanted = {numbers[path] for path in (binary.path, binary.resolved) if path is not None}
    images = caller[:1] if binary.direct else caller
    return any(
        not wanted.isdisjoint(_numbers(policy, executable)) and (not binary.sha256 or sha256 in binary.sha256)
        for executable, sha256 in images
    )


def _numbers(policy: CompiledPolicy, executable: str) -> frozenset[int]:
    """Numbers of all binary paths of the policy that match the executable."""
    known = policy.memo.binaries
    found = known.get(executable)
    if found is None:
        if len(known) >= Memo.LIMIT:
            known.clear()
        found = known[executable] = frozenset(policy.binaries.globs.match(executable))
    return found


def _addresses(endpoints: Sequence[Endpoint]) -> AddressRule:
    """`allowed_ips` of the first endpoint that has it; endpoints that disagree are refused at load."""
    return AddressRule(
        allowed=next((endpoint.allowed_ips for endpoint in endpoints if endpoint.allowed_ips is not None), None),
        declared=any(endpoint.names_host for endpoint in endpoints),
        control_plane_port=any(endpoint.allow_control_plane_port for endpoint in endpoints),
    )


def _tls(endpoints: Iterable[Endpoint]) -> TlsMode:
    return TlsMode.SKIP if any(endpoint.tls is TlsMode.SKIP for endpoint in endpoints) else TlsMode.AUTO
