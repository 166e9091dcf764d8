"""What is wrong with a profile that has the right keys: how they go together (credentials.md 12 and 13,
token-grants.md 2)."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from egress.credentials.document import CredentialModel, ProfileModel, RefreshModel, is_key
from egress.credentials.overlap import host_within
from egress.credentials.placeholder import reserved_key
from egress.credentials.scope import Selector
from egress.credentials.token_endpoint import endpoint_fault
from egress.documents.findings import Findings
from egress.documents.location import KeyPath
from egress.http.fields import is_token
from egress.policy.document import EndpointModel

INSPECTED = ("rest", "websocket", "graphql", "json-rpc", "mcp")
_FRAMING = frozenset((b"host", b"content-length", b"transfer-encoding", b"connection"))
_PREFIX = re.compile(r"[A-Za-z0-9_.~-]{1,64}\Z")

_STEERING = frozenset((
    "PATH", "IFS", "ENV", "BASH_ENV", "SHELL", "HOME", "USER", "NODE_OPTIONS", "NODE_EXTRA_CA_CERTS",
    "NODE_USE_ENV_PROXY", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "DENO_CERT",
    "AWS_CA_BUNDLE",
))  # fmt: skip
_STEERING_PREFIXES = ("LD_", "DYLD_", "PYTHON", "SSL_CERT_", "OPENSHELL_")
_STEERING_SUFFIXES = ("_PROXY", "_proxy")

_STS_OUTPUTS = {"secret_access_key": "AWS_SECRET_ACCESS_KEY", "session_token": "AWS_SESSION_TOKEN"}
_STS_PRIMARY = "AWS_ACCESS_KEY_ID"


def forbidden_key(key: str) -> bool:
    """Would this variable steer the workload's own programs?"""
    return key in _STEERING or key.startswith(_STEERING_PREFIXES) or key.endswith(_STEERING_SUFFIXES)


def key_fault(key: str) -> str:
    """Why workloads may not have a variable of that name; empty when they may."""
    if not is_key(key):
        return f"`{key}` is no name of an environment variable"
    if reserved_key(key):
        return f"the key `{key}` would be read as a placeholder's"
    return f"the key `{key}` may not be set for workloads" if forbidden_key(key) else ""


def check_profile(model: ProfileModel, findings: Findings) -> None:
    """Say everything that is wrong with a profile."""
    _Rules(model, findings).check()


def check_endpoints(endpoints: Iterable[EndpointModel], findings: Findings, at: KeyPath, *, credentialed: bool) -> None:
    """The endpoints of a profile, or of an instance. What a policy asks of endpoints is said by its compiler."""
    for index, endpoint in enumerate(endpoints):
        path = (*at, index)
        if not endpoint.host:
            findings.error(path, "needs a host")
        if not endpoint.effective_ports:
            findings.error(path, "needs a port")
        if endpoint.credential_binding is not None:
            findings.error((*path, "credential_binding"), "is a key of a policy's endpoint", "remove it")
        for port in endpoint.effective_ports if endpoint.host else ():
            try:
                Selector.of(endpoint.host, port, endpoint.path)
            except ValueError as problem:
                findings.error(path, str(problem))
        read = endpoint.protocol in INSPECTED and endpoint.tls not in ("skip", "passthrough")
        if credentialed and not endpoint.allow_uninspected_credentials and not read:
            hint = "write `protocol: rest`, or `allow_uninspected_credentials: true`"
            findings.error(path, "credentials go only where traffic is inspected", hint)
        if endpoint.enforcement == "audit" and credentialed:
            says = "with `audit` a credential goes along also where no rule allows the request"
            findings.warning((*path, "enforcement"), says, "write `enforcement: enforce`")


