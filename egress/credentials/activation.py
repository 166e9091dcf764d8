"""Do policy and providers fit together? Checked before either is installed (credentials.md 12.2, sigv4.md 2.1)."""

from collections.abc import Iterator, Mapping

from egress.credentials.aws.lookup import ACCESS_KEY, SECRET_KEY
from egress.credentials.providers import PREFIX, Provider, ProviderSet
from egress.credentials.scope import Selector
from egress.documents.diagnostic import Diagnostic, error
from egress.documents.location import Location
from egress.policy.compiled import CompiledPolicy, Endpoint

_ANY_PATH = frozenset(("", "**", "/**"))


def check_activation(policy: CompiledPolicy, providers: ProviderSet | None) -> list[Diagnostic]:
    """What the policy asks of providers that they do not give. An error of these refuses both."""
    places = providers.selectors([policy]) if providers is not None else {}
    return [
        found
        for entry in policy.entries.values()
        for endpoint in entry.endpoints
        if not endpoint.entry.startswith(PREFIX)
        for found in _endpoint(endpoint, providers, places)
    ]


def _endpoint(
    endpoint: Endpoint, providers: ProviderSet | None, places: Mapping[str, tuple[Selector, ...]]
) -> Iterator[Diagnostic]:
    where = Location(endpoint.location or endpoint.entry)
    name = endpoint.credentials.provider
    bound = providers.find(name) if providers is not None and name else None
    if name:
        fault = _binding_fault(name, bound)
        if fault:
            yield error(where, f"credential_binding: {fault}", "attach a provider of that name in the providers file")
            return
    if endpoint.credentials.signing is None:
        return
    ports = ":".join((endpoint.host, ",".join(map(str, endpoint.ports))))
    if bound is not None:
        if not _has_keys(bound):
            yield error(where, f"credential_signing: the provider `{name}` has no AWS keys to sign {ports} with")
    elif not any(
        _has_keys(one) and _covers(places.get(one.name, ()), endpoint)
        for one in (providers.providers if providers else ())
    ):
        message = f"credential_signing: no provider has AWS keys for {ports}{endpoint.path}"
        hint = "write `credential_binding: {provider: NAME}`, or attach a provider whose profile covers the endpoint"
        yield error(where, message, hint)


def _binding_fault(name: str, bound: Provider | None) -> str:
    if bound is None:
        return f"there is no provider `{name}`"
    if bound.endpoints:
        return f"the provider `{name}` has endpoints of its own"
    return ""


def _has_keys(provider: Provider) -> bool:
    return {ACCESS_KEY, SECRET_KEY} <= set(provider.profile.keys)


def _covers(selectors: tuple[Selector, ...], endpoint: Endpoint) -> bool:
    """For each port one selector that holds everything the endpoint may match."""
    return all(
        any(
            selector.port == port
            and _host_within(endpoint.host, selector.host)
            and _path_within(endpoint.path, selector)
            for selector in selectors
        )
        for port in endpoint.ports
    )


def _host_within(host: str, pattern: str) -> bool:
    """Is every host that `host` matches one that `pattern` matches? Label by label."""
    if host == pattern:
        return True
    if not any(character in host for character in "*?["):
        return Selector.of(pattern, 1).covers_authority(host, 1)
    mine, theirs = host.split("."), pattern.split(".")
    return len(mine) == len(theirs) and all(
        one == other or (other == "*" and one != "**") for one, other in zip(mine, theirs, strict=True)
    )


def _path_within(path: str, selector: Selector) -> bool:
    if selector.path in _ANY_PATH or path == selector.path:
        return True
    return "*" not in path and "?" not in path and selector.covers(selector.host, selector.port, path)
