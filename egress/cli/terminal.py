"""How commands talk: results to standard output, everything else to standard error, and the exit codes."""

import json
import sys
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NoReturn

import typer

from egress.documents.diagnostic import Diagnostic, Severity, render


class ExitCode(IntEnum):
    """Decision 23 of the design: scripts tell these apart."""

    FINE = 0
    FAILURE = 1
    INVALID = 2
    NOT_RUNNING = 3
    REFUSED = 4
    DENY = 10
    UNDECIDABLE = 11


def show(text: str) -> None:
    """A result."""
    sys.stdout.write(text)


def show_json(value: Any) -> None:
    """A result for a program."""
    show(json.dumps(value, indent=2) + "\n")


def complain(diagnostics: Iterable[Diagnostic]) -> None:
    """Findings, in document order, with a count of what they are."""
    found = tuple(diagnostics)
    sys.stderr.write(render(found))
    errors = sum(diagnostic.severity is Severity.ERROR for diagnostic in found)
    warnings = sum(diagnostic.severity is Severity.WARNING for diagnostic in found)
    if found:
        sys.stderr.write(f"{_count(errors, 'error')}, {_count(warnings, 'warning')}\n")


def fail(message: str, code: ExitCode = ExitCode.FAILURE) -> NoReturn:
    """End the command with one sentence."""
    sys.stderr.write(f"egress: {message}\n")
    raise typer.Exit(code)


def refuse(diagnostics: Iterable[Diagnostic]) -> NoReturn:
    """End the command because a document is invalid."""
    complain(diagnostics)
    raise typer.Exit(ExitCode.INVALID)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
