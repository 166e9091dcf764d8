"""The variables of a workload, and that each shell reads back what was meant."""

import json
import subprocess
from pathlib import Path

from egress.cli.environment import FORMATS, JavaTrust, child_environment, proxy_url

CA, BUNDLE = Path("/tls/ca.pem"), Path("/tls/ca-bundle.pem")
URL = "http://127.0.0.1:3128"


def test_every_client_is_told() -> None:
    assert child_environment(URL, CA, BUNDLE) == {
        "HTTP_PROXY": URL,
        "HTTPS_PROXY": URL,
        "ALL_PROXY": URL,
        "http_proxy": URL,
        "https_proxy": URL,
        "all_proxy": URL,
        "grpc_proxy": URL,
        "NO_PROXY": "127.0.0.1,localhost,::1",
        "no_proxy": "127.0.0.1,localhost,::1",
        "NODE_USE_ENV_PROXY": "1",
        "NODE_EXTRA_CA_CERTS": "/tls/ca.pem",
        "DENO_CERT": "/tls/ca.pem",
        "SSL_CERT_FILE": "/tls/ca-bundle.pem",
        "REQUESTS_CA_BUNDLE": "/tls/ca-bundle.pem",
        "CURL_CA_BUNDLE": "/tls/ca-bundle.pem",
        "GIT_SSL_CAINFO": "/tls/ca-bundle.pem",
        "AWS_CA_BUNDLE": "/tls/ca-bundle.pem",
        "PIP_CERT": "/tls/ca-bundle.pem",
        "CARGO_HTTP_CAINFO": "/tls/ca-bundle.pem",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": "/tls/ca-bundle.pem",
        "npm_config_cafile": "/tls/ca-bundle.pem",
        "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": "/tls/ca-bundle.pem",
    }


def test_java_is_told_in_its_own_words() -> None:
    java = JavaTrust(Path("/with blank/store.p12"), "changeit", "127.0.0.1", 3128)
    assert child_environment(URL, CA, BUNDLE, java=java)["JAVA_TOOL_OPTIONS"] == (
        "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128 -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 "
        '-Dhttp.nonProxyHosts=localhost|127.*|[::1] "-Djavax.net.ssl.trustStore=/with blank/store.p12" '
        "-Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=changeit"
    )


def test_credentials_cannot_break_out_of_the_url() -> None:
    assert proxy_url("[::1]:3128") == "http://[::1]:3128"
    assert proxy_url("127.0.0.1:1", "build-1", "a@b:c/d#e f") == "http://build-1:a%40b%3Ac%2Fd%23e%20f@127.0.0.1:1"


def test_a_shell_reads_back_what_was_meant() -> None:
    value = 'it\'s $HOME `date` "x" \\ *'
    script = FORMATS["sh"]({"EGRESS_TEST": value}) + 'printf %s "$EGRESS_TEST"'
    assert subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout == value


def test_other_formats() -> None:
    variables = {"A": "it's", "B": "x=y z"}
    assert FORMATS["fish"](variables) == "set -gx A 'it\\'s'\nset -gx B 'x=y z'\n"
    assert FORMATS["dotenv"](variables) == "A=it's\nB=x=y z\n"
    assert json.loads(FORMATS["json"](variables)) == variables
