"""What of an extension offer goes on to the origin, and which answers of an origin are sound."""

from typing import Any

import pytest

from egress.http.head import interpret_response
from egress.http.lexer import lex_response
from egress.model.message import FieldLine, Malformed, ResponseHead
from egress.model.verdict import DenialCode
from egress.websocket.handshake import Deflate, Handshake, check_answer, offered_fields, read_handshake
from tests.support.websockets import ACCEPT, KEY, switching


def asked(*offers: str, protocols: tuple[str, ...] = ()) -> tuple[FieldLine, ...]:
    """Fields of an upgrade request, one extension field per offer."""
    return (
        (b"Sec-WebSocket-Key", KEY.encode()),
        (b"Sec-WebSocket-Version", b"13"),
        *((b"Sec-WebSocket-Protocol", protocol.encode()) for protocol in protocols),
        *((b"sec-websocket-extensions", offer.encode()) for offer in offers),
        (b"X-Other", b"1"),
    )


def offer(*offers: str) -> str | None:
    return read_handshake(asked(*offers)).offer


class TestOffer:
    @pytest.mark.parametrize(
        ("offered", "kept"),
        [
            ("permessage-deflate", "permessage-deflate"),
            ("permessage-deflate; client_max_window_bits", "permessage-deflate; client_max_window_bits"),
            ("permessage-deflate;client_max_window_bits=12", "permessage-deflate; client_max_window_bits=12"),
            ('permessage-deflate; server_max_window_bits="10"', "permessage-deflate; server_max_window_bits=10"),
            (
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
            ),
            ("x-unknown, permessage-deflate", "permessage-deflate"),
            ("permessage-deflate; server_max_window_bits=8, permessage-deflate", "permessage-deflate"),
            ("permessage-deflate; mystery=1, permessage-deflate; client_max_window_bits=9",
             "permessage-deflate; client_max_window_bits=9"),
            ("permessage-deflate; client_no_context_takeover, permessage-deflate",
             "permessage-deflate; client_no_context_takeover"),
        ],
    )  # fmt: skip
    def test_kept(self, offered: str, kept: str) -> None:
        """The first offer that we can keep the terms of goes on, alone."""
        assert offer(offered) == kept

    @pytest.mark.parametrize(
        "offered",
        [
            "",
            "x-webkit-deflate-frame",
            "permessage-deflate2",
            "permessage-deflate; mystery",
            "permessage-deflate; client_no_context_takeover=1",
            "permessage-deflate; server_no_context_takeover=true",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=8",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; client_max_window_bits=010",
            "permessage-deflate; client_max_window_bits=",
            "permessage-deflate; client_max_window_bits; client_max_window_bits",
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
        ],
    )
    def test_dropped(self, offered: str) -> None:
        assert offer(offered) is None

    def test_several_fields_are_one_list(self) -> None:
        assert offer("x-one", "permessage-deflate; client_max_window_bits") == (
            "permessage-deflate; client_max_window_bits"
        )

    def test_fields_that_go_on(self) -> None:
        fields = asked("x-one, permessage-deflate", "x-two")
        assert offered_fields(fields, read_handshake(fields)) == (
            *fields[:2], (b"X-Other", b"1"), (b"Sec-WebSocket-Extensions", b"permessage-deflate")
        )  # fmt: skip

    def test_fields_without_an_offer(self) -> None:
        fields = asked("x-one")
        assert offered_fields(fields, read_handshake(fields)) == (*fields[:2], (b"X-Other", b"1"))

    def test_subprotocols(self) -> None:
        assert read_handshake(asked(protocols=("chat, superchat", "soap"))).subprotocols == (
            b"chat", b"superchat", b"soap"
        )  # fmt: skip


FULL = (
    "permessage-deflate; server_no_context_takeover; client_no_context_takeover; "
    "server_max_window_bits=12; client_max_window_bits"
)


def answer(
    *extensions: str, offered: str | None = FULL, accept: tuple[str, ...] = (ACCEPT,), protocols: tuple[str, ...] = ()
) -> Deflate | Malformed | None:
    fields = (
        *((b"Sec-WebSocket-Accept", value.encode()) for value in accept),
        *((b"Sec-WebSocket-Protocol", value.encode()) for value in protocols),
        *((b"Sec-WebSocket-Extensions", value.encode()) for value in extensions),
    )
    return check_answer(Handshake(KEY.encode(), (b"chat", b"superchat"), offered), fields)


