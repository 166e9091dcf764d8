"""`egress credentials`: what a running proxy holds, by name and age; fetch anew, revoke. No command prints a value."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from egress.cli.control import ask
from egress.cli.operator import operator_settings
from egress.cli.terminal import show, show_json

_COLUMNS = ("name", "source", "endpoints", "expires", "age", "error")


def list_credentials(config: Path | None, *, as_json: bool) -> None:
    """Print every key: source kind, where it belongs, expiry, age, class of the last error."""
    found = ask(operator_settings(config).admin_socket, "GET", "v1", "credentials")["credentials"]
    if as_json:
        show_json(found)
    elif not found:
        show("no credentials are configured\n")
    else:
        show(_table([_row(item) for item in found]))


def refresh(config: Path | None, name: str) -> None:
    """Fetch a provider's values, or one of them, now."""
    ask(operator_settings(config).admin_socket, "POST", "v1", "credentials", name, "refresh")
    show(f"{name}: fetched\n")


def revoke(config: Path | None, name: str) -> None:
    """Make every placeholder of a provider, or of one key, worthless; new ones work after the next fetch."""
    ask(operator_settings(config).admin_socket, "POST", "v1", "credentials", name, "revoke")
    show(f"{name}: revoked; processes that were started before need new placeholders\n")


def _row(item: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{item['provider']}:{item['key']}",
        item["source"],
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
