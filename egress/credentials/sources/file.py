"""Values in files: text, JSON or variables, private to their owner, read again when another file takes their place."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from egress.credentials.reading import json_document, texts_of
from egress.sdk.secrets import BadSpec, Fetched, Secret, SecretSource, SourceContext, SourceUnavailable
from egress.sdk.spec import Spec

MOST_BYTES = 64 * 1024
_CREDENTIALS = "$CREDENTIALS_DIRECTORY"
_FORMATS = ("text", "json", "dotenv")
_OTHERS = 0o077

type _Stamp = tuple[int, int, int, int, int]


def file(fields: Mapping[str, object], context: SourceContext) -> SecretSource:
    """`{path, format: text|json|dotenv, key, allow_permissive}`; `key` names one value of JSON or variables."""
    spec = Spec(fields, ("path", "format", "key", "allow_permissive"))
    form = spec.choice("format", _FORMATS, "text")
    if "key" in spec and form == "text":
        raise BadSpec("means nothing for `format: text`", ("key",))
    key = spec.text("key") if "key" in spec else ""
    return FileSource(_path(spec, context), form, key, context, permissive=spec.flag("allow_permissive"))


def _path(spec: Spec, context: SourceContext) -> Path:
    text = spec.text("path")
    if text.startswith(f"{_CREDENTIALS}/"):
        directory = context.environment.get(_CREDENTIALS[1:])
        if not directory:
            raise BadSpec(f"{_CREDENTIALS} is not set", ("path",))
        text = directory + text.removeprefix(_CREDENTIALS)
    return context.base / Path(text).expanduser()


class FileSource:
    """One file. A symlink that is switched to another file counts as a change."""

    def __init__(self, path: Path, form: str, key: str, context: SourceContext, *, permissive: bool) -> None:
        self._path = path
        self._form = form
        self._key = key
        self._run = context.run_blocking
        self._permissive = permissive
        self._stamp: _Stamp | None = None

    async def fetch(self) -> Fetched:
        """Raises `SourceUnavailable`."""
        text = await self._run(self._read)
        if self._form == "text":
            return Fetched.one(text)
        if self._form == "json":
            values, document = texts_of(json_document(text)), Secret(text)
        else:
            values, document = {name: Secret(value) for name, value in _variables(text)}, None
        if self._key:
            if self._key not in values:
                raise SourceUnavailable("no_such_field")
            values = {"": values[self._key]}
        return Fetched(values, document=document)

    def changed(self) -> bool:
        """Is another file there, or another content? Blocks."""
        return _stamp(self._path) != self._stamp

    def _read(self) -> str:
        self._stamp = _stamp(self._path)  # before it is opened: a change in between is seen again
        try:
            # Without O_NONBLOCK a FIFO in this place would hold the thread for ever.
            number = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(number, "rb") as opened:
                self._check(os.fstat(number))
                data = opened.read(MOST_BYTES + 1)
        except FileNotFoundError:
            raise SourceUnavailable("not_found") from None
        except OSError:
            raise SourceUnavailable("unreadable") from None
        if len(data) > MOST_BYTES:
            raise SourceUnavailable("too_large")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise SourceUnavailable("not_text") from None

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise SourceUnavailable("no_file")
        if found.st_mode & _OTHERS and not self._permissive:
            raise SourceUnavailable("open_to_others")


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def _variables(text: str) -> Iterator[tuple[str, str]]:
    """`NAME=value` lines; `export`, quotes around values and lines of comments are left out."""
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if not equals or name.startswith("#"):
            continue
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        yield name, value
