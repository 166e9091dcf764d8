"""Events on standard streams, of a process of its own."""

import json
import subprocess
import sys

STREAMS = """
from dataclasses import replace
from egress.events.bus import EventBus
from egress.events.settings import Standard, StderrMode
from egress.events.sinks import build_sinks
from egress.model.clock import SystemClock
from tests.unit.events import samples
settings = replace(samples.SETTINGS, jsonl_path=Standard.STDOUT, stderr=StderrMode.ON)
bus = EventBus(build_sinks(settings, SystemClock()).all)
bus.emit(samples.connection())
bus.close(5)
"""


def test_standard_streams():
    done = subprocess.run([sys.executable, "-c", STREAMS], capture_output=True, text=True, timeout=20, check=True)
    assert json.loads(done.stdout)["activity_name"] == "Open"
    assert done.stderr == (
        "2026-05-04T07:08:11.312Z OCSF NET:OPEN [INFO] ALLOWED /usr/bin/git(311) -> git.example.org:443"
        " [policy:git_read engine:opa]\n"
    )


def test_heavy_imports_wait_until_somebody_asks():
    code = "import sys, egress.events.sinks, egress.logs; print({'prometheus_client', 'structlog'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "set()\n"
