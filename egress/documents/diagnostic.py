"""What is wrong with a document, where, and what to write instead."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from egress.documents.location import Location


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `message` starts with the path of the value; `hint` says what to write instead."""

    severity: Severity
    location: Location
    message: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.location}: {self.severity}: {self.message}"
        return f"{text}\n    hint: {self.hint}" if self.hint else text


def error(location: Location, message: str, hint: str = "") -> Diagnostic:
    return Diagnostic(Severity.ERROR, location, message, hint)


def warning(location: Location, message: str, hint: str = "") -> Diagnostic:
    return Diagnostic(Severity.WARNING, location, message, hint)


def note(location: Location, message: str, hint: str = "") -> Diagnostic:
    return Diagnostic(Severity.NOTE, location, message, hint)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics)


def render(diagnostics: Iterable[Diagnostic]) -> str:
    """Plain text, one finding per paragraph, in document order; ends with a newline unless empty."""
    ordered = sorted(diagnostics, key=lambda diagnostic: diagnostic.location)
    return "".join(f"{diagnostic}\n" for diagnostic in ordered)
