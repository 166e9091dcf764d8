"""Values that the process was started with: variables, descriptors and what the file itself says."""

import errno
import os
from collections.abc import Mapping

from egress.credentials.hygiene import forget_variable
from egress.sdk.secrets import BadSpec, Fetched, Secret, SecretSource, SourceContext, SourceUnavailable
from egress.sdk.spec import Spec

MOST_BYTES = 64 * 1024
_FIRST_DESCRIPTOR = 3


def environment(fields: Mapping[str, object], context: SourceContext) -> SecretSource:
    """`{name: VARIABLE}`"""
    return _Variable(Spec(fields, ("name",)).text("name"), context)


class _Variable:
    def __init__(self, name: str, context: SourceContext) -> None:
        self._name = name
        self._environment = context.environment

    async def fetch(self) -> Fetched:
        """The variable; it is taken out of the process's environment, which children and others would see."""
        value = self._environment.get(self._name)
        forget_variable(self._name)
        if value is None:
            raise SourceUnavailable("not_set")
        return Fetched.one(value)


def literal(fields: Mapping[str, object], context: SourceContext) -> SecretSource:
    """`{text: VALUE}`"""
    if not context.allow_literal:
        raise BadSpec("a secret may not stand in the file: write another source, or start with --allow-literal-secrets")
    text = fields.get("text")
    if len(fields) != 1 or not isinstance(text, str):
        raise BadSpec("must be a text")
    return _Literal(Secret(text))


class _Literal:
    def __init__(self, secret: Secret) -> None:
        self._secret = secret

    async def fetch(self) -> Fetched:
        return Fetched({"": self._secret})


class Descriptors:
    """What was read from inherited descriptors, each once. Afterwards the number may be any other file's."""

    def __init__(self) -> None:
        self._read: dict[int, Secret | SourceUnavailable] = {}

    def take(self, number: int) -> Secret:
        """Blocks until the other end is closed. Raises `SourceUnavailable`."""
        found = self._read.get(number)
        if found is None:
            try:
                found = _drain(number)
            except SourceUnavailable as unavailable:
                found = unavailable
            self._read[number] = found
        if isinstance(found, SourceUnavailable):
            raise SourceUnavailable(found.kind)
        return found


def descriptor(fields: Mapping[str, object], context: SourceContext, descriptors: Descriptors) -> SecretSource:
    """`{number: N}`"""
    number = Spec(fields, ("number",)).number("number", _FIRST_DESCRIPTOR, 1 << 20)
    return _Descriptor(number, context, descriptors)


class _Descriptor:
    def __init__(self, number: int, context: SourceContext, descriptors: Descriptors) -> None:
        self._number = number
        self._run = context.run_blocking
        self._descriptors = descriptors

    async def fetch(self) -> Fetched:
        return Fetched({"": await self._run(self._descriptors.take, self._number)})


def _drain(number: int) -> Secret:
    try:
        if not os.get_inheritable(number):
            raise SourceUnavailable("not_inherited")  # one of our own, opened since
        os.set_inheritable(number, False)
        os.set_blocking(number, True)
        data = bytearray()
        while len(data) <= MOST_BYTES and (more := os.read(number, MOST_BYTES)):
            data += more
        os.close(number)
    except OSError as error:
        raise SourceUnavailable("not_open" if error.errno == errno.EBADF else "unreadable") from None
    if len(data) > MOST_BYTES:
        raise SourceUnavailable("too_large")
    try:
        return Secret(data.decode())
    except UnicodeDecodeError:
        raise SourceUnavailable("not_text") from None
