"""The addon mitmdump runs with: one allowed host at a fixed address, one swapped credential, one added header."""

from mitmproxy import http
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

HOST = "bench.test"


def server_connect(data: ServerConnectionHookData) -> None:
    if data.server.address and data.server.address[0] == HOST:
        data.server.address = ("127.0.0.1", data.server.address[1])


def requestheaders(flow: http.HTTPFlow) -> None:
    if flow.request.pretty_host != HOST:
        flow.response = http.Response.make(403, b"denied")
        return
    if flow.request.headers.get("authorization") == "Bearer placeholder-token":
        flow.request.headers["authorization"] = "Bearer real-secret"
    flow.request.headers["x-injected"] = "1"
