"""Who gets which connection to the origin, and when another is dialled."""

from dataclasses import dataclass
from typing import Any, cast

from egress.engine.mitm.messages import AcquireOrigin, Wire
from egress.engine.mitm.origins import MAX_H2_CONNECTIONS, Demand, Origins
from egress.model.address import Scheme
from egress.model.verdict import Denial, DenialCode, Stage

REFUSED = Denial(Stage.UPSTREAM, DenialCode.UPSTREAM_UNREACHABLE, "no")


@dataclass
class FakeStream:
    alpn: str | None = "h2"
    received: int = 0
    congested: bool = False


@dataclass
class FakeLayer:
    """The two numbers that placing looks at."""

    limit: int
    settled: bool = True
    promised: int = 0

    @property
    def room(self) -> int:
        return self.limit - self.promised


def origins(*, h2: bool = True, scheme: Scheme = Scheme.HTTPS, waiting: int = 0) -> Origins:
    made = Origins(Demand(h2, scheme))
    made.waiting.extend(AcquireOrigin(number, needs_h2=False) for number in range(waiting))
    return made


def stream(alpn: str | None = "h2") -> Any:
    return cast(Any, FakeStream(alpn))


def wire(limit: int, *, settled: bool = True) -> Wire:
    made = Wire(stream(), multiplexed=True)
    made.layer = FakeLayer(limit, settled)
    return made


def test_an_http1_client_takes_one_connection_per_exchange() -> None:
    found = origins(h2=False, waiting=2)
    assert (found.h1, found.alpn, found.dials_wanted()) == (True, ("http/1.1",), 2)
    found.dialling()
    assert found.dials_wanted() == 1


def test_an_http2_client_offers_both_and_dials_once() -> None:
    found = origins(waiting=30)
    assert (found.h1, found.alpn, found.dials_wanted()) == (False, ("h2", "http/1.1"), 1)
    found.dialling()
    assert found.dials_wanted() == 0


def test_an_origin_that_chose_http1_gets_a_connection_per_stream() -> None:
    found = origins(waiting=3)
    found.dialling()
    found.dialled(stream("http/1.1"))
    assert (found.h1, found.dials_wanted()) == (True, 3)


def test_in_clear_the_origin_is_spoken_to_as_the_client_spoke() -> None:
    assert origins(scheme=Scheme.HTTP).is_h2(stream(None))
    assert not origins(h2=False, scheme=Scheme.HTTP).is_h2(stream(None))
    assert not origins().is_h2(stream(None))


def test_streams_are_placed_in_order_and_never_beyond_the_room() -> None:
    found = origins(waiting=5)
    first, second = wire(2), wire(2)
    found.wires += [first, second]
    placed = [(demand.stream_id, taken is first) for demand, taken in found.placed()]
    assert placed == [(0, True), (1, True), (2, False), (3, False)]
    assert [demand.stream_id for demand in found.waiting] == [4]


def test_another_connection_only_once_the_first_said_what_it_takes() -> None:
    found = origins(waiting=5)
    found.wires.append(wire(0, settled=False))
    assert found.dials_wanted() == 0
    found.wires[0].layer.settled = True
    assert found.dials_wanted() == 1


def test_connections_are_bounded() -> None:
    found = origins(waiting=5)
    found.wires += [wire(0) for _ in range(MAX_H2_CONNECTIONS)]
    assert found.dials_wanted() == 0


def test_after_a_dial_in_vain_streams_wait_for_what_there_is() -> None:
    found = origins(waiting=5)
    found.wires.append(wire(0))
    found.dialling()
    found.dialled(REFUSED)
    assert found.dials_wanted() == 0
    found.wires.clear()
    assert found.dials_wanted() == 1


def test_grpc_is_refused_where_the_origin_has_no_http2() -> None:
    found = origins()
    found.waiting += [AcquireOrigin(1, needs_h2=True), AcquireOrigin(3, needs_h2=False)]
    assert list(found.refused()) == []
    found.dialling()
    found.dialled(stream("http/1.1"))
    assert [demand.stream_id for demand in found.refused()] == [1]
    assert [demand.stream_id for demand in found.waiting] == [3]
