"""Puts together the client of the proxy's own calls: names, address checks, the way out, trust."""

import ipaddress
import ssl
from collections.abc import Callable

from egress.destination.validate import plan, validate
from egress.engine.carried import OriginStream
from egress.model.address import Origin
from egress.model.destination import AddressRule, DialMode, PinnedDestination
from egress.model.intent import Ingress
from egress.model.verdict import Denial
from egress.pipeline.ports import Services
from egress.sdk.http import HttpFailure, TlsOptions
from egress.tls.profile import TlsProfile
from egress.upstream.chain import ChainDialer
from egress.upstream.client import OwnClient

_DECLARED = AddressRule(allowed=None, declared=True, control_plane_port=True)
_LOOPBACK = ipaddress.ip_address("127.0.0.1")


def own_client(
    services: Callable[[], Services], dialer: ChainDialer[OriginStream], profile: Callable[[], TlsProfile]
) -> OwnClient:
    """`services` and `profile` give what is current."""

    async def connect(origin: Origin) -> OriginStream | Denial:
        pinned = await _pin(origin, services())
        return pinned if isinstance(pinned, Denial) else await dialer.dial(pinned, Ingress.CONNECT)

    def trust(options: TlsOptions) -> ssl.SSLContext:
        context = profile().new_own_context()
        try:
            if options.ca_file is not None:
                context.load_verify_locations(cafile=options.ca_file)
            if options.client_cert is not None:
                context.load_cert_chain(options.client_cert, options.client_key)
        except (OSError, ssl.SSLError):
            raise HttpFailure("the TLS files cannot be read") from None
        return context

    return OwnClient(connect, trust)


async def _pin(origin: Origin, services: Services) -> PinnedDestination | Denial:
    """What an operator's file names is declared; loopback is only what it spells so (spec of destinations, 7)."""
    literal = origin.host.address
    if origin.host.name == "localhost" or (literal is not None and literal.is_loopback):
        return PinnedDestination(origin, (literal or _LOOPBACK,), DialMode.ALIAS)
    planned = plan(_DECLARED, origin, services.destinations)
    if isinstance(planned, Denial):
        return planned
    answers = await services.names.resolve(planned)
    return answers if isinstance(answers, Denial) else validate(planned, answers, services.own_listeners())
