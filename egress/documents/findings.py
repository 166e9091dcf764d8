"""Collects what is said about one document, located by the path of the value it is about."""

from dataclasses import dataclass, field

from egress.documents.diagnostic import Diagnostic, Severity
from egress.documents.location import KeyPath, path_text
from egress.documents.yaml import Document


@dataclass(frozen=True, slots=True)
class Findings:
    """Diagnostics of one document. Messages get the path of the value in front."""

    document: Document
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def error(self, path: KeyPath, message: str, hint: str = "") -> None:
        self._add(Severity.ERROR, path, message, hint)

    def warning(self, path: KeyPath, message: str, hint: str = "") -> None:
        self._add(Severity.WARNING, path, message, hint)

    def note(self, path: KeyPath, message: str, hint: str = "") -> None:
        self._add(Severity.NOTE, path, message, hint)

    def _add(self, severity: Severity, path: KeyPath, message: str, hint: str) -> None:
        text = f"{path_text(path)}: {message}" if path else message
        self.diagnostics.append(Diagnostic(severity, self.document.locate(path), text, hint))
