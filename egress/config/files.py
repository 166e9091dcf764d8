"""Files an operator named: read once and bounded, and only when nobody else could have written them."""

import os
import stat
from collections.abc import Collection
from pathlib import Path

from egress.documents.diagnostic import Diagnostic, error
from egress.documents.location import Location

MAX_DOCUMENT_BYTES = 8 * 1024 * 1024
MAX_SECRET_BYTES = 64 * 1024
_ORIGIN_HINT = "in a container with odd ownership, set `reload: {check_origin: off}`"


def read_document(path: Path) -> bytes | Diagnostic:
    """The bytes of a regular file."""
    return _read(path, MAX_DOCUMENT_BYTES)


def read_secret(path: Path) -> str | Diagnostic:
    """The first line of a file that only we may read."""
    content = _read(path, MAX_SECRET_BYTES)
    if isinstance(content, Diagnostic):
        return content
    problem = _secret_problem(path)
    if problem is not None:
        return problem
    try:
        text = content.decode().partition("\n")[0].removesuffix("\r")
    except UnicodeDecodeError:
        return error(Location(str(path)), "is not UTF-8 text")
    return text if text else error(Location(str(path)), "is empty")


def _read(path: Path, limit: int) -> bytes | Diagnostic:
    location = Location(str(path))
    try:
        # A FIFO would otherwise hold the start until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as failure:
        return error(location, f"cannot be read: {os.strerror(failure.errno or 0)}")
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return error(location, "is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(limit + 1)
    finally:
        os.close(descriptor)
    return content if len(content) <= limit else error(location, f"is larger than {limit} bytes")


def _secret_problem(path: Path) -> Diagnostic | None:
    status = path.stat()
    shared = stat.S_IMODE(status.st_mode) & 0o077
    if shared == 0o040 and status.st_gid in (os.getegid(), *os.getgroups()):
        shared = 0
    if shared:
        return error(Location(str(path)), "holds a secret and others may read it", "set its mode to 0600")
    if status.st_uid not in (0, os.geteuid()):
        return error(Location(str(path)), "holds a secret and belongs to another user")
    return None


def origin_problems(path: Path, agent_uids: Collection[int] = ()) -> tuple[Diagnostic, ...]:
    """Who else could have written this file, or put another in its place: every directory up to `/` counts, those
    the name leads through and those it ends up in. `agent_uids` would be writing what they are judged by."""
    places = dict.fromkeys(
        place for start in (path.absolute(), path.resolve()) for place in (start, *start.parents) if place.exists()
    )
    found = (_origin_problem(place, agent_uids) for place in places)
    return tuple(problem for problem in found if problem is not None)


def _origin_problem(place: Path, agent_uids: Collection[int]) -> Diagnostic | None:
    status = place.stat()
    location = Location(str(place))
    if status.st_uid in agent_uids:
        return error(location, f"belongs to uid {status.st_uid}, an agent that is judged by it")
    if status.st_uid not in (0, os.geteuid()):
        return error(location, f"belongs to uid {status.st_uid}, neither root nor our own", _ORIGIN_HINT)
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & 0o022 and not sticky:
        who = "everybody" if status.st_mode & 0o002 else "its group"
        return error(location, f"may be written by {who}", f"chmod go-w {place}")
    return None
