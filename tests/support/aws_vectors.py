"""The signing vectors that come with botocore's sources, fetched once per machine in the installed version."""

import fcntl
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import botocore

FETCH_SECONDS = 120


@dataclass(frozen=True)
class Vector:
    """One request, how it looks signed, and the `Authorization` it must get."""

    name: str
    request: bytes
    signed: bytes
    authorization: str


@cache
def vectors() -> list[Vector]:
    found = []
    for authorization in sorted(_unpacked().rglob("*.authz")):
        texts = [authorization.with_suffix(suffix).read_bytes() for suffix in (".req", ".sreq")]
        found.append(Vector(authorization.stem, texts[0], texts[1], authorization.read_text().strip()))
    return found


def _unpacked() -> Path:
    place = Path(tempfile.gettempdir()) / "egress-test-tools" / f"botocore-{botocore.__version__}"
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            wanted = f"botocore=={botocore.__version__}"
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", wanted]
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=FETCH_SECONDS)
            assert done.returncode == 0, done.stderr
            (archive,) = place.glob("*.tar.gz")
            with tarfile.open(archive) as opened:
                members = [member for member in opened if "/aws4_testsuite/" in member.name]
                opened.extractall(place, members, filter="data")
            (place / "complete").touch()
    return place
