"""What providers place by themselves."""

import base64
from dataclasses import replace

import pytest

from egress.credentials.rewrite import Failure, inject
from egress.credentials.snapshot import Credential, Fault, Placement, Resolver
from egress.model.message import FieldLine, RequestHead
from egress.model.secret import Secret
from tests.unit.credentials.samples import ELSEWHERE, HERE, NOW, SCOPE, head, snapshot


def resolver(placement: Placement, text: str = "va/l ue", expires: float | None = None) -> Resolver:
    made = snapshot(Credential("desk", "KEY", Secret(text), SCOPE, expires, placement=placement))
    view = made.resolver(HERE, NOW)
    assert view is not None
    return view


def placed(placement: Placement, target: str, *fields: FieldLine, text: str = "va/l ue") -> RequestHead:
    view = resolver(placement, text)
    after = inject(head(target, *fields), view)
    assert isinstance(after, RequestHead)
    return after


@pytest.mark.parametrize("when", ["always", "if_absent"])
@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (Placement("bearer"), (b"Authorization", b"Bearer va/l ue")),
        (Placement("header", "X-Key"), (b"X-Key", b"va/l ue")),
        (Placement("basic", username="me"), (b"Authorization", b"Basic " + base64.b64encode(b"me:va/l ue"))),
        (Placement("basic"), (b"Authorization", b"Basic " + base64.b64encode(b"va/l ue"))),
    ],
)
def test_fields(placement: Placement, expected: FieldLine, when: str) -> None:
    after = placed(replace(placement, when=when), "/a?b=c", (b"Accept", b"*/*"))
    assert after.fields == ((b"Accept", b"*/*"), expected)
    assert after.target == "/a?b=c"


def test_always_replaces_what_the_workload_wrote_and_if_absent_leaves_it() -> None:
    mine = ((b"x-KEY", b"mine"), (b"Accept", b"*/*"), (b"X-Key", b"again"))
    assert placed(Placement("header", "X-Key", when="always"), "/", *mine).fields == (
        (b"Accept", b"*/*"), (b"X-Key", b"va/l ue"),
    )  # fmt: skip
    assert placed(Placement("header", "X-Key", when="if_absent"), "/", *mine).fields == mine


@pytest.mark.parametrize(
    ("when", "target", "expected"),
    [
        ("always", "/a", "/a?key=va%2Fl%20ue"),
        ("always", "/a?", "/a?key=va%2Fl%20ue"),
        ("always", "/a?b=%7e&key=mine&c", "/a?b=%7e&c&key=va%2Fl%20ue"),
        ("always", "/a?%6bey=mine&key&keys=1", "/a?keys=1&key=va%2Fl%20ue"),
        ("if_absent", "/a?b=c", "/a?b=c&key=va%2Fl%20ue"),
        ("if_absent", "/a?key=mine", "/a?key=mine"),
        ("if_absent", "/a?%6bey=mine", "/a?%6bey=mine"),
    ],
)
def test_parameters(when: str, target: str, expected: str) -> None:
    assert placed(Placement("query", query="key", when=when), target).target == expected


def test_paths() -> None:
    placement = Placement("path", path_template="/bot{credential}", when="always")
    assert placed(placement, "/send?a", text="1:a&b c").target == "/bot1:a&b%20c/send?a"
    before = replace(head("/bot1/send"), raw_path="//bot1/send")
    after = inject(before, resolver(replace(placement, when="if_absent")))
    assert after is before
    after = inject(before, resolver(placement, "2"))
    assert isinstance(after, RequestHead)
    assert (after.path, after.raw_path) == ("/bot2/bot1/send", None)


@pytest.mark.parametrize("text", ["a/b", "a\\b", "..", "a?b", "a#b", "."])
def test_values_that_do_not_fit_into_a_path(text: str) -> None:
    view = resolver(Placement("path", path_template="/{credential}", when="always"), text)
    failure = inject(head("/send"), view)
    assert failure == Failure(Fault.UNAVAILABLE, "path")


@pytest.mark.parametrize(("text", "expires"), [("", None), ("a\r\nb", None), ("good", NOW)])
def test_without_a_usable_value_nothing_is_sent(text: str, expires: float | None) -> None:
    view = resolver(Placement("bearer", when="always"), text, expires)
    assert inject(head("/"), view) == Failure(Fault.UNAVAILABLE, "injection")


def test_elsewhere_nothing_is_placed() -> None:
    made = snapshot(Credential("desk", "KEY", Secret("text"), SCOPE, placement=Placement("bearer", when="always")))
    view = made.resolver(ELSEWHERE, NOW)
    assert view is not None
    before = head("/")
    assert inject(before, view) is before
    assert view.used == []


def test_what_was_placed_counts_as_used() -> None:
    view = resolver(Placement("bearer", when="always"))
    inject(head("/"), view)
    assert [one.key for one in view.used] == ["KEY"]
