"""What keeps values out of reach of others on this machine: no core dumps, no reading by debuggers, no variables left
over, no chatty libraries (credentials.md section 15.3)."""

import ctypes
import logging
import os
import resource
import sys
from pathlib import Path

_CHATTY = ("botocore", "urllib3", "httpx2", "httpcore2")
"""Their debug output contains tokens."""
_PR_SET_DUMPABLE = 4


def harden() -> bool:
    """Before the first value is fetched: no core dumps, no debugger of the same user, quiet libraries.

    From then on root owns this process's files under /proc; the process still reads its own. True when the kernel
    agreed.
    """
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


def forget_variable(name: str) -> None:
    """Take a variable out of this process's environment, also out of the memory that /proc/PID/environ shows."""
    if os.environ.pop(name, None) is None or not sys.platform.startswith("linux"):
        return
    # `pop` only removed the pointer. What the kernel shows is the block that the process was started with.
    _blank(name.encode())


def _blank(name: bytes) -> None:
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[47]), int(fields[48])  # env_start, env_end: fields 50 and 51 (proc_pid_stat(5))
    except (OSError, ValueError, IndexError):
        return
    if not 0 < end - start <= 1 << 21:
        return
    block = (ctypes.c_char * (end - start)).from_address(start)
    at, prefix = 0, name + b"="
    for item in bytes(block).split(b"\0"):
        if item.startswith(prefix):
            ctypes.memset(start + at + len(prefix), ord("*"), len(item) - len(prefix))
        at += len(item) + 1
