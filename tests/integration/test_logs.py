"""Log lines of both kinds of loggers come out alike, on stderr, with their fields."""

import json
import subprocess
import sys

SCRIPT = """
import logging, sys
import structlog
from egress.logs import LogFormat, setup
setup(sys.argv[1], LogFormat(sys.argv[2]))
structlog.contextvars.bind_contextvars(flow="f-1")
logging.getLogger("egress.a").warning("reload rejected", extra={"errors": 3})
structlog.get_logger("egress.b").warning("queue full", sink="jsonl")
logging.getLogger("egress.a").info("quiet")
structlog.get_logger("egress.b").info("quiet")
logging.getLogger("asyncio").info("noise")
"""


def run(level: str, form: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, level, form], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_json():
    lines = [json.loads(line) for line in run("warning", "json")]
    assert [line["event"] for line in lines] == ["reload rejected", "queue full"]
    assert [line["logger"] for line in lines] == ["egress.a", "egress.b"]
    assert lines[0]["errors"] == 3
    assert lines[1]["sink"] == "jsonl"
    assert all(line["level"] == "warning" and line["flow"] == "f-1" and line["timestamp"] for line in lines)


def test_text_without_colours_into_a_pipe():
    lines = run("info", "auto")
    assert len(lines) == 4
    assert "reload rejected" in lines[0]
    assert "errors=3" in lines[0]
    assert "flow=f-1" in lines[0]
    assert "\x1b" not in "".join(lines)
