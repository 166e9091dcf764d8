"""A process that holds values: no core dumps, no debugger, quiet libraries, and its work still done without root."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]

HARDENED = """
import ctypes, json, logging, os, resource
from egress.credentials.hygiene import forget_variable, harden
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
agreed = harden()
forget_variable("TOKEN")
print(json.dumps({
    "agreed": agreed,
    "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "levels": {name: logging.getLogger(name).getEffectiveLevel() for name in
               ("botocore", "urllib3.connectionpool", "httpx2", "httpcore2.http11")},
    "own files": len(os.listdir("/proc/self/fd")) > 2,
    "own namespace": os.readlink("/proc/self/ns/net").startswith("net:"),
    "sockets": open("/proc/net/tcp").readline().strip().startswith("sl"),
    "token": os.environ.get("TOKEN"),
}))
"""


def run(code: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", code], env={"TOKEN": "canary"}, check=True, cwd=ROOT, stdout=subprocess.PIPE
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_hardened_process() -> None:
    assert run(HARDENED) == {
        "agreed": True,
        "dumpable": 0,
        "core": [0, 0],
        "levels": {"botocore": 30, "urllib3.connectionpool": 30, "httpx2": 30, "httpcore2.http11": 30},
        "own files": True,
        "own namespace": True,
        "sockets": True,
        "token": None,
    }
