"""Corporate proxies as distributions ship them: Squid, tinyproxy, Dante and microsocks."""

import hashlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

USER, PASSWORD = "build", "s3cret:with colon"
CREDENTIAL = f"{USER}:{PASSWORD}"
REALM = "corp"
START_SECONDS = 30.0
_HELPERS = Path("/usr/lib/squid")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def credential_file(directory: Path, text: str = CREDENTIAL, name: str = "credential") -> Path:
    """A file only we may read."""
    path = directory / name
    path.touch(mode=0o600)
    path.write_text(text)
    path.chmod(0o600)
    return path


class Daemon:
    """A server process in the foreground, up once its port answers. Use as a context manager."""

    user = "root"

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="corp-"))
        self.directory.chmod(0o755)
        self.port = free_port()
        self.log = self.directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        if os.geteuid() == 0:
            account = pwd.getpwnam(self.user)
            os.chown(self.directory, account.pw_uid, account.pw_gid)
        output = (self.directory / "output").open("wb")
        self._process = subprocess.Popen(
            self.command(), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        output.close()
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(f"{self.command()[0]} did not start:\n{self.output()}") from None
                time.sleep(0.02)
            else:
                return

    def output(self) -> str:
        return (self.directory / "output").read_text(errors="replace")

    def asked(self) -> str:
        """What the proxy wrote about the requests it saw."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "".join(line for line in text.splitlines(keepends=True) if "transaction-end-before-headers" not in line)

    def saw(self, text: str, within: float = 10.0) -> bool:
        """True once the log has that text; tunnels are logged when they end."""
        end = time.monotonic() + within
        while text not in self.asked():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for shared in Path("/dev/shm").glob(f"corp{self.port}-*"):
            shared.unlink()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class Squid(Daemon):
    """Squid on loopback. `rules` stand before `http_access allow all`; `hosts` is what it resolves names with."""

    user = "proxy"

    def __init__(
        self,
        *rules: str,
        auth: str | None = None,
        tls: tuple[bytes, bytes] | None = None,
        client_ca: Path | None = None,
        hosts: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._rules = rules
        self._auth = auth
        self._hosts = hosts or {}
        self._listen = f"http_port 127.0.0.1:{self.port}"
        if tls is not None:
            pair = self.directory / "pair.pem"
            pair.write_bytes(b"".join(tls))
            self._listen = f"https_port 127.0.0.1:{self.port} tls-cert={pair}"
            if client_ca is not None:
                self._listen += f" clientca={client_ca}"

    def command(self) -> list[str]:
        (self.directory / "hosts").write_text("".join(f"{ip} {name}\n" for name, ip in self._hosts.items()))
        configuration = self.directory / "squid.conf"
        configuration.write_text("\n".join(self._lines()) + "\n")
        # Shared memory is named after the service, and two Squids must not meet in it.
        return ["squid", "-N", "-n", f"corp{self.port}", "-f", str(configuration)]

    def _lines(self) -> list[str]:
        lines = [
            self._listen,
            f"pid_filename {self.directory}/pid",
            f"cache_log {self.directory}/cache.log",
            "logformat asked %rm %ru %>Hs %un",
            f"access_log stdio:{self.log} asked",
            "logfile_rotate 0",
            "buffered_logs off",
            f"coredump_dir {self.directory}",
            f"hosts_file {self.directory}/hosts",
            "cache deny all",
            "cache_mem 4 MB",
            "workers 1",
            "pinger_enable off",
            "shutdown_lifetime 0 seconds",
            "max_filedescriptors 512",
            *self._auth_lines(),
            *self._rules,
            "http_access allow all",
        ]
        return [*lines, "cache_effective_user proxy"] if os.geteuid() == 0 else lines

    def _auth_lines(self) -> list[str]:
        if self._auth is None:
            return []
        passwords = self.directory / "passwords"
        if self._auth == "basic":
            hashed = subprocess.run(
                ["openssl", "passwd", "-apr1", "-stdin"], input=PASSWORD, capture_output=True, text=True, check=True
            ).stdout.strip()
            passwords.write_text(f"{USER}:{hashed}\n")
            helper = f"auth_param basic program {_HELPERS}/basic_ncsa_auth {passwords}"
        else:
            secret = hashlib.md5(f"{USER}:{REALM}:{PASSWORD}".encode()).hexdigest()
            passwords.write_text(f"{USER}:{REALM}:{secret}\n")
            helper = f"auth_param digest program {_HELPERS}/digest_file_auth -c {passwords}"
        return [
            helper,
            f"auth_param {self._auth} children 1 startup=1",
            f"auth_param {self._auth} realm {REALM}",
            "acl known proxy_auth REQUIRED",
            "http_access deny !known",
        ]


NO_ADDRESSES = (
    r"acl literal url_regex ^\[?[0-9a-f:.]+\]?:[0-9]+$",
    "http_access deny CONNECT literal",
)
"""Rules of a Squid that refuses tunnels to addresses."""


class TinyProxy(Daemon):
    """tinyproxy, which answers in HTTP/1.0."""

    def __init__(self, *, basic: bool = False) -> None:
        super().__init__()
        self._basic = basic

    def command(self) -> list[str]:
        configuration = self.directory / "tinyproxy.conf"
        lines = [
            f"Port {self.port}", "Listen 127.0.0.1", "Timeout 60", f'LogFile "{self.log}"', "LogLevel Connect",
            "MaxClients 50",
        ]  # fmt: skip
        if self._basic:
            lines.append("BasicAuth build s3cret")
        configuration.write_text("\n".join(lines) + "\n")
        return ["tinyproxy", "-d", "-c", str(configuration)]


class Dante(Daemon):
    """Dante's SOCKS server."""

    def command(self) -> list[str]:
        configuration = self.directory / "danted.conf"
        configuration.write_text(
            f"""logoutput: {self.log}
internal: 127.0.0.1 port = {self.port}
external: 127.0.0.1
clientmethod: none
socksmethod: none
user.privileged: root
user.unprivileged: nobody
client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 log: connect }}
"""
        )
        return ["danted", "-f", str(configuration), "-p", str(self.directory / "pid")]


class MicroSocks(Daemon):
    """microsocks, which wants user and password."""

    def command(self) -> list[str]:
        return ["microsocks", "-i", "127.0.0.1", "-p", str(self.port), "-u", "build", "-P", "s3cret"]
