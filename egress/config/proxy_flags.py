"""OpenShell's flags for one corporate proxy. Together they stand for the whole `upstream_proxy` section."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from egress.documents.diagnostic import Diagnostic, error
from egress.documents.location import Location

PROXY_FLAG = "--upstream-proxy"
_NO_PROXY = "--upstream-no-proxy"
_AUTH_FILE = "--upstream-proxy-auth-file"
_ALLOW_INSECURE = "--upstream-proxy-auth-allow-insecure"
_BY_HOSTNAME = "--upstream-proxy-connect-by-hostname"
PARTS: Mapping[str, str] = {
    "no_proxy": _NO_PROXY,
    "basic_file": _AUTH_FILE,
    "allow_insecure": _ALLOW_INSECURE,
    "target": _BY_HOSTNAME,
}
NAME = "upstream"
"""What the one proxy of the flags is called."""

_PREFIX = "http://"


@dataclass(frozen=True, slots=True)
class ProxyFlags:
    """As typed; None and False: not given."""

    url: str | None = None
    no_proxy: str | None = None
    auth_file: str | None = None
    allow_insecure: bool = False
    by_hostname: bool = False

    def problems(self) -> Iterator[Diagnostic]:
        """What is wrong with the flags as flags; what they say is judged with the settings."""
        texts = {PROXY_FLAG: self.url, _NO_PROXY: self.no_proxy, _AUTH_FILE: self.auth_file}
        for flag, text in texts.items():
            if text is not None and not text.strip():
                yield error(Location(flag), "is empty (empty_value)", "leave the flag out")
        if self.url is None:
            given = {**texts, _ALLOW_INSECURE: self.allow_insecure or None, _BY_HOSTNAME: self.by_hostname or None}
            for flag in (flag for flag, value in given.items() if value is not None):
                yield error(Location(flag), f"is set without {PROXY_FLAG} (orphan_setting)", f"give {PROXY_FLAG} too")
        elif "://" in self.url and not self.url.strip().lower().startswith(_PREFIX):
            hint = "other kinds of proxy are named in the settings file, under `upstream_proxy.proxies`"
            yield error(Location(PROXY_FLAG), f"must begin with `{_PREFIX}` (url_bad_scheme)", hint)

    def section(self) -> dict[str, Any]:
        """The section these flags mean; empty without a proxy."""
        if self.url is None:
            return {}
        auth: dict[str, Any] = {"allow_insecure": self.allow_insecure}
        if self.auth_file is not None:
            auth["basic_file"] = str(Path(self.auth_file.strip()).absolute())
        section: dict[str, Any] = {
            "proxies": {NAME: {"url": self.url, "auth": auth}},
            "target": "hostname" if self.by_hostname else "ip",
        }
        if self.no_proxy is not None:
            section["no_proxy"] = self.no_proxy
        return section


NO_PROXY_FLAGS = ProxyFlags()
