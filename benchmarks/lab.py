"""The laboratory: work directory, certificates, documents to serve, ports and cores that every subject shares."""

import datetime
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from benchmarks import toolchain
from benchmarks.toolchain import Tools

HOST = "bench.test"
WORK = Path(__file__).with_name(".work")
SMALL = b'{"ok":true,"pad":"' + b"x" * 178 + b'"}'
BULK_BYTES = 64 * 1024 * 1024

type SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class Cores:
    """One core for the subject; client and origin share what is left. Their own ceiling is several times Squid's."""

    client: int
    origin: int
    subject: int


@dataclass(frozen=True, slots=True)
class Lab:
    tools: Tools
    loadgen: Path
    scratch: Path  # removed at the end; readable by the user Squid drops to
    origin_ca: Path
    inspected_port: int
    raw_port: int
    cores: Cores

    @property
    def inspected(self) -> str:
        return f"{HOST}:{self.inspected_port}"

    @property
    def raw(self) -> str:
        return f"{HOST}:{self.raw_port}"


@contextmanager
def laboratory(tools: Tools) -> Iterator[Lab]:
    WORK.mkdir(exist_ok=True)
    with ExitStack() as stack:
        scratch = Path(tempfile.mkdtemp(prefix="egress-bench-"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        scratch.chmod(0o755)
        _write_certificates(scratch)
        _write_documents(scratch / "www")
        inspected, raw = free_ports(2)
        yield Lab(
            tools=tools,
            loadgen=toolchain.build_load_generator(WORK),
            scratch=scratch,
            origin_ca=scratch / "origin-ca.pem",
            inspected_port=inspected,
            raw_port=raw,
            cores=_cores(),
        )


def _cores() -> Cores:
    usable = sorted(os.sched_getaffinity(0))
    return Cores(client=usable[0], origin=usable[1] if len(usable) > 2 else usable[0], subject=usable[-1])


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now. All are held until the last is known, so that they differ."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


def _write_documents(www: Path) -> None:
    www.mkdir()
    (www / "small").write_bytes(SMALL)
    chunk = secrets.token_bytes(1024 * 1024)
    with (www / "bulk").open("wb") as out:
        for _ in range(BULK_BYTES // len(chunk)):
            out.write(chunk)


def _write_certificates(scratch: Path) -> None:
    """An authority and a leaf for the origin; authorities for the two peers, of the kind each makes for itself."""
    origin_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _authority("Benchmark Origin CA", origin_key)
    (scratch / "origin-ca.pem").write_bytes(authority.public_bytes(Encoding.PEM))
    leaf = _leaf(leaf_key, authority, origin_key)
    (scratch / "origin.pem").write_bytes(leaf.public_bytes(Encoding.PEM))
    (scratch / "origin.key").write_bytes(_pem(leaf_key))
    squid_key = ec.generate_private_key(ec.SECP256R1())
    squid = _authority("Benchmark Squid CA", squid_key)
    (scratch / "squid-ca.pem").write_bytes(_pem(squid_key) + squid.public_bytes(Encoding.PEM))
    mitm_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    mitm = _authority("Benchmark mitmdump CA", mitm_key)
    (scratch / "mitmdump").mkdir()
    (scratch / "mitmdump" / "mitmproxy-ca.pem").write_bytes(_pem(mitm_key) + mitm.public_bytes(Encoding.PEM))


def _pem(key: SigningKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _builder(subject: str, issuer: x509.Name | None, key: SigningKey) -> x509.CertificateBuilder:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer or name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _authority(name: str, key: SigningKey) -> x509.Certificate:
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _builder(name, None, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )


def _leaf(key: SigningKey, issuer: x509.Certificate, issuer_key: SigningKey) -> x509.Certificate:
    names = x509.SubjectAlternativeName([x509.DNSName(HOST), x509.DNSName("localhost")])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        _builder(HOST, issuer.subject, key)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
