"""Nothing that looks like a credential passes, whichever field it stands in; everything else passes untouched."""

import re
import time

import pytest
from hypothesis import given, settings

from egress.events import redact
from egress.events.jsonl import JsonLines
from egress.events.mapping import EventIds
from egress.events.redact import MAX_METHOD, MAX_PATH, MAX_TEXT, Redactor
from egress.events.shorthand import Shorthand
from egress.model.address import Host, Origin, Port, Scheme
from egress.model.verdict import Audited, Stage
from tests.unit.events import samples

REDACTOR = Redactor()
SECRET = "s3cr3t-Value/with+signs=="
KNOWN = Redactor([re.compile(re.escape(SECRET))])
STABLE = "openshell:resolve:env:s" + "0af1" * 16 + "_API_TOKEN"


@pytest.mark.parametrize("name", samples.KINDS)
def test_harmless_events_are_equal_afterwards(name):
    event = samples.KINDS[name]
    assert REDACTOR.clean(event) == event


def test_a_harmless_exchange_is_the_same_object():
    event = samples.exchange()
    assert REDACTOR.clean(event) is event


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("/v1/openshell:resolve:env:API_TOKEN/x", "/v1/[CREDENTIAL]/x"),
        ("/v1/openshell:resolve:env:v123_API_TOKEN", "/v1/[CREDENTIAL]"),
        (f"/v1/{STABLE}/x", "/v1/[CREDENTIAL]/x"),
        ("/v1/sk-OPENSHELL-RESOLVE-ENV-API_TOKEN/x", "/v1/[CREDENTIAL]/x"),
        ("/v1/xoxb-1.a~OPENSHELL-RESOLVE-ENV-v5_KEY", "/v1/[CREDENTIAL]"),
        ("/bot:OPENSHELL-RESOLVE-ENV-KEY/x", "/bot:[CREDENTIAL]/x"),
        ("/a%2Fopenshell%3Aresolve%3Aenv%3AKEY", "[CREDENTIAL]"),
        ("/x?token=1", "/x"),
        ("/x/https://user:secret@host/y", "/x/https://[CREDENTIAL]@host/y"),
        ("/x/https:/user:secret@host/y", "/x/https:/[CREDENTIAL]@host/y"),
        ("/resolve/%20me", "/resolve/%20me"),
        ("/@scope/package", "/@scope/package"),
    ],
)
def test_paths(path, clean):
    assert REDACTOR.clean(samples.exchange(path=path)).path == clean
    assert REDACTOR.clean(samples.connection(path=path)).path == clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("no rule for https://u:p@host/x?key=1 here", "no rule for https://[CREDENTIAL]@host/x?[redacted] here"),
        ("did you mean api.example?", "did you mean api.example?"),
        ("token openshell:resolve:env:KEY was refused", "token [CREDENTIAL] was refused"),
        ("x" * 5000, "x" * MAX_TEXT + "..."),
    ],
)
def test_reasons_and_other_texts(text, clean):
    refused = REDACTOR.clean(samples.exchange(samples.denial(reason=text, log_reason=text)))
    assert (refused.verdict.reason, refused.verdict.log_reason) == (clean, clean)
    audited = REDACTOR.clean(samples.connection(Audited(samples.denial(reason=text, stage=Stage.L7))))
    assert audited.verdict.denial.reason == clean
    assert REDACTOR.clean(samples.state(detail=text, extra=(("source", text),))) == samples.state(
        detail=clean, extra=(("source", clean),)
    )
    assert REDACTOR.clean(samples.finding(title=text, evidence=(("a", text),))) == samples.finding(
        title=clean, evidence=(("a", clean),)
    )


def test_an_operation_may_hold_a_secret():
    denial = samples.denial(stage=Stage.L7, operation=f"tools/call {SECRET}")
    for verdict in (denial, Audited(denial)):
        clean = KNOWN.clean(samples.exchange(verdict)).verdict
        said = clean.denial if isinstance(clean, Audited) else clean
        assert said.operation == "tools/call [CREDENTIAL]"


