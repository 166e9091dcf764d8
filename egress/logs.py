"""Diagnostic logging: structlog renders what `logging` and structlog loggers say, on stderr. Nothing here is an event.

A line is a constant phrase with fields: `logging.getLogger(__name__).warning("reload rejected", extra={"errors": 3})`.
structlog is imported when logging is set up, not before.
"""

import logging
import sys
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import Processor


class LogFormat(StrEnum):
    """`auto`: for people, coloured on a terminal; `json`: one object per line."""

    AUTO = "auto"
    JSON = "json"


# asyncio and friends are only worth reading when somebody debugs them.
_QUIET = ("asyncio", "hpack", "mitmproxy", "watchfiles", "urllib3", "httpx2")


def setup(level: str, log_format: LogFormat = LogFormat.AUTO) -> None:
    """Send every logger's lines to stderr. `level` is `debug`, `info`, `warning` or `error`."""
    import structlog  # noqa: PLC0415 - 30 ms that most commands never need

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared[:-1],
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if log_format is LogFormat.JSON
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            renderer,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
