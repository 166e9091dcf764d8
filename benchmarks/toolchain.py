"""What the benchmarks need from the machine: programs, headers and the load generator built from `loadgen.c`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("loadgen.c")
CERTGEN_PLACES = ("/usr/lib/squid/security_file_certgen", "/usr/lib64/squid/security_file_certgen")
OPENSSL_HEADER = "openssl/ssl.h"
SYSTEM_PATH = "/usr/sbin:/usr/local/sbin:/sbin"


class Missing(Exception):
    """The machine lacks something; the message says what, and how to get it."""


@dataclass(frozen=True, slots=True)
class Tools:
    nginx: Path
    squid: Path | None
    certgen: Path | None
    mitmdump: Path | None
    egress: Path | None


def find(subjects: Sequence[str]) -> Tools:
    """Locate every program the chosen subjects need, or name all that are missing at once."""
    scripts = Path(sys.executable).parent
    tools = Tools(
        nginx=_program("nginx") or Path(),
        squid=_program("squid"),
        certgen=next((Path(p) for p in CERTGEN_PLACES if Path(p).exists()), None),
        mitmdump=_script(scripts, "mitmdump"),
        egress=_script(scripts, "egress"),
    )
    lacking = list(_lacking(tools, subjects))
    if lacking:
        lines = "".join(f"\n  {line}" for line in lacking)
        raise Missing(f"missing for this benchmark:{lines}\nor, on Debian as root, run again with --install")
    return tools


def _lacking(tools: Tools, subjects: Sequence[str]) -> Iterator[str]:
    if tools.nginx == Path():
        yield "nginx: apt-get install nginx-light"
    if "squid" in subjects and not (tools.squid and tools.certgen):
        yield "squid with ssl_bump: apt-get install squid-openssl"
    if "mitmdump" in subjects and not tools.mitmdump:
        yield "mitmdump: uv sync"
    if any(name.startswith("egress") for name in subjects) and not tools.egress:
        yield "egress: uv sync"
    if not shutil.which("gcc"):
        yield "gcc: apt-get install gcc"
    elif not _has_openssl_headers():
        yield "OpenSSL headers: apt-get install libssl-dev"


def _program(name: str) -> Path | None:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    return Path(found) if found else None


def _script(scripts: Path, name: str) -> Path | None:
    return scripts / name if (scripts / name).exists() else None


def _has_openssl_headers() -> bool:
    probe = subprocess.run(
        ["gcc", "-E", "-x", "c", "-"],
        input=f"#include <{OPENSSL_HEADER}>\n",
        text=True,
        capture_output=True,
        timeout=30,
        check=False,
    )
    return probe.returncode == 0


def install() -> None:
    """Install the Debian packages. Only as root, only when asked to."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Missing("--install needs root and apt-get")
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    packages = ["nginx-light", "squid-openssl", "libssl-dev", "gcc"]
    for command in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *command], env=quiet, timeout=600, check=False)
        if done.returncode != 0:
            raise Missing(f"apt-get {command[0]} failed")


def build_load_generator(work: Path) -> Path:
    """Compile `loadgen.c` unless the binary is newer than its source."""
    binary = work / "loadgen"
    if binary.exists() and binary.stat().st_mtime > SOURCE.stat().st_mtime:
        return binary
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-o", str(binary), str(SOURCE), "-lssl", "-lcrypto"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise Missing(f"loadgen.c does not compile here:\n{done.stderr}")
    return binary
