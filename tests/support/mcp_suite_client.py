"""The client under test of the MCP conformance suite: a real SDK behind a proxy that knows this suite's ports only.

`python -m tests.support.mcp_suite_client URL`; without `MCP_SUITE_LANE` the SDK talks to the suite directly. The
suite tells the scenario in `MCP_CONFORMANCE_SCENARIO`.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.proxy import LANES, EgressProcess, Endpoint, policy_text
from tests.support.workload import Workload

SDK = Path(__file__).with_name("mcp_sdk_client.py")
LISTENING = "0A"
SECONDS = 50


def listening() -> list[int]:
    """Every port that something on this machine listens on: the suite's servers are among them."""
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)


def policy() -> str:
    """MCP where MCP is spoken, and beside it what its authorization needs."""
    ports = {"ports": listening()}
    mcp = {"path": "/mcp", "protocol": "mcp", "enforcement": "enforce", "mcp": {"allow_all_known_mcp_methods": True}}
    rest = {"protocol": "rest", "enforcement": "enforce", "access": "full"}
    endpoints = [Endpoint("localhost", 1, {**options, **ports}).document() for options in (mcp, rest)]
    for endpoint in endpoints:
        del endpoint["port"]
    text = policy_text()
    return text.replace(
        "network_policies: {}",
        f"network_policies: {json.dumps({'suite': {'endpoints': endpoints, 'binaries': [{'path': '/**'}]}})}",
    )


def main(url: str) -> int:
    command = [sys.executable, str(SDK), url]
    lane = os.environ.get("MCP_SUITE_LANE")
    if lane is None:
        return subprocess.run(command, timeout=SECONDS).returncode
    with (
        EgressProcess(policy(), aliases={"localhost": "127.0.0.1"}, settings=LANES[lane]) as proxy,
        tempfile.TemporaryDirectory() as home,
    ):
        scenario = {name: value for name, value in os.environ.items() if name.startswith("MCP_CONFORMANCE_")}
        workload = Workload(proxy, Path(home))
        workload.environment |= scenario | {"NO_PROXY": "", "no_proxy": ""}
        done = workload.run(*command)
        sys.stderr.write(done.stderr)
        proxy.wait_events(1)
        told = [event.get("http_request", {}).get("http_method") for event in proxy.events()]
        Path(os.environ["MCP_SUITE_TOLD"]).write_text(json.dumps(told))
        return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