@dataclass(frozen=True, slots=True)
class _Rules:
    """One look at one profile."""

    model: ProfileModel
    findings: Findings

    def check(self) -> None:
        names: set[str] = set()
        keys: set[str] = set()
        for index, one in enumerate(self.model.credentials):
            at: KeyPath = ("credentials", index)
            if one.name in names:
                self.findings.error((*at, "name"), f"the credential `{one.name}` is named twice")
            names.add(one.name)
            self._keys(one, at, keys)
            self._placement(one, at)
            self._grant(one, at)
            for number in one.endpoints or ():
                if not 0 <= number < len(self.model.endpoints):
                    self.findings.error((*at, "endpoints"), f"there is no endpoint {number}")
            if one.refresh is not None:
                self._refresh(one, one.refresh, (*at, "refresh"))
        self._discovery(names)
        for index, binary in enumerate(self.model.binaries):
            if not (binary if isinstance(binary, str) else binary.path).strip():
                self.findings.error(("binaries", index), "must not be blank")
        credentialed = bool(self.model.credentials) or any(one.credential_signing for one in self.model.endpoints)
        check_endpoints(self.model.endpoints, self.findings, ("endpoints",), credentialed=credentialed)

    def _discovery(self, names: set[str]) -> None:
        listed = self.model.discovery.credentials
        for index, name in enumerate(listed):
            if name not in names:
                self.findings.error(("discovery", "credentials", index), f"there is no credential `{name}`")
            if name in listed[:index]:
                self.findings.error(("discovery", "credentials", index), f"`{name}` is listed twice")

    def _keys(self, one: CredentialModel, at: KeyPath, keys: set[str]) -> None:
        for index, key in enumerate(one.env_vars):
            path = (*at, "env_vars", index)
            if key in keys:
                self.findings.error(path, f"the key `{key}` is declared twice")
            if fault := key_fault(key):
                self.findings.error(path, fault)
            keys.add(key)

    def _placement(self, one: CredentialModel, at: KeyPath) -> None:
        style = one.auth_style
        if style in ("header", "bearer") and not one.header_name:
            hint = "write `header_name: Authorization`" if style == "bearer" else ""
            self.findings.error(at, f"`auth_style: {style}` needs `header_name`", hint)
        if style == "query" and not one.query_param:
            self.findings.error(at, "`auth_style: query` needs `query_param`")
        if style == "path" and one.path_template.count("{credential}") != 1:
            self.findings.error(at, "`auth_style: path` needs `path_template` with one `{credential}`")
        name = one.header_name.encode()
        if name and (not is_token(name) or name.lower() in _FRAMING):
            self.findings.error((*at, "header_name"), "is no field that a credential can be placed in")
        if one.placeholder_prefix and not _PREFIX.match(one.placeholder_prefix):
            self.findings.error((*at, "placeholder_prefix"), "must be letters, digits, `_`, `.`, `~` and `-`")

    def _grant(self, one: CredentialModel, at: KeyPath) -> None:
        grant = one.token_grant
        if grant is None:
            return
        if one.auth_style in ("basic", "query", "path"):
            self.findings.error((*at, "auth_style"), "a token grant is placed as `bearer` or `header`")
        if one.env_vars:
            self.findings.error((*at, "env_vars"), "a token grant has no environment variable")
        path = (*at, "token_grant")
        if len(grant.assertion) != 1:
            self.findings.error((*path, "assertion"), "needs exactly one source", "such as `{spiffe: {}}`")
        fault = endpoint_fault(grant.token_endpoint)
        if fault is not None:
            self.findings.error((*path, "token_endpoint"), fault)
        elif not grant.token_endpoint_bound:
            self._bound(grant.token_endpoint, (*path, "token_endpoint"))
        for number, override in enumerate(grant.audience_overrides):
            hosts = [one.host for one in self.model.endpoints]
            if override.host and hosts and not any(host_within(override.host, host) for host in hosts):
                says = "the host is wider than every endpoint of the profile"
                self.findings.error((*path, "audience_overrides", number), says)

    def _bound(self, url: str, path: KeyPath) -> None:
        """The workload would get its own way to the token endpoint, with a token of ours on the request."""
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        for endpoint in self.model.endpoints:
            if port in endpoint.effective_ports and host_within(parts.hostname or "", endpoint.host):
                hint = "write `token_endpoint_bound: true` if it is meant"
                self.findings.error(path, "is a host that the grant itself is for", hint)
                return

    def _refresh(self, one: CredentialModel, refresh: RefreshModel, at: KeyPath) -> None:
        strategy = refresh.strategy
        material = {item.name for item in refresh.material}
        if refresh.token_url and (fault := endpoint_fault(refresh.token_url)) is not None:
            self.findings.error((*at, "token_url"), fault.replace("token_endpoint", "`token_url`"))
        if strategy.startswith("oauth2") and not refresh.token_url and "tenant_id" not in material:
            self.findings.error(at, f"`{strategy}` needs `token_url`, or `tenant_id` among its material")
        if strategy == "google_service_account_jwt" and not refresh.scopes and not material & {"scope", "scopes"}:
            self.findings.error(at, "`google_service_account_jwt` needs `scopes`")
        if strategy == "aws_sts_assume_role" and one.env_vars != [_STS_PRIMARY]:
            self.findings.error(at, f"`aws_sts_assume_role` is for a credential with the key `{_STS_PRIMARY}`")
        for message, path in self._outputs(refresh):
            self.findings.error((*at, "additional_outputs", *path), message)

    def _outputs(self, refresh: RefreshModel) -> Iterator[tuple[str, KeyPath]]:
        """The other keys that one call gives; a sibling credential waits for each."""
        if refresh.additional_outputs and refresh.strategy != "aws_sts_assume_role":
            yield "belong to `aws_sts_assume_role`", ()
            return
        siblings = {one.name: one for one in self.model.credentials}
        for index, output in enumerate(refresh.additional_outputs):
            sibling = siblings.get(output.credential)
            wanted = _STS_OUTPUTS.get(output.output)
            if wanted is None:
                yield f"there is no output `{output.output}`", (index, "output")
            elif sibling is None:
                yield f"there is no credential `{output.credential}`", (index, "credential")
            elif sibling.env_vars != [wanted] or sibling.refresh is not None:
                yield f"must be a credential with the key `{wanted}` alone and no `refresh`", (index, "credential")
