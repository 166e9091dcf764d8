"""What an operator may say about events, as plain values: no documents are read here."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from egress.model.limits import MIB


class Compat(StrEnum):
    """`openshell` keeps members that existing readers look for and that OCSF 1.8.0 does not define there."""

    OPENSHELL = "openshell"
    OFF = "off"


class Compress(StrEnum):
    GZIP = "gzip"
    OFF = "off"


class Fsync(StrEnum):
    """`interval`: written files are synchronised every few seconds while something was written."""

    INTERVAL = "interval"
    OFF = "off"


class StderrMode(StrEnum):
    """`auto`: on when stderr is a terminal."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Standard(StrEnum):
    """A destination that is no file of ours; spelled `-` in settings."""

    STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a file makes room: at the UTC date change and beyond `max_bytes`. The newest `keep` old ones stay."""

    daily: bool = True
    max_bytes: int = 256 * MIB
    keep: int = 7
    compress: Compress = Compress.GZIP


@dataclass(frozen=True, slots=True)
class Device:
    """Where the proxy runs, as events tell it. `container_image` and `container_name` are None outside one."""

    hostname: str
    container_name: str | None = None
    container_image: str | None = None


@dataclass(frozen=True, slots=True)
class EventSettings:
    """`directory` holds both dated files; None writes no file but `jsonl_path`. `jsonl_path` replaces the dated
    JSON file."""

    device: Device
    version: str
    directory: Path | None = None
    compat: Compat = Compat.OPENSHELL
    jsonl: bool = True
    jsonl_path: Path | Standard | None = None
    rotation: Rotation = field(default_factory=Rotation)
    fsync: Fsync = Fsync.INTERVAL
    shorthand: bool = True
    stderr: StderrMode = StderrMode.AUTO
    ring: int = 20_000
