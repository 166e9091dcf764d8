"""Do policy and providers fit together? Checked before either is installed (credentials.md 12.2, sigv4.md 2.1)."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from egress.credentials.aws.lookup import ACCESS_KEY, SECRET_KEY
from egress.credentials.aws.region import derive
from egress.credentials.overlap import host_within, path_within
from egress.credentials.providers import Provider, ProviderSet
from egress.documents.diagnostic import Diagnostic, error, warning
from egress.documents.location import Location
from egress.policy.compiled import CompiledPolicy, Endpoint, Signing

_WRITTEN = re.compile(r"(.+):([0-9]+):([0-9]+)\Z")
_SOME_REGION = "us-east-1"
"""Stands for a wildcard where it matters only whether there is a region in that place."""


def check_activation(
    policy: CompiledPolicy, providers: ProviderSet | None, attached: Collection[str] | None = None
) -> list[Diagnostic]:
    """What the policy asks of providers that they do not give. An error of these refuses both.

    `attached` names the providers that serve the agent of the policy; None is all.
    """
    known = providers.providers if providers is not None else ()
    check = _Check(known, frozenset(one.name for one in known if attached is None or one.name in attached))
    return [
        found
        for entry in policy.entries.values()
        for endpoint in entry.endpoints
        for found in check.endpoint(endpoint, _location(endpoint))
    ]


def unbound(providers: ProviderSet, policies: Collection[CompiledPolicy]) -> Iterator[Diagnostic]:
    """Providers that no policy says a place for: workloads get nothing of them."""
    for name, where in providers.selectors(policies).items():
        one = providers.find(name)
        if one is not None and one.keys and not where:
            hint = f"write `credential_binding: {{provider: {name}}}` at an endpoint, or give it `endpoints`"
            yield warning(one.location, f"nothing says where the values of `{name}` belong: they are withheld", hint)


@dataclass(frozen=True, slots=True)
class _Check:
    providers: tuple[Provider, ...]
    attached: frozenset[str]

    def endpoint(self, endpoint: Endpoint, where: Location) -> Iterator[Diagnostic]:
        name, signing = endpoint.credentials.provider, endpoint.credentials.signing
        bound = next((one for one in self.providers if one.name == name), None)
        if name and (fault := self._binding_fault(name, bound)):
            yield error(where, f"credential_binding: {fault}", "attach a provider of that name in the providers file")
            return
        if signing is None:
            return
        yield from _scope(endpoint, signing, where)
        target = f"{endpoint.host}:{','.join(map(str, endpoint.ports))}{endpoint.path}"
        if bound is not None:
            if not _has_keys(bound):
                yield error(where, f"credential_signing: the provider `{name}` has no AWS keys to sign {target} with")
        elif not any(_has_keys(one) and _covers(one, endpoint) for one in self._serving()):
            message = f"credential_signing: no provider has AWS keys for {target}"
            hint = "write `credential_binding: {provider: NAME}`, or attach a provider whose endpoints cover this one"
            yield error(where, message, hint)

    def _serving(self) -> Iterator[Provider]:
        return (one for one in self.providers if one.name in self.attached)

    def _binding_fault(self, name: str, bound: Provider | None) -> str:
        if bound is None:
            return f"there is no provider `{name}`"
        if name not in self.attached:
            return f"the provider `{name}` is not attached to the agent"
        return f"the provider `{name}` has endpoints of its own" if bound.endpoints else ""


def _location(endpoint: Endpoint) -> Location:
    """Where it was written; the file's name may hold colons itself."""
    written = _WRITTEN.match(endpoint.location)
    return Location(written[1], int(written[2]), int(written[3])) if written else Location(endpoint.entry)


def _has_keys(provider: Provider) -> bool:
    return {ACCESS_KEY, SECRET_KEY} <= set(provider.profile.keys)


def _covers(provider: Provider, endpoint: Endpoint) -> bool:
    """For each port one endpoint of the provider that holds everything the endpoint may match."""
    return all(
        any(
            port in one.effective_ports
            and host_within(endpoint.host, one.host)
            and path_within(endpoint.path, one.path)
            for one in provider.endpoints
        )
        for port in endpoint.ports
    )


def _scope(endpoint: Endpoint, signing: Signing, where: Location) -> Iterator[Diagnostic]:
    """Will there be a region and a service to sign for? What a wildcard stands for is known only later."""
    wild = "*" in endpoint.host
    derived = derive(endpoint.host.replace("**", _SOME_REGION).replace("*", _SOME_REGION))
    tell = warning if wild else error
    if not signing.region and not derived.region:
        says = f"credential_signing: the host `{endpoint.host}` does not tell the region"
        yield tell(where, says, "write `signing_region`")
    if not signing.service and not derived.service:
        says = f"credential_signing: the host `{endpoint.host}` does not tell the service"
        yield tell(where, says, "write `signing_service`")
    if not wild and signing.service and derived.service not in ("", signing.service):
        says = f"signing_service: `{signing.service}`, but the host stands for `{derived.service}`"
        yield warning(where, says, "leave `signing_service` out, unless it is meant")
