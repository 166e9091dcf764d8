"""The installed command, offline: exit codes, what goes to which stream, and files it writes."""

import json
import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.proxy import COMMAND

POLICY = """\
version: 1
network_policies:
  api:
    endpoints:
      - host: api.test
        port: 443
        protocol: rest
        enforcement: enforce
        rules:
          - allow: {method: GET, path: "/open/**"}
    binaries:
      - path: /usr/bin/curl
tests:
  - {name: reads, request: {url: "https://api.test/open/x"}, binary: /usr/bin/curl, expect: allow}
  - {name: no writes, request: {method: PUT, url: "https://api.test/open/x"}, binary: /usr/bin/curl, expect: {deny: method_path_denied}}
"""  # noqa: E501
BROKEN = "version: 1\nnetwork_policies:\n  api:\n    endpoint: []\n"

PROTOCOLS = """\
version: 1
network_policies:
  tools:
    endpoints:
      - host: mcp.test
        port: 443
        protocol: mcp
        enforcement: enforce
        rules:
          - allow: {method: initialize}
          - allow: {method: tools/call, tool: "read_*"}
      - host: ws.test
        port: 443
        protocol: websocket
        enforcement: enforce
        rules:
          - allow: {method: GET, path: /chat}
          - allow: {method: WEBSOCKET_TEXT, path: /chat}
    binaries: [{path: "/**"}]
"""
PROTOCOL_TESTS = """\
tests:
  - name: reads
    request:
      url: https://mcp.test/mcp
      method: POST
      headers: {accept: "application/json, text/event-stream"}
      body: {jsonrpc: "2.0", id: 1, method: tools/call, params: {name: read_file, arguments: {}}}
    expect: allow
  - name: drops
    request:
      url: https://mcp.test/mcp
      method: POST
      headers: {accept: "application/json, text/event-stream"}
      body: {jsonrpc: "2.0", id: 1, method: tools/call, params: {name: drop, arguments: {}}}
    expect: {deny: tool_denied}
  - {name: talks, request: {url: "wss://ws.test/chat"}, messages: [one, {type: ping}], expect: allow}
  - {name: sends bytes, request: {url: "wss://ws.test/chat"}, messages: [{binary: one}], expect: {deny: policy_denied}}
"""