def test_what_a_client_may_make_long_is_cut():
    found = REDACTOR.clean(samples.exchange(method="M" * 9000, path="/" + "p" * 9000))
    assert (len(found.method), len(found.path)) == (MAX_METHOD, MAX_PATH)
    assert len(REDACTOR.clean(samples.connection(method="M" * 9000)).method) == MAX_METHOD


def test_no_half_of_a_secret_stays_at_a_cut():
    long = "x" * (MAX_TEXT - 5) + SECRET
    assert SECRET[:5] not in KNOWN.clean(samples.state(detail=long)).detail
    path = "/" + "p" * (MAX_PATH - 6) + SECRET
    assert SECRET[:5] not in KNOWN.clean(samples.exchange(path=path)).path


def test_a_method_may_be_a_secret():
    redactor = Redactor([re.compile("KEY-[0-9a-f]{60}")])
    assert redactor.clean(samples.exchange(method="KEY-" + "0f" * 30)).method == "[CREDENTIAL]"
    assert redactor.clean(samples.connection(method="OPENSHELL-RESOLVE-ENV-KEY")).method == "[CREDENTIAL]"


def test_contexts_are_cleaned_once_and_stay_one_object():
    redactor = Redactor()
    dirty = samples.context(
        origin=Origin(Scheme.HTTPS, Host("sk-openshell-resolve-env-key.example", literal=False), Port(443)),
        evidence=samples.evidence("/tmp/openshell:resolve:env:KEY"),
    )
    first = redactor.clean(samples.connection(context=dirty)).context
    second = redactor.clean(samples.exchange(context=dirty)).context
    last = redactor.clean(samples.closed(context=dirty)).context
    assert first is second is last
    assert first.origin.host.name == "[CREDENTIAL]"
    assert first.evidence.executable == "/tmp/[CREDENTIAL]"
    assert redactor._replaced == {}
    assert redactor.clean(samples.finding(context=dirty)).context.origin.host.name == "[CREDENTIAL]"


def test_the_memo_of_contexts_is_bounded(monkeypatch):
    monkeypatch.setattr(redact, "MEMO", 8)
    redactor = Redactor()
    for _ in range(20):
        redactor.clean(samples.exchange(context=samples.context(evidence=samples.evidence("/tmp/a?b"))))
    assert len(redactor._replaced) == 8


@settings(max_examples=150, deadline=None)
@given(samples.events)
def test_known_secrets_and_placeholders_reach_no_line(event):
    """Whatever text an event has, with a secret in every place that a peer or a file name can fill."""
    lines = [JsonLines(samples.SETTINGS, EventIds()).render, Shorthand().render]
    for text in (SECRET, "openshell:resolve:env:v7_API_TOKEN"):
        for planted in planted_events(text):
            clean = KNOWN.clean(planted)
            for render in lines:
                line = render((1, clean)).decode()
                assert SECRET not in line
                assert "API_TOKEN" not in line
    for render in lines:
        render((1, KNOWN.clean(event)))


def planted_events(text):
    dirty = samples.context(evidence=samples.evidence(f"/tmp/{text}"))
    refusal = samples.denial(reason=f"no {text}", log_reason=f"no {text} at all")
    yield samples.exchange(path=f"/a/{text}/b", context=dirty)
    yield samples.exchange(refusal, path=f"/{text}")
    yield samples.exchange(Audited(refusal))
    yield samples.connection(refusal, context=dirty, method="GET", path=f"/{text}")
    yield samples.closed(context=dirty)
    yield samples.finding(context=dirty, title=text, evidence=(("x", text),))
    yield samples.state(detail=text, extra=(("source", text),))


@pytest.mark.parametrize(
    "path", ["/" + "a" * 4000 + "%", "/" + "openshell-resolve-" * 220, "/" + ":/" * 2000, "?" * 4000]
)
def test_hostile_paths_are_cleaned_in_linear_time(path):
    event = samples.exchange(path=path)
    start = time.process_time()
    for _ in range(10):
        REDACTOR.clean(event)
    assert time.process_time() - start < 0.05
