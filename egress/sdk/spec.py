"""Reads a source's specification key by key. Every fault is a `BadSpec` that names its key and repeats no value."""

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from egress.sdk.secrets import BadSpec, SecretSource, SourceContext

_LOOPBACK = ("localhost", "::1")


class Spec:
    """`known` are the keys that may occur."""

    def __init__(self, fields: Mapping[str, object], known: Collection[str]) -> None:
        for key in fields:
            if key not in known:
                raise BadSpec(f"unknown key `{key}`; known are {', '.join(known)}", (key,))
        self._fields = fields

    def __contains__(self, key: str) -> bool:
        return key in self._fields

    def raw(self, key: str) -> object:
        return self._fields.get(key)

    def text(self, key: str, default: str | None = None) -> str:
        """A text without control characters; without a default it must be there and not be empty."""
        value = self._fields.get(key, default)
        if not isinstance(value, str) or not value.isprintable():
            raise BadSpec("must be a text", (key,))
        if not value and default is None:
            raise BadSpec("must not be empty", (key,))
        return value

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """A list of texts; one text is a list of one."""
        value = self._fields.get(key, default)
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) and "\0" not in item for item in items):
            raise BadSpec("must be a list of texts", (key,))
        if not items and default is None:
            raise BadSpec("must not be empty", (key,))
        return tuple(items)

    def choice(self, key: str, options: Collection[str], default: str | None = None) -> str:
        value = self._fields.get(key, default)
        if not isinstance(value, str) or value not in options:
            raise BadSpec(f"must be one of {', '.join(options)}", (key,))
        return value

    def number(self, key: str, lowest: int, highest: int, default: int | None = None) -> int:
        value = self._fields.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise BadSpec(f"must be a number from {lowest} to {highest}", (key,))
        return value

    def flag(self, key: str) -> bool:
        value = self._fields.get(key, False)
        if not isinstance(value, bool):
            raise BadSpec("must be true or false", (key,))
        return value

    def mapping(self, key: str) -> Mapping[str, object]:
        value = self._fields.get(key, {})
        if not isinstance(value, dict):
            raise BadSpec("must be a mapping", (key,))
        return value

    def url(self, key: str, default: str | None = None) -> str:
        """An `https` URL, or `http` to this machine."""
        value = self.text(key, default)
        try:
            parts = urlsplit(value)
            good = bool(parts.hostname) and parts.username is None and not parts.fragment and parts.port != 0
        except ValueError:
            good = False
        if not good or " " in value or not value.isascii():
            raise BadSpec("must be a URL without user information", (key,))
        if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
            raise BadSpec("must be https, or http to this machine", (key,))
        return value

    def source(self, key: str, context: SourceContext) -> SecretSource:
        """A nested source, such as `{file: token}`."""
        if key not in self._fields:
            raise BadSpec("is missing: write a source, such as `{file: PATH}`", (key,))
        try:
            return context.source(self._fields[key])
        except BadSpec as fault:
            raise BadSpec(fault.message, (key, *fault.path)) from None


def _is_loopback(host: str) -> bool:
    return host in _LOOPBACK or (host.startswith("127.") and host.replace(".", "").isdecimal())
