"""From what a source gave to one value: the modifiers that stand beside a source (credentials.md section 15), and what
no value may hold. Nothing that is raised here repeats anything of the value."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from egress.documents.units import read_duration
from egress.sdk.secrets import BadSpec, Fetched, Secret, SourceUnavailable

VALUE_BYTES = 8192
"""A longer value is refused: it could not stand in a header field."""
_MILLISECONDS_FROM = 1e11
"""A larger number of seconds would be thousands of years away: such expiries are in milliseconds."""

_UNSAFE = re.compile(r"[\r\n\0]")
_STEP = re.compile(r"(?:[^~]|~[01])*\Z")
_STRIPS = ("newline", "all", "none")


@dataclass(frozen=True, slots=True)
class Reading:
    """How one value is read: a JSON pointer, base64, what is cut off its ends, and when it expires (a JSON pointer,
    or `+` and a duration)."""

    json: str = ""
    base64: bool = False
    strip: str = "newline"
    expires: str = ""

    def __post_init__(self) -> None:
        """Raises `BadSpec`."""
        if self.json:
            _steps(self.json, "json")
        if self.strip not in _STRIPS:
            raise BadSpec(f"must be one of {', '.join(_STRIPS)}", ("strip",))
        if self.expires.startswith("+"):
            try:
                read_duration(self.expires[1:])
            except ValueError as error:
                raise BadSpec(str(error), ("expires",)) from None
        elif self.expires:
            _steps(self.expires, "expires")

    def read(self, fetched: Fetched, output: str, now: float) -> tuple[Secret, float | None]:
        """The value of `output`, fit for a header field, and its expiry. Raises `SourceUnavailable`."""
        text = self.text(fetched, output)
        if _UNSAFE.search(text):
            raise SourceUnavailable("unsafe_value")
        if len(text.encode("utf-8", "surrogatepass")) > VALUE_BYTES:
            raise SourceUnavailable("too_large")
        return Secret(text), self._expiry(fetched, now)

    def text(self, fetched: Fetched, output: str) -> str:
        """The same for our own use, where several lines may stand, such as a key. Raises `SourceUnavailable`."""
        text = self._chosen(fetched, output)
        if self.base64:
            text = _decoded(_stripped(text, "all"))
        text = _stripped(text, self.strip)
        if not text:
            raise SourceUnavailable("empty")
        return text

    def _chosen(self, fetched: Fetched, output: str) -> str:
        if self.json:
            found = _at(_document(fetched), self.json, "json")
            if not isinstance(found, str):
                raise SourceUnavailable("not_text")
            return found
        secret = fetched.values.get(output) or fetched.values.get("")
        if secret is None:
            raise SourceUnavailable("no_such_output")
        return secret.reveal()

    def _expiry(self, fetched: Fetched, now: float) -> float | None:
        if not self.expires:
            return fetched.expires
        if self.expires.startswith("+"):
            return now + read_duration(self.expires[1:])
        return read_expiry(_at(_document(fetched), self.expires, "expires"))


def read_expiry(value: object) -> float:
    """Seconds since the epoch, from a number (milliseconds too) or an RFC 3339 time. Raises `SourceUnavailable`."""
    try:
        if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            number = float(value)
            return number / 1000 if number >= _MILLISECONDS_FROM else number
    except (ValueError, OverflowError):
        pass
    raise SourceUnavailable("unreadable_expiry")


def json_document(text: str) -> object:
    """Raises `SourceUnavailable`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SourceUnavailable("not_json") from None


def texts_of(document: object) -> Mapping[str, Secret]:
    """The members of a JSON object that are text, or the text that is the whole document, under `""`."""
    if isinstance(document, str):
        return {"": Secret(document)}
    if isinstance(document, dict):
        return {key: Secret(value) for key, value in document.items() if isinstance(value, str)}
    raise SourceUnavailable("not_text")


def _document(fetched: Fetched) -> object:
    whole = fetched.document or fetched.values.get("")
    if whole is None:
        raise SourceUnavailable("not_json")
    return json_document(whole.reveal())


def _steps(pointer: str, key: str) -> list[str]:
    """The reference tokens of a JSON pointer (RFC 6901 section 4)."""
    if not pointer.startswith("/") or not _STEP.match(pointer):
        raise BadSpec("must be a JSON pointer: `/data/token`", (key,))
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


def _at(document: object, pointer: str, key: str) -> object:
    found = document
    for step in _steps(pointer, key):
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdecimal() and step.isascii() and int(step) < len(found):
            found = found[int(step)]
        else:
            raise SourceUnavailable("no_such_field")
    return found


def _decoded(text: str) -> str:
    """Base64 in either alphabet, padded or not."""
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        raise SourceUnavailable("not_base64") from None


def _stripped(text: str, how: str) -> str:
    if how == "none":
        return text
    return text.rstrip("\r\n") if how == "newline" else text.strip()
