"""`egress check`: everything that is wrong with settings and policies."""

from collections.abc import Iterable
from pathlib import Path

from egress.cli.candidate import prepare_offline
from egress.cli.terminal import ExitCode, complain, show, show_json
from egress.documents.diagnostic import Diagnostic, Severity
from egress.generation.prepare import Candidate


def check(files: tuple[Path, ...], config: Path | None, *, strict: bool, as_json: bool) -> ExitCode:
    """Check and report; `strict` makes warnings fail too."""
    found = prepare_offline(config, files)
    diagnostics = found.diagnostics if isinstance(found, Candidate) else found
    severities = {diagnostic.severity for diagnostic in diagnostics}
    fine = Severity.ERROR not in severities and not (strict and Severity.WARNING in severities)
    if as_json:
        show_json({"ok": fine, "diagnostics": [diagnostic_json(item) for item in _ordered(diagnostics)]})
    else:
        complain(diagnostics)
        if isinstance(found, Candidate) and fine:
            show(_summary(found))
    return ExitCode.FINE if fine else ExitCode.INVALID


def _ordered(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    return sorted(diagnostics, key=lambda diagnostic: diagnostic.location)


def diagnostic_json(diagnostic: Diagnostic) -> dict[str, object]:
    location = diagnostic.location
    return {
        "severity": diagnostic.severity.value,
        "file": location.file,
        "line": location.line or None,
        "column": location.column or None,
        "message": diagnostic.message,
        "hint": diagnostic.hint or None,
    }


def _summary(candidate: Candidate) -> str:
    """What was read, so that an empty policy is not mistaken for a checked one."""
    lines = []
    for name, terms in candidate.generation.agents.items():
        entries = terms.policy.entries.values() if terms.policy else ()
        endpoints = sum(len(entry.endpoints) for entry in entries)
        lines.append(f"agent {name}: {len(tuple(entries))} entries, {endpoints} endpoints, identity {terms.identity}\n")
    return "".join(lines)
