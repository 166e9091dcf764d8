"""Facts about the machine that a reader needs to compare figures."""

import os
import platform
import ssl
import subprocess
from pathlib import Path

from benchmarks.toolchain import Tools


def facts(tools: Tools) -> dict[str, str]:
    found = {
        "processor": f"{_cpu_model()}, {len(os.sched_getaffinity(0))} usable of {os.cpu_count()}",
        "memory": f"{_memory_gb():.0f} GB",
        "kernel": platform.release(),
        "processes": str(process_count()),
        "load before": f"{os.getloadavg()[0]:.2f}",
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION,
        "nginx": _first_line([str(tools.nginx), "-v"]),
    }
    if tools.squid:
        found["squid"] = _first_line([str(tools.squid), "-v"])
    if tools.mitmdump:
        found["mitmproxy"] = _first_line([str(tools.mitmdump), "--version"])
    return found


def process_count() -> int:
    """Identity looks through every process for the owner of a socket, so their number is part of the result."""
    return sum(entry.name.isdigit() for entry in Path("/proc").iterdir())


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else "unknown"
