"""The SOCKS5 handshake (RFC 1928, user and password of RFC 1929): exact lengths, nothing read beyond them."""

from egress.model.errors import PeerError, Side
from egress.model.secret import Secret
from egress.model.verdict import ReasonCode
from egress.upstream.connect_client import Duplex
from egress.upstream.failure import Failure, Meaning, malformed, refused
from egress.upstream.plan import Place

_NO_AUTH, _PASSWORD, _NONE_ACCEPTABLE = 0, 2, 0xFF
_IPV4, _NAME, _IPV6 = 1, 3, 4
_ADDRESS_BYTES = {_IPV4: 4, _IPV6: 16}
_REPLIES = {
    1: (502, "failed"),
    2: (403, "does not allow the destination"),
    3: (502, "finds the network unreachable"),
    4: (502, "finds the host unreachable"),
    5: (502, "was refused by the destination"),
    6: (504, "gave up on the destination"),
    7: (501, "does not know CONNECT"),
    8: (501, "does not know this kind of address"),
}


async def open_tunnel(stream: Duplex, place: Place, credential: Secret | None) -> Failure | None:
    """Greet, authenticate where asked to, and ask for the place. Whoever calls sets the deadline."""
    try:
        failure = await _authenticate(stream, credential)
        if failure is not None:
            return failure
        stream.write(b"\x05\x01\x00" + _encoded(place))
        return await _read_reply(stream)
    except PeerError:
        return malformed("closed the connection during the SOCKS handshake")


async def _authenticate(stream: Duplex, credential: Secret | None) -> Failure | None:
    methods = bytes((_NO_AUTH,)) if credential is None else bytes((_NO_AUTH, _PASSWORD))
    stream.write(bytes((5, len(methods))) + methods)
    version, method = await _exactly(stream, 2)
    if version != 5:
        return malformed("does not speak SOCKS 5")
    if method == _NONE_ACCEPTABLE:
        text = "asks for a credential" if credential is None else "accepts no user and password"
        return Failure(ReasonCode.PROXY_AUTH_REJECTED, Meaning.REJECTED, text)
    if method not in methods:
        return malformed("chose an authentication that was not offered")
    if method == _NO_AUTH or credential is None:
        return None
    user, _, password = (part.encode() for part in credential.reveal().partition(":"))
    stream.write(b"\x01%b%b%b%b" % (bytes((len(user),)), user, bytes((len(password),)), password))
    _, status = await _exactly(stream, 2)
    if status != 0:
        return Failure(ReasonCode.PROXY_AUTH_REJECTED, Meaning.REJECTED, "rejected our credential")
    return None


def _encoded(place: Place) -> bytes:
    address = place.host.address
    if address is None:
        name = place.host.name.encode("ascii")
        kind, value = _NAME, bytes((len(name),)) + name
    else:
        kind, value = (_IPV4 if address.version == 4 else _IPV6), address.packed
    return bytes((kind,)) + value + place.port.to_bytes(2)


async def _read_reply(stream: Duplex) -> Failure | None:
    version, reply, _, kind = await _exactly(stream, 4)
    if version != 5 or kind not in (_IPV4, _NAME, _IPV6):
        return malformed("sent a SOCKS reply that cannot be read")
    if reply != 0:
        status, text = _REPLIES.get(reply, (500, f"answered SOCKS code {reply}"))
        return refused(status, text)
    length = (await _exactly(stream, 1))[0] if kind == _NAME else _ADDRESS_BYTES[kind]
    await _exactly(stream, length + 2)
    return None


async def _exactly(stream: Duplex, size: int) -> bytes:
    while len(stream.buffer) < size:
        if not await stream.more(None, "upstream_proxy.handshake_timeout"):
            raise PeerError(Side.UPSTREAM, "proxy closed the connection")
    return stream.take(size)
