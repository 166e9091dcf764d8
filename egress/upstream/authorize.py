"""What each corporate proxy is told about who we are, from credential files in force and challenges seen."""

from base64 import b64encode
from collections.abc import Callable

from egress.model.secret import Secret
from egress.model.verdict import ReasonCode
from egress.upstream.connect_client import authorization_line
from egress.upstream.credential import AuthScheme
from egress.upstream.digest import DigestSession, read_challenge
from egress.upstream.failure import Failure, Meaning
from egress.upstream.plan import Hop

_EXPIRED = Failure(
    ReasonCode.PROXY_AUTH_REJECTED, Meaning.REJECTED, "needs a credential whose file has been unusable for too long"
)


class Authorizer:
    """Credentials per hop. A digest challenge is kept, so that later requests answer it unasked."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sessions: dict[Hop, DigestSession] = {}

    def secret(self, hop: Hop) -> Secret | Failure | None:
        """None: the hop wants none."""
        if hop.credential is None:
            return None
        return hop.credential.current(self._now()) or _EXPIRED

    def value(self, hop: Hop, method: str, uri: str) -> str | Failure | None:
        """`Proxy-Authorization` for one request; None where there is none, or no challenge for a digest yet."""
        secret = self.secret(hop)
        if not isinstance(secret, Secret) or hop.credential is None:
            return secret if isinstance(secret, Failure) else None
        match hop.credential.scheme:
            case AuthScheme.BASIC:
                return f"Basic {b64encode(secret.reveal().encode()).decode('ascii')}"
            case AuthScheme.BEARER:
                return f"Bearer {secret.reveal()}"
            case AuthScheme.DIGEST:
                session = self._sessions.get(hop)
                return session.answer(method, uri, secret) if session is not None else None

    def line(self, hop: Hop) -> bytes:
        """The field line for a request in absolute-form; nothing where there is no usable credential, which the
        proxy then refuses."""
        value = self.value(hop, "", "")
        return authorization_line(value if isinstance(value, str) else None)

    def learn(self, hop: Hop, challenges: tuple[str, ...]) -> bool:
        """Take up a challenge; True when the next request will answer it."""
        if hop.credential is None or hop.credential.scheme is not AuthScheme.DIGEST:
            return False
        challenge = read_challenge(challenges)
        if challenge is not None:
            self._sessions[hop] = DigestSession(challenge)
        return challenge is not None

    def keep(self, hops: tuple[Hop, ...]) -> None:
        """Forget every other hop."""
        self._sessions = {hop: session for hop, session in self._sessions.items() if hop in hops}
