"""Digest authentication to a proxy (RFC 7616): MD5 and SHA-256, quality of protection `auth`. No I/O."""

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from egress.model.secret import Secret

MAX_CHALLENGE = 4096

_ALGORITHMS: dict[str, str] = {"MD5": "md5", "SHA-256": "sha256"}
_STRENGTH = ("SHA-256", "MD5")
_SCHEME = re.compile(r"(?:^|,)\s*([A-Za-z][A-Za-z0-9_-]*)(?=\s+[^=\s]|\s*,|\s*$)")
_PARAMETER = re.compile(r'([A-Za-z][A-Za-z0-9_-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class DigestChallenge:
    """What the proxy wants hashed. Values are as it wrote them, quotes undone."""

    realm: str
    nonce: str
    algorithm: str
    opaque: str | None


def schemes_of(challenges: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the schemes that are offered, lower case."""
    found = (match[1].lower() for text in challenges for match in _schemes(text[:MAX_CHALLENGE]))
    return tuple(dict.fromkeys(found))


def read_challenge(challenges: tuple[str, ...]) -> DigestChallenge | None:
    """The strongest digest challenge that we can answer."""
    readable = [challenge for text in challenges for challenge in _digests(text[:MAX_CHALLENGE])]
    return min(readable, key=lambda challenge: _STRENGTH.index(challenge.algorithm), default=None)


def _schemes(text: str) -> list[re.Match[str]]:
    """Where each scheme begins; what is in quotes begins none."""
    return list(_SCHEME.finditer(_QUOTED.sub(lambda match: '"' + "_" * (len(match[0]) - 2) + '"', text)))


def _digests(text: str) -> list[DigestChallenge]:
    starts = _schemes(text)
    found = []
    for match, following in zip(starts, [*starts[1:], None], strict=True):
        if match[1].lower() == "digest":
            challenge = _challenge(text[match.end() : following.start() if following else len(text)])
            if challenge is not None:
                found.append(challenge)
    return found


def _challenge(text: str) -> DigestChallenge | None:
    values = {name.lower(): _ESCAPE.sub(r"\1", quoted) or bare for name, quoted, bare in _PARAMETER.findall(text)}
    algorithm = values.get("algorithm", "MD5").upper()
    qualities = [quality.strip().lower() for quality in values.get("qop", "").split(",")]
    if "realm" not in values or not values.get("nonce") or algorithm not in _ALGORITHMS or "auth" not in qualities:
        return None
    return DigestChallenge(values["realm"], values["nonce"], algorithm, values.get("opaque"))


class DigestSession:
    """One challenge, answered with a count that never repeats."""

    def __init__(self, challenge: DigestChallenge, nonce: Callable[[], str] = lambda: secrets.token_hex(16)) -> None:
        self.challenge = challenge
        self._client_nonce = nonce
        self._count = 0

    def answer(self, method: str, uri: str, credential: Secret) -> str:
        """The value of `Proxy-Authorization` for one request."""
        self._count += 1
        user, _, password = credential.reveal().partition(":")
        challenge, count, client_nonce = self.challenge, f"{self._count:08x}", self._client_nonce()

        def digest(text: str) -> str:
            return hashlib.new(_ALGORITHMS[challenge.algorithm], text.encode(), usedforsecurity=False).hexdigest()

        secret = digest(f"{user}:{challenge.realm}:{password}")
        request = digest(f"{method}:{uri}")
        response = digest(f"{secret}:{challenge.nonce}:{count}:{client_nonce}:auth:{request}")
        quoted = {
            "username": user, "realm": challenge.realm, "nonce": challenge.nonce, "uri": uri,
            "response": response, "cnonce": client_nonce,
        }  # fmt: skip
        if challenge.opaque is not None:
            quoted["opaque"] = challenge.opaque
        fields = [f'{name}="{_quoted(value)}"' for name, value in quoted.items()]
        return f"Digest {', '.join(fields)}, algorithm={challenge.algorithm}, qop=auth, nc={count}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
