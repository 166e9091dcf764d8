"""A gRPC server with one service of raw bytes, `test.Echo`: unary and streaming in every direction."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped]

from tests.support.authorities import OriginAuthority

SERVICE = "test.Echo"


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
    """`Say` answers its message, `Count` streams bytes up to it, `Gather` joins a stream, `Chat` answers each one."""

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return {
            f"/{SERVICE}/Say": grpc.unary_unary_rpc_method_handler(lambda message, _: message),
            f"/{SERVICE}/Empty": grpc.unary_unary_rpc_method_handler(lambda _message, _: b""),
            f"/{SERVICE}/Count": grpc.unary_stream_rpc_method_handler(self._count),
            f"/{SERVICE}/Gather": grpc.stream_unary_rpc_method_handler(lambda stream, _: b"".join(stream)),
            f"/{SERVICE}/Chat": grpc.stream_stream_rpc_method_handler(lambda stream, _: iter(stream)),
            f"/{SERVICE}/Fail": grpc.unary_unary_rpc_method_handler(self._fail),
        }.get(details.method)

    @staticmethod
    def _count(message: bytes, _context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from (str(number).encode() for number in range(int(message)))

    @staticmethod
    def _fail(_message: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no more")
        return b""


class GrpcOrigin:
    """Listens with TLS for `name` on an ephemeral port of loopback."""

    def __init__(self, authority: OriginAuthority, name: str) -> None:
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8))
        self._server.add_generic_rpc_handlers((Echo(),))
        credentials = grpc.ssl_server_credentials([authority.key_pair(name)])
        self.port: int = self._server.add_secure_port("127.0.0.1:0", credentials)
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=0).wait(5)
