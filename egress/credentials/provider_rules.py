"""How an instance in a providers file goes together with its profile (credentials.md section 15)."""

from dataclasses import dataclass

from egress.credentials.document import ProviderModel
from egress.credentials.profile_rules import check_endpoints, key_fault
from egress.credentials.profiles import Profile
from egress.documents.findings import Findings
from egress.documents.location import KeyPath
from egress.policy.globs import Dialect, GlobError, GlobIndex


@dataclass(frozen=True, slots=True)
class Instance:
    """An entry of `providers`, where it stands and what it is an instance of."""

    model: ProviderModel
    at: KeyPath
    profile: Profile
    findings: Findings

    def check(self) -> None:
        """Say everything that is wrong with it, but for its sources."""
        self._limits()
        self._endpoints()
        self._values()
        self._config()
        self._placing()

    def error(self, path: KeyPath, message: str, hint: str = "") -> None:
        self.findings.error((*self.at, *path), message, hint)

    def _limits(self) -> None:
        for index, glob in enumerate(self.model.binaries):
            self._glob(("binaries", index), glob, Dialect.PATH)
        for index, glob in enumerate(self.model.attach):
            self._glob(("attach", index), glob, Dialect.VALUE)

    def _glob(self, path: KeyPath, glob: str, dialect: Dialect) -> None:
        try:
            GlobIndex([(glob, dialect)])
        except GlobError as problem:
            self.error(path, str(problem))

    def _endpoints(self) -> None:
        profile, model = self.profile, self.model
        if profile.model.endpoints and model.endpoints:
            hint = "a profile without endpoints takes them from its instances"
            self.error(("endpoints",), f"the profile `{profile.id}` has endpoints of its own", hint)
        signing = any(one.credential_signing for one in model.endpoints)
        path = (*self.at, "endpoints")
        check_endpoints(model.endpoints, self.findings, path, credentialed=profile.credentialed or signing)

    def _values(self) -> None:
        """Which keys have a source, and which want one."""
        profile, model = self.profile, self.model
        if model.bundle is not None and model.values:
            self.error(("bundle",), "`bundle` and `values` exclude each other")
        for key in model.values:
            if key not in profile.keys:
                keys = ", ".join(profile.keys) or "none"
                self.error(("values", key), f"the profile `{profile.id}` declares no key `{key}`", f"keys: {keys}")
        if model.bundle is not None:
            return
        for one in profile.model.credentials:
            if one.required and one.env_vars and one.token_grant is None and not set(one.env_vars) & set(model.values):
                hint = f"give `{one.env_vars[0]}` under `values`"
                self.error((), f"the profile `{profile.id}` requires the credential `{one.name}`", hint)
        granted = any(one.token_grant is not None for one in profile.model.credentials)
        required = any(one.required for one in profile.model.credentials)
        if profile.keys and not model.values and not granted and not required:
            self.error((), "has neither `values` nor a `bundle`", f"keys: {', '.join(profile.keys)}")

    def _config(self) -> None:
        facts = self.profile.model.facts
        for key in self.model.config:
            path = ("config", key)
            if facts and key not in facts:
                self.error(path, f"the profile `{self.profile.id}` knows no `{key}`", f"known: {', '.join(facts)}")
            elif key in self.profile.keys:
                self.error(path, "is a credential of the profile", "give it under `values`")
            elif not facts and (fault := key_fault(key)):
                self.error(path, fault)

    def _placing(self) -> None:
        styles = {one.auth_style for one in self.profile.model.credentials if one.token_grant is None}
        if self.model.inject != "never" and not styles - {""}:
            says = f"the profile `{self.profile.id}` does not say where its values stand in a request"
            self.error(("inject",), says, "write a profile with `auth_style`")
        if self.model.basic_username and "basic" not in styles:
            self.error(("basic_username",), f"the profile `{self.profile.id}` has nothing for HTTP Basic")
        if ":" in self.model.basic_username:
            self.error(("basic_username",), "must not hold a `:`")
