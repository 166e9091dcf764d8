"""The places of mitmproxy and hyper-h2 that the mitm lane relies on: a release that moves one fails here first."""

from dataclasses import dataclass
from typing import Any

import h2.connection
import h2.events
import h2.exceptions
import mitmproxy.version
import pytest
from hyperframe.frame import GoAwayFrame
from mitmproxy.proxy.commands import Command, SendData
from mitmproxy.proxy.events import DataReceived, Start
from mitmproxy.proxy.layers.http import DropStream, SendHttp
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import RequestData, RequestHeaders

from egress.engine.mitm.http2 import CONNECTION_WINDOW, STREAM_WINDOW, Framing
from egress.engine.mitm.http_layer import LaneLayer
from egress.engine.mitm.messages import LaneContext, Site, Wire

FIELDS = [(":method", "POST"), (":scheme", "https"), (":authority", "a.test"), (":path", "/")]


@dataclass
class Question(Command):
    """A command that mitmproxy does not know."""


class Recorder:
    """A connection or a stream that notes what it is told and answers with fixed commands."""

    stream_id = 1

    def __init__(self, *answers: Any) -> None:
        self.told: list[Any] = []
        self.answers = answers

    def handle_event(self, event: Any) -> Any:
        self.told.append(event)
        return self.answers


@dataclass
class Bench:
    layer: LaneLayer
    client: Wire


class SocketlessStream:
    received = 0
    congested = False


@pytest.fixture
def bench() -> Bench:
    client = Wire(SocketlessStream())  # type: ignore[arg-type]
    context = LaneContext(client)
    site = Site(None, client, True, lambda: 0.0, lambda _: None)  # type: ignore[arg-type]
    return Bench(LaneLayer(context, site), client)


def test_the_pinned_minor_version() -> None:
    assert mitmproxy.version.VERSION.startswith("12.3.")


def test_the_clients_connection_is_the_one_we_put_there(bench: Bench) -> None:
    layer = bench.client.layer = bench.layer.connections[bench.client] = Recorder()
    list(bench.layer.handle_event(Start()))
    data = DataReceived(bench.client, b"x")  # type: ignore[arg-type]
    list(bench.layer.handle_event(data))
    assert [type(event) for event in layer.told] == [Start, DataReceived]


def test_a_request_head_makes_a_stream_of_ours(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Recorder()
    monkeypatch.setattr(bench.layer, "make_stream", lambda number: bench.layer.streams.update({number: stream}) or ())
    head, body = RequestHeaders(1, None, False), RequestData(1, b"x")  # type: ignore[arg-type]
    bench.layer.connections[bench.client] = Recorder(ReceiveHttp(head), ReceiveHttp(body))
    list(bench.layer.handle_event(DataReceived(bench.client, b"x")))  # type: ignore[arg-type]
    assert stream.told == [head, body]


def test_what_a_stream_sends_reaches_the_connection_it_names(bench: Bench) -> None:
    origin = Wire(SocketlessStream())  # type: ignore[arg-type]
    there = Recorder(SendData(origin, b"out"))  # type: ignore[arg-type]
    event = RequestData(1, b"x")
    bench.layer.connections[origin] = there
    bench.layer.streams[1] = Recorder(SendHttp(event, origin))  # type: ignore[arg-type]
    sent = list(bench.layer.handle_event(event))
    assert there.told == [event]
    assert [command.data for command in sent if isinstance(command, SendData)] == [b"out"]


def test_commands_of_ours_come_out_untouched(bench: Bench) -> None:
    question = Question()
    bench.layer.streams[1] = Recorder(question)
    assert list(bench.layer.handle_event(RequestData(1, b""))) == [question]


def test_a_dropped_stream_is_forgotten(bench: Bench) -> None:
    bench.layer.streams[1] = Recorder(DropStream(1))
    assert list(bench.layer.handle_event(RequestData(1, b""))) == []
    assert bench.layer.streams == {}


# --- hyper-h2


def pair() -> tuple[h2.connection.H2Connection, Framing]:
    """A client and our side of a connection, greetings exchanged."""
    client, server = h2.connection.H2Connection(), Framing(client_side=False)
    client.initiate_connection()
    server.open()
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    return client, server


def test_our_settings_are_the_first_that_are_announced() -> None:
    client, _ = pair()
    assert client.remote_settings.max_concurrent_streams == 100
    assert client.remote_settings.initial_window_size == STREAM_WINDOW
    assert client.remote_settings.max_header_list_size == 16 * 1024
    assert client.outbound_flow_control_window == CONNECTION_WINDOW


def test_origins_may_not_push() -> None:
    ours = Framing(client_side=True)
    ours.open()
    origin = Framing(client_side=False)
    origin.open()
    origin.receive_data(ours.data_to_send())
    assert origin.remote_settings.enable_push == 0


def test_windows_open_only_for_what_was_consumed() -> None:
    client, server = pair()
    client.send_headers(1, FIELDS)
    for _ in range(STREAM_WINDOW // 16384):
        client.send_data(1, bytes(16384))
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    assert client.local_flow_control_window(1) == 0
    server.acknowledge_received_data(STREAM_WINDOW, 1)
    client.receive_data(server.data_to_send())
    assert client.local_flow_control_window(1) == STREAM_WINDOW


@pytest.mark.parametrize("length", ["5", "0", "x", "-1"])
def test_a_wrong_length_is_not_the_connections_fault(length: str) -> None:
    client, server = pair()
    client.config.validate_outbound_headers = False
    client.send_headers(1, [*FIELDS, ("content-length", length)])
    client.send_data(1, b"abc", end_stream=True)
    events = server.receive_data(client.data_to_send())
    assert any(isinstance(event, h2.events.StreamEnded) for event in events)


def test_fields_that_hyper_h2_would_end_the_connection_for_reach_us() -> None:
    client, server = pair()
    client.config.validate_outbound_headers = client.config.normalize_outbound_headers = False
    client.send_headers(1, [("X-Upper", "1"), *FIELDS], end_stream=True)
    events = server.receive_data(client.data_to_send())
    assert any(isinstance(event, h2.events.RequestReceived) for event in events)


def test_streams_outlive_a_goaway_that_comes() -> None:
    client, server = pair()
    client.send_headers(1, FIELDS, end_stream=True)
    frame = GoAwayFrame(0)
    frame.last_stream_id = 0
    events = server.receive_data(client.data_to_send() + frame.serialize())
    assert any(isinstance(event, h2.events.ConnectionTerminated) for event in events)
    server.send_headers(1, [(":status", "200")], end_stream=True)
    assert any(isinstance(event, h2.events.StreamEnded) for event in client.receive_data(server.data_to_send()))


def test_streams_outlive_a_goaway_that_is_sent() -> None:
    client, server = pair()
    client.send_headers(1, FIELDS, end_stream=True)
    server.receive_data(client.data_to_send())
    server.announce_end()
    server.send_headers(1, [(":status", "200")], end_stream=True)
    sent = server.data_to_send()
    assert sent[3] == 7
    assert sent[9:13] == b"\x00\x00\x00\x01"


def test_a_frame_that_announces_too_much_is_not_awaited() -> None:
    _, server = pair()
    with pytest.raises(h2.exceptions.FrameTooLargeError):
        server.receive_data(b"\x00\x40\x01\x00\x00\x00\x00\x00\x01")
    assert server.data_to_send()[3] == 7
