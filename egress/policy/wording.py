"""Reason texts of connection denials: one for the caller, one with the names of entries for the event."""

from collections.abc import Sequence

from egress.model.process import Evidence, EvidenceUnavailable, ProcessEvidence
from egress.model.verdict import Denial, DenialCode, ReasonCode, Stage
from egress.policy.compiled import Binary, Entry

MAX_NAMED_ENTRIES = 8
MAX_LISTED_PATHS = 16


def binary_not_listed(entries: Sequence[Entry], where: str, evidence: Evidence) -> Denial:
    """The destination is listed, but not for this program. The caller is not told which entries there are."""
    if isinstance(evidence, EvidenceUnavailable):
        reason = f"the calling process is not known, and no entry for {where} is open to every program"
        names = ", ".join(f"'{entry.key}'" for entry in entries[:MAX_NAMED_ENTRIES])
        return _denial(reason, f"{reason} (policies: {names}; {evidence.detail})", ())
    executable = printable(evidence.executable)
    origins = _origins(evidence)
    hint = _symlink_hint(entries, executable)
    public = f"binary '{executable}' is not listed for {where} {origins}"
    private = "; ".join(
        f"binary '{executable}' not allowed in policy '{entry.key}' {origins}{f'. {hint}' if hint else ''}"
        for entry in sorted(entries, key=lambda entry: entry.key)[:MAX_NAMED_ENTRIES]
    )
    if len(entries) > MAX_NAMED_ENTRIES:
        private += f"; and {len(entries) - MAX_NAMED_ENTRIES} more"
    return _denial(f"{public}. {hint}" if hint else public, private, (hint,) if hint else ())


def printable(text: str) -> str:
    """A path as it may stand in a reason: names that are not UTF-8, and control characters, are escaped."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    return "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in clean)


def _denial(reason: str, log_reason: str, hints: tuple[str, ...]) -> Denial:
    code = ReasonCode.BINARY_NOT_ALLOWED
    return Denial(Stage.POLICY, DenialCode.POLICY_DENIED, reason, code, log_reason=log_reason, hints=hints)


def _origins(evidence: ProcessEvidence) -> str:
    ancestors = " -> ".join(printable(process.executable) for process in evidence.ancestors[:MAX_LISTED_PATHS])
    commands = ", ".join(printable(path) for path in evidence.command_paths[:MAX_LISTED_PATHS])
    return f"(ancestors: [{ancestors}], cmdline: [{commands}])"


def _symlink_hint(entries: Sequence[Entry], executable: str) -> str:
    """`python3` in a policy is often a link to `python3.12`, which is the name the kernel reports."""
    if not any(_looks_like_target(binary, executable) for entry in entries for binary in entry.binaries):
        return ""
    return f"SYMLINK HINT: the kernel reports the file a link leads to; list '{executable}' itself"


def _looks_like_target(binary: Binary, executable: str) -> bool:
    linked = binary.path.rpartition("/")[2]
    real = executable.rpartition("/")[2]
    return "*" not in binary.path and bool(linked) and real != linked and real.startswith(linked)
