"""Documents, intents and evidence for the tests of this package and of `l7`."""

from ipaddress import ip_address

from egress.documents.diagnostic import render
from egress.documents.yaml import Document, read
from egress.model.address import Origin, Port, Scheme, parse_host
from egress.model.ids import FlowId, GenerationNumber
from egress.model.intent import DEFAULT_AGENT, EgressIntent, Ingress, SocketPair
from egress.model.process import Evidence, IdentityMode, Process, ProcessEvidence
from egress.model.verdict import Denial
from egress.policy.authorization import Authorization
from egress.policy.authorize import authorize
from egress.policy.compile import Compilation, compile_policy
from egress.policy.compiled import CompiledPolicy

SOCKETS = SocketPair(ip_address("10.0.0.9"), Port(40000), ip_address("10.0.0.1"), Port(3128))
ANY = "binaries: [{path: '/**'}]"


def document(text: str, name: str = "policy.yaml") -> Document:
    found = read(text.encode(), name)
    assert isinstance(found, Document), render(found)
    return found


def compilation(text: str, **settings: str) -> Compilation:
    return compile_policy([document(text)], **settings)  # type: ignore[arg-type]


def policy(text: str, **settings: str) -> CompiledPolicy:
    found = compilation(text, **settings)
    assert found.policy is not None, render(found.diagnostics)
    return found.policy


def entries(text: str, **settings: str) -> CompiledPolicy:
    """A policy from the body of `network_policies`, one entry a line."""
    lines = "".join(f"  {line}\n" for line in text.strip().splitlines())
    return policy(f"version: 1\nnetwork_policies:\n{lines}", **settings)


def intent(host: str, port: int = 443) -> EgressIntent:
    origin = Origin(Scheme.HTTPS, parse_host(host), Port(port))
    return EgressIntent(FlowId("flow"), Ingress.CONNECT, DEFAULT_AGENT, origin, SOCKETS)


def evidence(executable: str = "/usr/bin/curl", *ancestors: str, sha256: str | None = None) -> ProcessEvidence:
    parents = tuple(Process(90 - depth, 1, path, "00" * 32) for depth, path in enumerate(ancestors))
    return ProcessEvidence((Process(100, 1, executable, sha256),), parents)


def ask(
    compiled: CompiledPolicy,
    host: str,
    port: int = 443,
    *,
    by: Evidence | None = None,
    identity: IdentityMode = IdentityMode.REQUIRED,
) -> Authorization | Denial:
    return authorize(compiled, intent(host, port), by or evidence(), GenerationNumber(7), identity)


def granted(compiled: CompiledPolicy, host: str, port: int = 443, *, by: Evidence | None = None) -> Authorization:
    found = ask(compiled, host, port, by=by)
    assert isinstance(found, Authorization), found
    return found


def refused(compiled: CompiledPolicy, host: str, port: int = 443, *, by: Evidence | None = None) -> Denial:
    found = ask(compiled, host, port, by=by)
    assert isinstance(found, Denial), found
    return found
