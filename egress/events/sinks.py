"""Event settings -> the sinks they ask for."""

import sys
from dataclasses import dataclass

from egress.events.bus import Sink
from egress.events.files import Archive, Descriptor, Naming, RotatingFile, dated, in_background, named
from egress.events.jsonl import JsonLines
from egress.events.mapping import EventIds
from egress.events.metrics import Metrics
from egress.events.queued import Output, QueuedSink
from egress.events.ring import Ring
from egress.events.settings import EventSettings, Standard, StderrMode
from egress.events.shorthand import Shorthand
from egress.model.clock import Clock

JSONL_STEM = "egress-ocsf"
SHORTHAND_STEM = "egress"


@dataclass(frozen=True, slots=True)
class Sinks:
    """`all` is for the bus; the other two are also read, by whoever shows the running proxy."""

    all: tuple[Sink, ...]
    ring: Ring
    metrics: Metrics


def build_sinks(settings: EventSettings, clock: Clock) -> Sinks:
    """Open every file and start every writer; call after forking. Raises `OSError` when a file cannot be opened."""
    ids = EventIds()
    queued = []
    output = _jsonl_output(settings, clock)
    if output is not None:
        queued.append(QueuedSink("jsonl", JsonLines(settings, ids).render, output, clock))
    if settings.shorthand and settings.directory is not None:
        lines = _file(settings, dated(settings.directory, SHORTHAND_STEM), clock)
        queued.append(QueuedSink("shorthand", Shorthand().render, lines, clock))
    if _wants_stderr(settings):
        queued.append(QueuedSink("stderr", Shorthand().render, Descriptor(sys.stderr.fileno()), clock))
    ring = Ring(settings.ring)
    metrics = Metrics(settings.version, {sink.name: sink.tally for sink in queued})
    return Sinks((ring, metrics, *queued), ring, metrics)


def _jsonl_output(settings: EventSettings, clock: Clock) -> Output | None:
    if not settings.jsonl:
        return None
    if settings.jsonl_path is Standard.STDOUT:
        return Descriptor(sys.stdout.fileno())
    if settings.jsonl_path is not None:
        return _file(settings, named(settings.jsonl_path), clock)
    if settings.directory is not None:
        return _file(settings, dated(settings.directory, JSONL_STEM), clock)
    return None


def _file(settings: EventSettings, naming: Naming, clock: Clock) -> RotatingFile:
    """The file, and what an earlier process left unfinished beside it."""
    file = RotatingFile(naming, settings.rotation, settings.fsync, clock)
    if file.regular:
        in_background(Archive(naming, settings.rotation, file.path).run)
    return file


def _wants_stderr(settings: EventSettings) -> bool:
    if not settings.shorthand:
        return False
    return settings.stderr is StderrMode.ON or (settings.stderr is StderrMode.AUTO and sys.stderr.isatty())