class Place:
    """A directory with a home and a settings search path of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.policy = self.write("policy.yaml", POLICY)

    def write(self, name: str, content: str) -> Path:
        path = self.path / name
        path.write_text(content)
        path.chmod(0o644)
        return path

    def run(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENSHELL_", "EGRESS_"))}
        return subprocess.run(
            [COMMAND, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=30,
            cwd=self.path,
            env={**kept, "HOME": str(self.path), "XDG_CONFIG_HOME": str(self.path), "COLUMNS": "100", **environment},
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    tmp_path.chmod(0o755)
    return Place(tmp_path)


class TestCheck:
    def test_a_fine_policy(self, place: Place) -> None:
        done = place.run("check", "policy.yaml")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "agent default: 1 entries, 1 endpoints, identity required\n"

    def test_a_broken_policy(self, place: Place) -> None:
        done = place.run("check", place.write("broken.yaml", BROKEN))
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{place.path}/broken.yaml:4:5: error: network_policies.api: unknown key `endpoint`" in done.stderr
        assert "did you mean `endpoints`?" in done.stderr

    def test_findings_as_json(self, place: Place) -> None:
        done = place.run("check", "--json", place.write("broken.yaml", BROKEN))
        assert (done.returncode, done.stderr) == (2, "")
        report = json.loads(done.stdout)
        assert report["ok"] is False
        assert {"file": f"{place.path}/broken.yaml", "line": 4, "column": 5, "severity": "error"}.items() <= report[
            "diagnostics"
        ][0].items()

    def test_strict_fails_on_warnings(self, place: Place) -> None:
        warned = place.write(
            "warned.yaml", POLICY.replace("protocol: rest\n", "protocol: rest\n        tls: terminate\n")
        )
        assert place.run("check", warned).returncode == 0
        assert place.run("check", "--strict", warned).returncode == 2

    def test_settings_with_their_policy(self, place: Place) -> None:
        settings = place.write("egress.yaml", "version: 1\npolicy: {file: policy.yaml}\n")
        assert place.run("check", "--config", settings).returncode == 0
        assert place.run("check", EGRESS_CONFIG=str(settings)).returncode == 0
        settings.write_text("version: 1\npolicy: {file: policy.yaml}\nworkers: 4\n")
        done = place.run("check", "--config", settings)
        assert done.returncode == 2
        assert f"{settings}:3:1: error: workers: not available in this version" in done.stderr

    def test_nothing_to_check(self, place: Place) -> None:
        if Path("/etc/egress/egress.yaml").exists():
            pytest.skip("this machine has settings")
        done = place.run("check")
        assert done.returncode == 2
        assert "there is no settings file in the usual places" in done.stderr


class TestExplain:
    @pytest.mark.parametrize(
        ("arguments", "code", "decision"),
        [
            (("https://api.test/open/x", "--binary", "/no/such/curl"), 10, "deny"),
            (("https://api.test/open/x",), 11, "undecidable"),
            (("other.test:443",), 10, "deny"),
        ],
    )
    def test_exit_codes(self, place: Place, arguments: tuple[str, ...], code: int, decision: str) -> None:
        done = place.run("explain", *arguments, "--policy", "policy.yaml", "--json")
        assert done.returncode == code
        assert json.loads(done.stdout)["decision"] == decision

    def test_an_allowed_request_in_words(self, place: Place) -> None:
        policy = place.write("any.yaml", POLICY.replace("/usr/bin/curl", "/**"))
        done = place.run("explain", "https://api.test/open/x", "--policy", policy)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("ALLOW  GET https://api.test/open/x  (agent default)\n")
        assert f"decided by api/endpoints[0]/rules[0] at {policy}:10:13\n" in done.stdout

    def test_a_denial_shows_what_the_client_gets(self, place: Place) -> None:
        policy = place.write("any.yaml", POLICY.replace("/usr/bin/curl", "/**"))
        done = place.run("explain", "-X", "PUT", "https://api.test/open/x", "--policy", policy, "--json")
        answer = json.loads(done.stdout)
        assert (done.returncode, answer["status"], answer["body"]["error"]) == (10, 403, "policy_denied")
        assert answer["closest"] == [
            f"api/endpoints[0]/rules[0] ({policy}:10:13) misses by method: it lists GET /open/**"
        ]

    def test_bodies_and_messages(self, place: Place) -> None:
        policy = place.write("protocols.yaml", PROTOCOLS)
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "drop", "arguments": {}}}
        body = place.write("call.json", json.dumps(call))
        done = place.run(
            "explain", "https://mcp.test/mcp", "--header", "Accept: application/json, text/event-stream",
            "--body", f"@{body}", "--policy", policy,
        )  # fmt: skip
        assert done.returncode == 10
        assert done.stdout.startswith("DENY  POST https://mcp.test/mcp  (agent default)\n")
        assert "misses by tool: it lists method tools/call, tool read_*\n" in done.stdout
        assert "the client gets 200:\n" in done.stdout
        ask = ("explain", "wss://ws.test/chat", "--policy", policy, "--json", "--message", "one")
        assert place.run(*ask).returncode == 0
        refused = place.run(*ask, "--binary-message", "two")
        assert (refused.returncode, json.loads(refused.stdout)["close"]) == (10, 1003)
        assert place.run("explain", "https://mcp.test/mcp", "-X", "POST", "--policy", policy).returncode == 11
        for wrong in (("--header", "nonsense"), ("--body", "@/no/such/file")):
            assert place.run("explain", "https://mcp.test/mcp", *wrong, "--policy", policy).returncode == 2

    def test_policy_tests_of_bodies_and_messages(self, place: Place) -> None:
        policy = place.write("protocols.yaml", PROTOCOLS + PROTOCOL_TESTS)
        done = place.run("test", "--policy", policy)
        assert (done.returncode, done.stdout) == (
            0, "ok    reads\nok    drops\nok    talks\nok    sends bytes\n4 passed, 0 failed\n"
        )  # fmt: skip

    def test_an_invalid_policy_or_question(self, place: Place) -> None:
        broken = place.write("broken.yaml", BROKEN)
        assert place.run("explain", "https://api.test/", "--policy", broken).returncode == 2
        done = place.run("explain", "nonsense", "--policy", "policy.yaml")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("egress: `nonsense` is no host:port")


class TestPolicyTests:
    def test_inline_tests(self, place: Place) -> None:
        done = place.run("test", "--policy", "policy.yaml")
        assert (done.returncode, done.stdout) == (0, "ok    reads\nok    no writes\n2 passed, 0 failed\n")

    def test_a_failing_test_says_what_came_instead(self, place: Place) -> None:
        tests = place.write(
            "tests.yaml", 'tests:\n  - {name: wrong, request: {connect: "api.test:80"}, expect: allow}\n'
        )
        done = place.run("test", tests, "--policy", "policy.yaml", "--json")
        assert done.returncode == 1
        report = json.loads(done.stdout)
        assert [(test["name"], test["ok"]) for test in report["tests"]] == [
            ("reads", True), ("no writes", True), ("wrong", False),
        ]  # fmt: skip
        assert report["tests"][2]["got"].startswith("deny policy_denied/port_not_listed")

    def test_no_tests_are_no_success(self, place: Place) -> None:
        policy = place.write("bare.yaml", POLICY.partition("tests:")[0])
        done = place.run("test", "--policy", policy)
        assert (done.returncode, done.stdout) == (2, "")


class TestAuthority:
    def test_made_once_and_handed_out(self, place: Place) -> None:
        first, second = (place.run("ca", "init", "--dir", "ca").stdout for _ in range(2))
        assert first == second == f"certificate  {place.path}/ca/ca.pem\nbundle       {place.path}/ca/ca-bundle.pem\n"
        assert (place.path / "ca" / "ca-key.pem").stat().st_mode & 0o777 == 0o600
        exported = place.run("ca", "export", "--dir", "ca").stdout
        assert exported == (place.path / "ca" / "ca.pem").read_text()
        assert place.run("ca", "bundle", "out.pem", "--dir", "ca").returncode == 0
        assert (place.path / "out.pem").read_text().endswith(exported)

    def test_shown_without_its_key(self, place: Place) -> None:
        place.run("ca", "init", "--dir", "ca")
        facts = json.loads(place.run("ca", "show", "--dir", "ca", "--json").stdout)
        pem = (place.path / "ca" / "ca.pem").read_text()
        assert ssl.PEM_cert_to_DER_cert(pem)
        assert facts["subject"].startswith("CN=egress local authority ")
        assert "key" not in facts
        rotated = place.run("ca", "rotate", "--dir", "ca")
        assert rotated.returncode == 0
        assert json.loads(place.run("ca", "show", "--dir", "ca", "--json").stdout)["sha256"] != facts["sha256"]

    def test_certificates_pass_strict_lint(self, place: Place) -> None:
        lint = Path(sys.executable).with_name("lint_pkix_cert")
        place.run("ca", "init", "--dir", "ca")
        done = subprocess.run(
            [lint, "lint", "-s", "WARNING", place.path / "ca" / "ca.pem"], capture_output=True, text=True, timeout=30
        )
        assert (done.returncode, done.stdout.strip()) == (0, "")

    def test_none_yet(self, place: Place) -> None:
        done = place.run("ca", "show", "--dir", "ca")
        assert (done.returncode, done.stdout) == (1, "")
        assert "`egress ca init` makes one" in done.stderr

    def test_an_open_key_is_refused(self, place: Place) -> None:
        place.run("ca", "init", "--dir", "ca")
        (place.path / "ca" / "ca-key.pem").chmod(0o644)
        done = place.run("ca", "init", "--dir", "ca")
        assert done.returncode == 1
        assert "may be read by others" in done.stderr


class TestEnvironment:
    @pytest.fixture
    def settings(self, place: Place) -> Path:
        place.run("ca", "init", "--dir", "ca")
        return place.write("egress.yaml", "version: 1\npolicy: {file: policy.yaml}\ntls: {ca_dir: ca}\n")

    def test_a_shell_can_evaluate_it(self, place: Place, settings: Path) -> None:
        script = f'eval "$({COMMAND} env --config {settings})"; echo "$HTTPS_PROXY $SSL_CERT_FILE"'
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=30)
        assert done.stdout == f"http://127.0.0.1:3128 {place.path}/ca/ca-bundle.pem\n"

    def test_other_formats(self, place: Place, settings: Path) -> None:
        dotenv = place.run("env", "--config", settings, "--format", "dotenv").stdout
        as_json = json.loads(place.run("env", "--config", settings, "--format", "json").stdout)
        assert dict(line.split("=", 1) for line in dotenv.splitlines()) == as_json

    def test_an_agent_gets_its_credential(self, place: Place, settings: Path) -> None:
        place.write("password", "s3cret/\n").chmod(0o600)
        agent = "agents: [{name: a, match: {proxy_auth: {user: u, password_file: password}}}]\n"
        settings.write_text(settings.read_text() + agent)
        variables = json.loads(place.run("env", "--config", settings, "--agent", "a", "--format", "json").stdout)
        assert variables["HTTPS_PROXY"] == "http://u:s3cret%2F@127.0.0.1:3128"
        assert place.run("env", "--config", settings, "--agent", "b").returncode == 2

    def test_java_gets_a_trust_store(self, place: Place, settings: Path) -> None:
        keytool = shutil.which("keytool")
        if keytool is None:
            pytest.skip("no JVM here")
        done = place.run("env", "--config", settings, "--java", place.path, "--format", "json")
        assert "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128" in json.loads(done.stdout)["JAVA_TOOL_OPTIONS"]
        listed = subprocess.run(
            [keytool, "-list", "-keystore", place.path / "ca-truststore.p12", "-storepass", "changeit"],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        roots = (place.path / "ca" / "ca-bundle.pem").read_text().count("BEGIN CERTIFICATE")
        assert f"contains {roots} entries" in listed.stdout
        assert listed.stdout.count("trustedCertEntry") == roots

    def test_before_the_first_start(self, place: Place) -> None:
        settings = place.write("egress.yaml", "version: 1\npolicy: {file: policy.yaml}\ntls: {ca_dir: none}\n")
        done = place.run("env", "--config", settings)
        assert (done.returncode, done.stdout) == (1, "")
        assert "does not exist yet" in done.stderr

    def test_a_proxy_that_is_not_running(self, place: Place, settings: Path) -> None:
        assert place.run("env", "--config", settings, "--ready-file", "none.json").returncode == 3


class TestDoctor:
    def test_looks_at_everything(self, place: Place) -> None:
        text = "version: 1\npolicy: {file: policy.yaml}\nstate_dir: state\nlisten: {proxy: '127.0.0.1:0'}\n"
        settings = place.write("egress.yaml", text)
        done = place.run("doctor", "--config", settings, "--json")
        checks = json.loads(done.stdout)
        states = {check["name"]: check["state"] for check in checks}
        assert done.returncode == 0, checks
        assert states.keys() >= {"settings", "port", "descriptors", "authority", "roots", "identity", "names"}
        assert (states["port"], states["authority"], states["roots"]) == ("ok", "ok", "ok")
        assert any("connections are traced to programs" in check["detail"] for check in checks)

    def test_finds_what_is_wrong(self, place: Place) -> None:
        place.run("ca", "init", "--dir", "ca")
        (place.path / "ca" / "ca-key.pem").chmod(0o640)
        place.policy.chmod(0o666)
        text = (
            "version: 1\npolicy: {file: policy.yaml}\nlisten: {proxy: '192.0.2.1:3128'}\n"
            "tls: {ca_dir: ca, upstream_ca_file: policy.yaml}\n"
        )
        done = place.run("doctor", "--config", place.write("egress.yaml", text), "--json")
        problems = [check["detail"] for check in json.loads(done.stdout) if check["state"] == "problem"]
        assert done.returncode == 1
        assert [detail.partition(":")[0] for detail in problems] == [
            "192.0.2.1",
            "local authority",
            "upstream trust",
            f"{place.policy} may be written by everybody",
        ]


class TestReference:
    def test_settings(self, place: Place) -> None:
        text = place.run("reference", "settings").stdout
        assert "| `listen.proxy` | address or list of addresses | `127.0.0.1:3128` | r | where clients reach" in text
        assert "| `workers` | int | `1` | - |" in text

    @pytest.mark.parametrize(
        ("topic", "line"),
        [
            ("codes", "| `policy_denied` | 403 | l4 | no |"),
            ("limits", "| `proxy_head_bytes` | 8192 |"),
            ("commands", "| `egress ca init` | Make the authority, unless there is one already. |"),
            ("ranges", "| `169.254.169.254/32` | metadata | blocked |"),
        ],
    )
    def test_other_topics(self, place: Place, topic: str, line: str) -> None:
        assert line in place.run("reference", topic).stdout

    def test_every_command_has_help(self, place: Place) -> None:
        rows = [row for row in place.run("reference", "commands").stdout.splitlines() if row.startswith("| `egress ")]
        for row in rows:
            command = row.split("`")[1].split()[1:]
            done = place.run(*command, "--help")
            assert done.returncode == 0, command
            assert row.split("|")[2].split()[0] in done.stdout, command
        assert len(rows) >= 14


def test_version_and_usage(place: Place) -> None:
    assert place.run("--version").stdout.startswith("egress ")
    wrong = place.run("chekc")
    assert (wrong.returncode, wrong.stdout) == (2, "")


@pytest.mark.parametrize("arguments", [["check", "policy.yaml"], ["test", "--policy", "policy.yaml"]])
def test_offline_commands_do_not_pay_for_a_proxy(place: Place, arguments: list[str]) -> None:
    program = (
        "import sys\nfrom egress.cli.main import main\ntry: main()\n"
        "except SystemExit as end: code = end.code\n"
        "heavy = {'mitmproxy', 'botocore', 'cryptography', 'graphql', 'rich'} & set(sys.modules)\n"
        "print(code, sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=30, cwd=place.path,
        env={**os.environ, "HOME": str(place.path), "XDG_CONFIG_HOME": str(place.path)},
    )  # fmt: skip
    assert done.stderr == "0 []\n"


def test_output_that_nobody_reads(place: Place) -> None:
    done = subprocess.run(["sh", "-c", f"{COMMAND} reference | head -1"], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("# Settings\n", "")
