"""`egress env`: the variables of `environment.py` for the proxy that the settings, or a running one, describe."""

import json
from dataclasses import dataclass
from pathlib import Path

from egress.cli.control import ask
from egress.cli.environment import FORMATS, JavaTrust, child_environment, proxy_url
from egress.cli.operator import operator_settings
from egress.cli.terminal import ExitCode, fail, show
from egress.config.files import read_secret
from egress.config.settings import Settings
from egress.config.types import SocketAddress, read_address
from egress.documents.diagnostic import Diagnostic
from egress.model.intent import DEFAULT_AGENT
from egress.tls.ca import BUNDLE_FILE, CERTIFICATE_FILE
from egress.tls.truststore import TRUSTSTORE_FILE, TRUSTSTORE_PASSWORD, java_truststore


@dataclass(frozen=True, slots=True)
class Running:
    """Where a proxy listens and what its clients must trust."""

    address: SocketAddress
    certificate: Path
    bundle: Path
    admin: Path | None = None
    """The operator socket, which tells the placeholders of an agent."""


def from_settings(settings: Settings) -> Running:
    """The proxy that `egress serve` would start."""
    address = settings.listen.proxy[0]
    if address.port == 0:
        fail("the port is picked when the proxy starts; give the file of its `--ready-file`")
    return Running(
        _reachable(address), settings.ca_dir / CERTIFICATE_FILE, settings.ca_dir / BUNDLE_FILE, settings.admin_socket
    )


def from_ready_file(path: Path) -> Running:
    """The proxy that wrote this file."""
    try:
        ready = json.loads(path.read_bytes())
        admin = Path(ready["admin"]) if ready.get("admin") else None
        return Running(_reachable(read_address(ready["proxy"])), Path(ready["ca"]), Path(ready["bundle"]), admin)
    except OSError as error:
        fail(f"{path}: {error.strerror}", ExitCode.NOT_RUNNING)
    except (ValueError, KeyError, TypeError):
        fail(f"{path} was not written by `egress serve --ready-file`")


def _reachable(address: SocketAddress) -> SocketAddress:
    """A client cannot connect to "every address"; the loopback one is among them."""
    literal = address.host.address
    if literal is None or not literal.is_unspecified:
        return address
    return read_address(f"127.0.0.1:{address.port}" if literal.version == 4 else f"[::1]:{address.port}")


def print_environment(
    *, config: Path | None, ready_file: Path | None, agent: str | None, shell: str, java: Path | None
) -> None:
    """Print the variables; `java` names the directory for a trust store."""
    settings = operator_settings(config)
    running = from_ready_file(ready_file) if ready_file else from_settings(settings)
    if not running.bundle.exists():
        fail(f"{running.bundle} does not exist yet; `egress ca init` or the first `egress serve` makes it")
    user, password = credential_of(settings, agent)
    variables = child_environment(
        proxy_url(str(running.address), user, password),
        running.certificate,
        running.bundle,
        java=write_java_trust(running, java) if java else None,
    )
    show(FORMATS[shell](placeholders(settings, running, agent) | variables))


def placeholders(settings: Settings, running: Running, agent: str | None) -> dict[str, str]:
    """What stands for credentials in the agent's environment; the running proxy knows, where there are any."""
    if settings.providers.file is None or running.admin is None:
        return {}
    found: dict[str, str] = ask(running.admin, "GET", "v1", "environment", agent or DEFAULT_AGENT)
    return found


def write_java_trust(running: Running, directory: Path) -> JavaTrust:
    """A trust store of the bundle, in a directory the workload can read."""
    store = directory.absolute() / TRUSTSTORE_FILE
    try:
        store.write_bytes(java_truststore(running.bundle.read_bytes()))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    return JavaTrust(store, TRUSTSTORE_PASSWORD, running.address.host.name, running.address.port)


def credential_of(settings: Settings, name: str | None) -> tuple[str, str]:
    """What an agent sends to the proxy; empty for one that is known by other means."""
    if name is None:
        return "", ""
    agent = next((agent for agent in settings.agents if agent.name == name), None)
    if agent is None:
        known = ", ".join(agent.name for agent in settings.agents) or "none"
        fail(f"no agent is called `{name}`; agents: {known}", ExitCode.INVALID)
    auth = agent.match.proxy_auth
    if auth is None:
        return "", ""
    password = read_secret(auth.password_file)
    if isinstance(password, Diagnostic):
        fail(f"{password.location} {password.message}", ExitCode.INVALID)
    return auth.user, password