class TestAnswer:
    def test_plain(self) -> None:
        assert answer() is None

    def test_subprotocol(self) -> None:
        assert answer(protocols=("superchat",)) is None

    @pytest.mark.parametrize(
        ("said", "terms"),
        [
            ("permessage-deflate", Deflate()),
            ("permessage-deflate; client_no_context_takeover", Deflate(client_takeover=False)),
            ("permessage-deflate; server_no_context_takeover", Deflate(server_takeover=False)),
            ("permessage-deflate; server_max_window_bits=10", Deflate(server_bits=10)),
            ("permessage-deflate; client_max_window_bits=9", Deflate(client_bits=9)),
        ],
    )
    def test_terms(self, said: str, terms: Deflate) -> None:
        assert answer(said, offered="permessage-deflate; client_max_window_bits") == terms

    def test_all_terms(self) -> None:
        said = (
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover; "
            "server_max_window_bits=11; client_max_window_bits=10"
        )
        assert answer(said) == Deflate(False, False, 10, 11)

    @pytest.mark.parametrize(
        "bad",
        [
            pytest.param({"accept": ()}, id="no accept"),
            pytest.param({"accept": ("c3VycHJpc2U=",)}, id="wrong accept"),
            pytest.param({"accept": (ACCEPT, ACCEPT)}, id="accept twice"),
            pytest.param({"accept": (ACCEPT.lower(),)}, id="accept in another case"),
            pytest.param({"protocols": ("soap",)}, id="subprotocol that was not offered"),
            pytest.param({"protocols": ("chat", "superchat")}, id="two subprotocols"),
            pytest.param({"protocols": ("chat, superchat",)}, id="list of subprotocols"),
            pytest.param({"protocols": ("",)}, id="empty subprotocol"),
        ],
    )
    def test_bad_answer(self, bad: dict[str, Any]) -> None:
        assert code_of(answer(**bad)) is DenialCode.UPSTREAM_PROTOCOL_ERROR

    @pytest.mark.parametrize(
        "said",
        [
            "",
            "x-other",
            "permessage-deflate, permessage-deflate",
            "permessage-deflate; mystery; server_no_context_takeover",
            "permessage-deflate",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
            "permessage-deflate; server_no_context_takeover; server_max_window_bits=13",
            "permessage-deflate; server_no_context_takeover; server_max_window_bits=8",
            "permessage-deflate; server_no_context_takeover; server_max_window_bits",
            "permessage-deflate; server_no_context_takeover; client_max_window_bits",
            "permessage-deflate; server_no_context_takeover; client_max_window_bits=16",
        ],
    )
    def test_bad_extension(self, said: str) -> None:
        assert code_of(answer(said)) is DenialCode.UPSTREAM_PROTOCOL_ERROR

    def test_two_extension_fields(self) -> None:
        said = "permessage-deflate; server_no_context_takeover"
        assert code_of(answer(said, said)) is DenialCode.UPSTREAM_PROTOCOL_ERROR

    @pytest.mark.parametrize(
        ("offered", "said"),
        [
            (None, "permessage-deflate"),
            ("permessage-deflate", "permessage-deflate; client_max_window_bits=10"),
        ],
    )
    def test_what_was_not_offered(self, offered: str | None, said: str) -> None:
        assert code_of(answer(said, offered=offered)) is DenialCode.UPSTREAM_PROTOCOL_ERROR

    def test_server_limits_itself_unasked(self) -> None:
        """RFC 7692 section 7.1.2.1 allows it."""
        said = "permessage-deflate; server_max_window_bits=10; server_no_context_takeover"
        assert answer(said, offered="permessage-deflate") == Deflate(server_takeover=False, server_bits=10)


def code_of(found: Deflate | Malformed | None) -> DenialCode | None:
    return found.code if isinstance(found, Malformed) else None


class TestSwitching:
    """The fields that a 101 must carry besides its key (RFC 6455 section 4.1)."""

    @staticmethod
    def read(**fields: str | list[str]) -> ResponseHead | Malformed:
        wire = lex_response(switching(**fields))
        assert not isinstance(wire, Malformed)
        return interpret_response(wire, "GET")

    @pytest.mark.parametrize("fields", [{}, {"connection": "keep-alive, Upgrade"}, {"upgrade": "WebSocket"}])
    def test_good(self, fields: dict[str, str]) -> None:
        assert isinstance(self.read(**fields), ResponseHead)

    @pytest.mark.parametrize(
        "fields",
        [
            {"connection": "keep-alive"}, {"connection": []}, {"upgrade": []}, {"upgrade": "h2c"},
            {"upgrade": "websocket, h2c"}, {"upgrade": ["websocket", "websocket"]},
        ],
    )  # fmt: skip
    def test_bad(self, fields: dict[str, str | list[str]]) -> None:
        found = self.read(**fields)
        assert isinstance(found, Malformed)
        assert found.code is DenialCode.UPSTREAM_PROTOCOL_ERROR
