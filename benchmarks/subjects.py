"""The proxies under test: how each is configured to do the same work, and started.

Every one allows the benchmark host, verifies the origin's certificate, passes the raw port through and inspects the
other. The peers swap an Authorization placeholder and add one header, which is what people use them for.
"""

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lab import HOST, Lab

ADDON = Path(__file__).with_name("mitmdump_addon.py")
SQUID_USER = "proxy"
MAX_TUNNELS = 4096

SQUID_CONFIGURATION = """
http_port 127.0.0.1:{port} ssl-bump tls-cert={scratch}/squid-ca.pem generate-host-certificates=on \
dynamic_cert_mem_cache_size=4MB
sslcrtd_program {certgen} -s {home}/certificates -M 4MB
sslcrtd_children 1 startup=1 idle=1
tls_outgoing_options cafile={scratch}/origin-ca.pem
hosts_file {home}/hosts
acl raw port {raw}
acl tls_hello at_step SslBump1
ssl_bump splice raw
ssl_bump peek tls_hello
ssl_bump bump all
acl known dstdomain {host}
http_access allow known
http_access deny all
request_header_access Authorization deny all
request_header_add Authorization "Bearer real-secret" all
request_header_add X-Injected 1 all
cache deny all
cache_mem 8 MB
access_log none
cache_log {home}/cache.log
pid_filename {home}/squid.pid
coredump_dir {home}
workers 1
shutdown_lifetime 1 second
pinger_enable off
max_filedescriptors 16384
via off
forwarded_for delete
"""

EGRESS_SETTINGS = """
version: 1
listen: {{proxy: "127.0.0.1:{port}"}}
state_dir: {home}/state
engine: {{fast_lane: {fast_lane}}}
policy: {{file: {home}/policy.yaml}}
destinations: {{aliases: {{{host}: 127.0.0.1}}}}
tls: {{upstream_ca_file: {scratch}/origin-ca.pem}}
limits: {{connections: {tunnels}, connections_per_caller: {tunnels}}}
events:
  dir: {home}/log
  jsonl: {{enabled: true, path: {home}/events.jsonl}}
"""

POLICY_ORIGIN = """
  benchmark:
    endpoints:
      - host: {host}
        port: {inspected}
        protocol: rest
        enforcement: enforce
        rules:
          - allow: {{method: GET, path: "/**"}}
          - allow: {{method: POST, path: /up}}
      - {{host: {host}, port: {raw}, tls: skip}}
    binaries: [{{path: "{client}"}}]
"""

POLICY_OTHER = """
  service-{number:02}:
    endpoints:
      - host: api-{number:02}.vendor.test
        port: 443
        protocol: rest
        enforcement: enforce
        rules:
          - allow: {{method: GET, path: "/v1/**"}}
          - allow: {{method: POST, path: "/v1/items/*"}}
      - {{host: "*.cdn-{number:02}.vendor.test", port: 443, protocol: rest, enforcement: enforce, access: read-only}}
    binaries: [{{path: /usr/bin/curl}}, {{path: "/usr/lib/**/node"}}]
"""

OTHER_ENTRIES = 24  # of two endpoints each: 50 with the benchmark's own two


@dataclass(frozen=True, slots=True)
class Subject:
    """A proxy, or the bare origin when there is nothing to start."""

    name: str
    prepare: Callable[[Lab, int], Sequence[str]] | None
    speaks_http2: bool = False


def _squid(lab: Lab, port: int) -> Sequence[str]:
    home = _fresh(lab.scratch / "squid")
    (home / "hosts").write_text(f"127.0.0.1 {HOST}\n")
    subprocess.run(
        [str(lab.tools.certgen), "-c", "-s", str(home / "certificates"), "-M", "4MB"],
        capture_output=True,
        timeout=30,
        check=True,
    )
    configuration = home / "squid.conf"
    configuration.write_text(
        SQUID_CONFIGURATION.format(
            port=port, raw=lab.raw_port, host=HOST, home=home, scratch=lab.scratch, certgen=lab.tools.certgen
        )
    )
    if os.geteuid() == 0:
        _give(home, SQUID_USER)
    return [str(lab.tools.squid), "-N", "-f", str(configuration)]


def _give(directory: Path, user: str) -> None:
    """Started by root, Squid drops to its own user and must own its files."""
    uid = pwd.getpwnam(user).pw_uid
    for path in (directory, *directory.rglob("*")):
        os.chown(path, uid, -1)


def _mitmdump(lab: Lab, port: int) -> Sequence[str]:
    settings = [
        f"confdir={lab.scratch}/mitmdump",
        f"ssl_verify_upstream_trusted_ca={lab.origin_ca}",
        "flow_detail=0",
        "stream_large_bodies=1m",
    ]
    command = [str(lab.tools.mitmdump), "-q", "--listen-host", "127.0.0.1", "-p", str(port), "-s", str(ADDON)]
    command += ["--ignore-hosts", f":{lab.raw_port}$"]
    return command + [part for setting in settings for part in ("--set", setting)]


def _egress(lab: Lab, port: int, fast_lane: str) -> Sequence[str]:
    home = _fresh(lab.scratch / "egress")
    (home / "policy.yaml").write_text(_policy(lab))
    settings = home / "egress.yaml"
    settings.write_text(
        EGRESS_SETTINGS.format(
            port=port, home=home, scratch=lab.scratch, host=HOST, fast_lane=fast_lane, tunnels=MAX_TUNNELS
        )
    )
    return [str(lab.tools.egress), "serve", "--config", str(settings), "--ready-file", str(home / "ready.json")]


def _policy(lab: Lab) -> str:
    own = POLICY_ORIGIN.format(host=HOST, inspected=lab.inspected_port, raw=lab.raw_port, client=lab.loadgen)
    others = "".join(POLICY_OTHER.format(number=n) for n in range(OTHER_ENTRIES))
    return f"version: 1\nnetwork_policies:{own}{others}"


def _egress_fast(lab: Lab, port: int) -> Sequence[str]:
    return _egress(lab, port, "auto")


def _egress_mitm(lab: Lab, port: int) -> Sequence[str]:
    return _egress(lab, port, "'off'")


def _fresh(home: Path) -> Path:
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    home.chmod(0o755)
    return home


SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject("direct", None, speaks_http2=True),
        Subject("egress", _egress_fast),
        Subject("egress-mitm", _egress_mitm, speaks_http2=True),
        Subject("squid", _squid),
        Subject("mitmdump", _mitmdump, speaks_http2=True),
    )
}
