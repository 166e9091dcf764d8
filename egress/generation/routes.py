"""The ways out that settings describe, their certificate files included."""

import hashlib
import ssl
from collections.abc import Callable
from pathlib import Path

from egress.config.settings import Settings
from egress.documents.diagnostic import Diagnostic
from egress.documents.location import KeyPath, Location
from egress.model.errors import DependencyError
from egress.tls.profile import TlsProfile
from egress.upstream.credential import Fault, read_private
from egress.upstream.plan import Routes
from egress.upstream.settings import Surroundings, Trust, read_routes

_ALPN = ("http/1.1",)
_MAX_CERTIFICATE_BYTES = 64 * 1024


def routes_of(settings: Settings, locate: Callable[[KeyPath], Location], found: list[Diagnostic]) -> Routes:
    """Read the routes; what is wrong with them goes to `found`."""
    return read_routes(settings.upstream_proxy, Surroundings(locate, _trust, settings.listen.proxy), found)


def _trust(ca_file: Path | None, client_cert: Path | None) -> Trust | str:
    """A context of its own per proxy, as it holds who we are to it."""
    digest = hashlib.sha256()
    try:
        context = TlsProfile(roots=ca_file).upstream_context(_ALPN)
        digest.update(ca_file.read_bytes() if ca_file else b"system")
    except (DependencyError, OSError) as problem:
        return f"ca_file: {problem}"
    if client_cert is not None:
        content = read_private(client_cert, _MAX_CERTIFICATE_BYTES)
        if isinstance(content, Fault):
            return f"client_cert: {client_cert} {content.text}"
        try:
            # An encrypted key would make OpenSSL ask for its password on the terminal.
            context.load_cert_chain(client_cert, password=str)
        except (ssl.SSLError, OSError, ValueError):
            return f"client_cert: {client_cert} holds no certificate with its key, or an encrypted one"
        digest.update(content)
    return Trust(context, digest.hexdigest())
