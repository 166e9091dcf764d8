"""`egress credentials`: what a running proxy holds, by name and age; fetch anew, revoke. No command prints a value."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from egress.app import Proxy
from egress.cli.control import ask
from egress.cli.operator import operator_settings
from egress.cli.terminal import ExitCode, refuse, show, show_json
from egress.config.overrides import Flags
from egress.generation.prepare import Candidate, prepare
from egress.model.ids import GenerationNumber

_COLUMNS = ("name", "source", "state", "endpoints", "expires", "age", "error")


def list_credentials(config: Path | None, *, as_json: bool) -> None:
    """Print every key: source kind, where it belongs, expiry, age, class of the last error."""
    found = ask(operator_settings(config).admin_socket, "GET", "v1", "credentials")["credentials"]
    if as_json:
        show_json(found)
    elif not found:
        show("no credentials are configured\n")
    else:
        show(_table([_row(item) for item in found]))


def check(config: Path | None, *, as_json: bool) -> ExitCode:
    """Fetch every value once and say what became of it."""
    flags = Flags(config, allow_literal_secrets=True)
    candidate = prepare(flags, os.environ, GenerationNumber(1))
    if not isinstance(candidate, Candidate):
        refuse(candidate)
    found = asyncio.run(Proxy(candidate, flags, os.environ).fetch_once())
    if as_json:
        show_json(found)
    else:
        show(_table([_row(item) for item in found]) if found else "no credentials are configured\n")
    return ExitCode.FINE if all(item["state"] == "ok" for item in found) else ExitCode.FAILURE


def refresh(config: Path | None, name: str) -> None:
    """Fetch a provider's values, or one of them, now."""
    ask(operator_settings(config).admin_socket, "POST", "v1", "credentials", name, "refresh")
    show(f"{name}: fetched\n")


def revoke(config: Path | None, name: str) -> None:
    """Make every placeholder of a provider, or of one key, worthless; new ones work once it is refreshed by name."""
    ask(operator_settings(config).admin_socket, "POST", "v1", "credentials", name, "revoke")
    show(f"{name}: revoked; processes that were started before need new placeholders\n")


def _row(item: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{item['provider']}:{item['key']}",
        item["source"],
        item["state"],
        ", ".join(item["endpoints"]) or "-",
        _moment(item["expires"]),
        "-" if item["age"] is None else f"{item['age']:.0f}s",
        item["error"] or "-",
    )


def _moment(seconds: float | None) -> str:
    return "-" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    lines = [_COLUMNS, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    return "".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() + "\n"
                   for line in lines)  # fmt: skip
