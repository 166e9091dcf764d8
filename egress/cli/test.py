"""`egress test`: requests with the answer they must get, asked of a policy offline."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from egress.cli.candidate import prepare_offline
from egress.cli.question import Program, Unanswerable, ask_from_test
from egress.cli.terminal import ExitCode, complain, fail, refuse, show, show_json
from egress.cli.world import ask, world_of
from egress.config.files import read_document
from egress.documents.diagnostic import Diagnostic
from egress.documents.yaml import Document, read
from egress.generation.prepare import Candidate
from egress.model.intent import AgentName
from egress.model.verdict import Denial
from egress.pipeline.answer import Answer, Decision
from egress.pipeline.explain import World
from egress.policy.compile import compile_policy
from egress.policy.compiled import PolicyTest


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test that was run; `got` says what came instead, empty when it passed."""

    test: PolicyTest
    got: str = ""


def test(files: tuple[Path, ...], policy: tuple[Path, ...], config: Path | None, *, as_json: bool) -> ExitCode:
    """Run the tests of the policy and of test files."""
    candidate = prepare_offline(config, policy)
    if not isinstance(candidate, Candidate):
        refuse(candidate)
    tests = tuple(_tests(candidate, files))
    if not tests:
        fail("there are no tests: write `tests:` into the policy, or name a file", ExitCode.INVALID)
    world = world_of(candidate)
    outcomes = [_run(one, world) for one in tests]
    _report(outcomes, as_json=as_json)
    return ExitCode.FAILURE if any(outcome.got for outcome in outcomes) else ExitCode.FINE


def _tests(candidate: Candidate, files: tuple[Path, ...]) -> Iterable[PolicyTest]:
    """Inline tests, each once though several agents share a policy, then those of files."""
    policies = {id(terms.policy): terms.policy for terms in candidate.generation.agents.values()}
    for policy in policies.values():
        if policy is not None:
            yield from policy.tests
    for path in files or candidate.settings.policy.tests:
        yield from _read_tests(path)


def _read_tests(path: Path) -> tuple[PolicyTest, ...]:
    """A test file is read as a policy of tests alone, so both have one grammar."""
    content = read_document(path)
    document = (content,) if isinstance(content, Diagnostic) else read(content, str(path))
    if not isinstance(document, Document):
        refuse(document)
    if isinstance(document.data, dict):
        document = replace(document, data={"version": 1, **document.data})
    compilation = compile_policy([document])
    if compilation.policy is None:
        refuse(compilation.diagnostics)
    complain(compilation.diagnostics)
    return compilation.policy.tests


def _run(test: PolicyTest, world: World) -> Outcome:
    agent = AgentName(test.agent)
    if agent not in world.generation.agents:
        return Outcome(test, f"no agent is called `{agent}`")
    try:
        question = ask_from_test(test.request, agent, Program(test.binary, test.ancestors), test.messages)
    except Unanswerable as error:
        return Outcome(test, str(error))
    answer = ask(question, world)
    return Outcome(test, "" if _as_expected(test, answer) else _described(answer))


def _as_expected(test: PolicyTest, answer: Answer) -> bool:
    if answer.decision != Decision(test.expect):
        return False
    return not test.denial or (answer.denial is not None and test.denial in _words(answer.denial))


def _words(denial: Denial) -> tuple[str, ...]:
    """What a test may call a denial."""
    return (denial.code.word, denial.reason_code.value) if denial.reason_code else (denial.code.word,)


def _described(answer: Answer) -> str:
    words = f" {'/'.join(_words(answer.denial))}" if answer.denial else ""
    return f"{answer.decision}{words}: {answer.trace[-1].detail}"


def _report(outcomes: list[Outcome], *, as_json: bool) -> None:
    failed = sum(bool(outcome.got) for outcome in outcomes)
    if as_json:
        tests = [
            {"name": o.test.name, "location": o.test.location, "ok": not o.got, "got": o.got or None} for o in outcomes
        ]
        show_json({"ok": not failed, "tests": tests})
        return
    for outcome in outcomes:
        show(f"{'FAIL' if outcome.got else 'ok':<5} {outcome.test.name}\n")
        if outcome.got:
            expected = outcome.test.denial or outcome.test.expect
            show(f"      {outcome.test.location}\n      expected {expected}, got {outcome.got}\n")
    show(f"{len(outcomes) - failed} passed, {failed} failed\n")
