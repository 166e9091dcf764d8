"""The variables that make ordinary programs use the proxy and trust its authority, and how shells spell them."""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

_PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
_NO_PROXY = ("NO_PROXY", "no_proxy")
_LOCAL = "127.0.0.1,localhost,::1"
_ADDS_TO_ROOTS = ("NODE_EXTRA_CA_CERTS", "DENO_CERT")
_REPLACES_ROOTS = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "npm_config_cafile",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
)


@dataclass(frozen=True, slots=True)
class JavaTrust:
    """A PKCS#12 trust store and its password, and where a JVM finds the proxy."""

    store: Path
    password: str
    proxy_host: str
    proxy_port: int


def proxy_url(address: str, user: str = "", password: str = "") -> str:
    """`http://host:port`, with credentials for agents that are known by them."""
    credentials = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    return f"http://{credentials}{address}"


def child_environment(
    proxy_url: str, ca_path: Path, bundle_path: Path, *, java: JavaTrust | None = None
) -> dict[str, str]:
    """What a workload's environment needs on top of what it has. Files are named, nothing is written."""
    variables = dict.fromkeys(_PROXY, proxy_url)
    variables |= dict.fromkeys(_NO_PROXY, _LOCAL)
    variables["NODE_USE_ENV_PROXY"] = "1"
    variables |= dict.fromkeys(_ADDS_TO_ROOTS, str(ca_path))
    variables |= dict.fromkeys(_REPLACES_ROOTS, str(bundle_path))
    if java is not None:
        variables["JAVA_TOOL_OPTIONS"] = _java_options(java)
    return variables


def _java_options(java: JavaTrust) -> str:
    options = {
        "https.proxyHost": java.proxy_host,
        "https.proxyPort": java.proxy_port,
        "http.proxyHost": java.proxy_host,
        "http.proxyPort": java.proxy_port,
        "http.nonProxyHosts": "localhost|127.*|[::1]",
        "javax.net.ssl.trustStore": java.store,
        "javax.net.ssl.trustStoreType": "PKCS12",
        "javax.net.ssl.trustStorePassword": java.password,
    }
    # The JVM splits this variable at blanks and honours quotes around a word.
    words = (f"-D{name}={value}" for name, value in options.items())
    return " ".join(f'"{word}"' if " " in word else word for word in words)


def _sh(variables: Mapping[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def _fish(variables: Mapping[str, str]) -> str:
    def quoted(value: str) -> str:
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    return "".join(f"set -gx {name} {quoted(value)}\n" for name, value in variables.items())


def _dotenv(variables: Mapping[str, str]) -> str:
    """Unquoted: some readers take quotes for part of the value, and none of ours holds a line end."""
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def _json(variables: Mapping[str, str]) -> str:
    return json.dumps(dict(variables), indent=2) + "\n"


FORMATS: Mapping[str, Callable[[Mapping[str, str]], str]] = {
    "sh": _sh,
    "fish": _fish,
    "dotenv": _dotenv,
    "json": _json,
}
