"""A TLS handshake between two contexts in memory."""

import ssl


def shake(
    client: ssl.SSLContext, server: ssl.SSLContext, name: str, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after a handshake and one byte each way; raises what the failing end raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name, session=session)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (near, far):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    far.write(b"x")
    near.read(1)  # the session ticket comes before the first byte (TLS 1.3)
    return near, far
