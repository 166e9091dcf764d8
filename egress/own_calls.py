"""Puts together the client of the proxy's own calls: names, address checks, the way out, trust."""

import ipaddress
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from egress.destination.validate import DestinationSettings, OwnListeners, Plan, plan, validate
from egress.engine.carried import OriginStream
from egress.model.address import Origin
from egress.model.destination import AddressRule, DialMode, PinnedDestination
from egress.model.intent import Ingress
from egress.model.verdict import Denial
from egress.pipeline.ports import Names
from egress.sdk.http import HttpFailure, TlsOptions
from egress.tls.profile import TlsProfile
from egress.upstream.chain import ChainDialer
from egress.upstream.client import OwnClient

_DECLARED = AddressRule(allowed=None, declared=True, control_plane_port=True)
_LOOPBACK = ipaddress.ip_address("127.0.0.1")
_NO_OPTIONS = TlsOptions()


class Reach(Protocol):
    """What says where a call may go; `Services` do."""

    @property
    def names(self) -> Names: ...
    @property
    def destinations(self) -> DestinationSettings: ...
    @property
    def own_listeners(self) -> Callable[[], OwnListeners]: ...


def own_client(
    services: Callable[[], Reach], dialer: ChainDialer[OriginStream], profile: Callable[[], TlsProfile]
) -> OwnClient:
    """`services` and `profile` give what is current."""

    async def connect(origin: Origin) -> OriginStream | Denial:
        pinned = await pin(origin, services())
        return pinned if isinstance(pinned, Denial) else await dialer.dial(pinned, Ingress.CONNECT)

    def trust(options: TlsOptions) -> ssl.SSLContext:
        if options == _NO_OPTIONS:
            return profile().upstream_context(("http/1.1",))
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


async def pin(origin: Origin, services: Reach) -> PinnedDestination | Denial:
    """What an operator's file names is declared; loopback is only what it spells so (spec of destinations, 7), and
    link-local addresses are nobody's, whatever an alias says."""
    planned = _plan(origin, services.destinations)
    if isinstance(planned, Denial):
        return planned
    answers = await services.names.resolve(replace(planned, ours=True))
    return answers if isinstance(answers, Denial) else validate(planned, answers, services.own_listeners())


def _plan(origin: Origin, settings: DestinationSettings) -> Plan | Denial:
    literal = origin.host.address
    if origin.host.name == "localhost" or (literal is not None and literal.is_loopback):
        return Plan(origin, DialMode.ALIAS, declared=True, known=(literal or _LOOPBACK,))
    aliases = {name: address for name, address in settings.aliases.items() if not address.is_link_local}
    return plan(_DECLARED, origin, replace(settings, aliases=aliases, host_gateway=None, trust_declared_hosts=True))
