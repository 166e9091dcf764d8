"""The token grants of a profile spread over the endpoints of an instance (token-grants.md section 3)."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from egress.credentials.document import AudienceOverrideModel, CredentialModel, TokenGrantModel
from egress.credentials.grant_rules import AssertionSpec, GrantEntry, GrantSpec, Pattern, entry
from egress.credentials.overlap import hosts_meet
from egress.credentials.scope import Scope
from egress.credentials.snapshot import Placement
from egress.policy.document import EndpointModel
from egress.sdk.http import TlsOptions


def grant_entries(
    provider: str, credentials: Iterable[CredentialModel], endpoints: Iterable[EndpointModel], scope: Scope, base: Path
) -> Iterator[GrantEntry]:
    """An entry for each port of each endpoint, and one for each override that belongs to it."""
    patterns = [Pattern(one.host.lower(), port, one.path) for one in endpoints for port in one.effective_ports]
    for credential in credentials:
        grant = credential.token_grant
        if grant is None:
            continue
        spec = _spec(provider, credential, grant, base)
        chosen: dict[tuple[Pattern, Pattern], GrantEntry] = {}
        for pattern in patterns:
            chosen[pattern, pattern] = entry(spec, scope, pattern, pattern)
            for override in grant.audience_overrides:
                narrowed = narrow(pattern, override)
                if narrowed is not None:
                    chosen[pattern, narrowed] = entry(
                        spec, scope, pattern, narrowed, override.audience, override.scopes
                    )
        yield from chosen.values()


def narrow(endpoint: Pattern, override: AudienceOverrideModel) -> Pattern | None:
    """The selector of an override at an endpoint; what it leaves out is the endpoint's. None where it is not meant."""
    host = override.host.lower() or endpoint.host
    if override.port not in (0, endpoint.port) or not hosts_meet(host, endpoint.host):
        return None
    return Pattern(host, endpoint.port, override.path or endpoint.path)


def _spec(provider: str, credential: CredentialModel, grant: TokenGrantModel, base: Path) -> GrantSpec:
    scheme, fields = next(iter(grant.assertion.items()), ("spiffe", {}))
    files = (grant.tls.ca_file, grant.tls.client_cert, grant.tls.client_key)
    tls = TlsOptions(*[base / text if text else None for text in files])
    placement = Placement(credential.auth_style or "bearer", credential.header_name or "Authorization")
    return GrantSpec(
        provider, credential.name, grant.token_endpoint, grant.audience, grant.jwt_svid_audience,
        grant.client_assertion_type, tuple(grant.scopes), grant.cache_ttl_seconds, grant.cache_ttl_trust, grant.grant,
        AssertionSpec(scheme, json.dumps(fields, sort_keys=True)), grant.client_id, grant.resource, tls, placement,
        grant.requested_token_type, base,
    )  # fmt: skip
