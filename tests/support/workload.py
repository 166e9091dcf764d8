"""Programs as a workload runs them: with the environment that the product prints, and nothing else in the way."""

import subprocess
import sys
from pathlib import Path

from egress.cli.environment import child_environment
from tests.support.proxy import EgressProcess, plain_environment

SECONDS = 50.0


class Workload:
    """A directory to work in, and commands that see the proxy through their environment only."""

    def __init__(self, proxy: EgressProcess, directory: Path) -> None:
        self.directory = directory
        home = directory / "home"
        home.mkdir(exist_ok=True)
        self.environment = plain_environment(
            **child_environment(proxy.url, proxy.ca, proxy.bundle),
            HOME=str(home),
            GIT_CONFIG_GLOBAL="/dev/null",
            GIT_CONFIG_SYSTEM="/dev/null",
            GIT_TERMINAL_PROMPT="0",
            PIP_CONFIG_FILE="/dev/null",
            PIP_DISABLE_PIP_VERSION_CHECK="1",
            npm_config_userconfig=str(home / "npmrc"),
            npm_config_globalconfig=str(home / "global-npmrc"),
            npm_config_update_notifier="false",
        )

    def run(self, *command: str | Path, feed: bytes | None = None, **environment: str) -> subprocess.CompletedProcess:  # type: ignore[type-arg]
        """Run to the end; output is text."""
        done = subprocess.run(
            [str(word) for word in command],
            input=feed,
            capture_output=True,
            cwd=self.directory,
            env=self.environment | environment,
            timeout=SECONDS,
            check=False,
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )

    def start(self, *command: str | Path) -> "subprocess.Popen[bytes]":
        """Start without waiting; output through pipes."""
        return subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.directory,
            env=self.environment,
        )

    def python(self, script: str, *arguments: str) -> subprocess.CompletedProcess:  # type: ignore[type-arg]
        """Run a script under the interpreter of the tests."""
        return self.run(sys.executable, "-c", script, *arguments)
