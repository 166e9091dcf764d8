"""Sections of credentials, the plugins that bring them, and the operator's socket."""

from collections.abc import Mapping
from typing import Literal

from egress.config.later import Table, Tables
from egress.config.sections import Section, fixed, later, live
from egress.config.types import Address, FilePath, Many, Mode, Uid, read_address


class Providers(Section):
    file: FilePath | None = live(None, "credentials and where they belong")


class TokenGrants(Section):
    workload_api: str | None = fixed(None, "SPIFFE Workload API socket")


class MetadataServer(Section):
    gcp: Literal["auto", "off"] = live("auto", "Google's metadata service, when a provider asks for it")
    listen: Address = live(read_address("127.0.0.1:0"), "where it listens")
    id_tokens: Many[str] = live((), "audiences of identity tokens")
    aws: bool = live(False, "AWS's metadata service")
    azure: bool = live(False, "Azure's metadata service")


class Plugins(Section):
    enabled: Many[str] = fixed((), "plugins that are loaded")
    allow_distributions: Many[str] = fixed((), "distributions whose plugins may be loaded")
    require_hashes: Mapping[str, str] = fixed({}, "hash of each distribution")
    settings: Tables = later({}, "settings by plugin")
    secrets: Table = later({}, "secret sources by name")


class AdminUnix(Section):
    path: FilePath | None = fixed(None, "default `/run/egress/admin.sock`; not root: `<state_dir>/admin.sock`")
    mode: Mode = fixed(0o600, "permission bits")
    allow_uids: Many[Uid] = fixed((0,), "user ids beside our own that may connect")


class AdminTcp(Section):
    enabled: bool = fixed(False, "listen on TCP too")
    address: Address = fixed(read_address("127.0.0.1:3129"), "loopback address")


class AdminRole(Section):
    token_file: FilePath | None = live(None, "file with the token, mode 0600")


class AdminRoles(Section):
    viewer: AdminRole = live(AdminRole(), "may look")
    operator: AdminRole = live(AdminRole(), "may change")


class Admin(Section):
    unix: AdminUnix = fixed(AdminUnix(), "operator socket")
    tcp: AdminTcp = later(AdminTcp(), "operator page")
    roles: AdminRoles = later(AdminRoles(), "tokens of the TCP listener")
