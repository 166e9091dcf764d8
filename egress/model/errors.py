"""The exceptions of this package. Decisions are values (`Denial`), bad peer input is a value (`Malformed`);
an exception means that something broke."""

from enum import StrEnum


class Side(StrEnum):
    DOWNSTREAM = "downstream"
    UPSTREAM = "upstream"


class EgressError(Exception):
    """Root of every exception raised on purpose."""


class ConfigError(EgressError):
    """Start-up or reload input that cannot be used; carries rendered diagnostics."""

    def __init__(self, diagnostics: tuple[object, ...]) -> None:
        super().__init__(f"{len(diagnostics)} problem(s)")
        self.diagnostics = diagnostics


class PeerError(EgressError):
    """A peer broke the protocol or vanished."""

    def __init__(self, side: Side, reason: str) -> None:
        super().__init__(reason)
        self.side = side
        self.reason = reason


class DependencyError(EgressError):
    """A port failed: resolver, identity source, middleware, secret source."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class LimitExceeded(EgressError):
    """A bound of `Limits` was hit."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


class LocalProtocolError(EgressError):
    """Our own caller broke a state table; always a bug."""
