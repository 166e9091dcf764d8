"""Values and where they belong, of one revision; and the view of them that one request has (credentials.md sections 4
and 10). Immutable: a refresh makes the next one."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from egress.credentials.placeholder import Form, Placeholder, spell, whole
from egress.credentials.scope import Place, Scope
from egress.model.secret import Secret

_UNSAFE = re.compile(r"[\r\n\0]")
RETAINED_GENERATIONS = 8
REMEMBERED_REVISIONS = 1 << 16
"""Of the last so many; placeholders of older ones have no value any more."""
REMEMBERED = 4096
SCRUBBED_BYTES = 8
"""Shorter values are not looked for in replies: they would be found everywhere."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a value stands in a request, by the profile; `when` is the provider's `inject`."""

    style: str
    header: str = "Authorization"
    query: str = ""
    path_template: str = ""
    username: str = ""
    when: str = "never"


@dataclass(frozen=True, slots=True)
class Credential:
    """One value. `scope` None: configuration, visible everywhere. `expires` is seconds since the epoch. With a
    `handle` its placeholder is stable while the value rotates; without one it names the revision."""

    provider: str
    key: str
    secret: Secret
    scope: Scope | None
    expires: float | None = None
    identity: str = ""
    handle: str = ""
    placement: Placement | None = None
    shape: str = ""
    """What the placeholder begins with for clients that check the shape of a key."""

    def usable(self, now: float) -> bool:
        return self.expires is None or self.expires > now


class Fault(StrEnum):
    """Why a placeholder gives no value."""

    MISMATCH = "mismatch"
    UNAVAILABLE = "unavailable"
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True)
class _Epoch:
    """Since which revision, counted from the first, one identity has a key; others never answer to its revisions."""

    identity: str
    since: int


@dataclass(frozen=True, slots=True, eq=False)
class CredentialSnapshot:
    """Made by `empty`, `next` and `revoked` alone. Its repr shows counts."""

    revision: int = 0
    retain: str = "current"
    _entries: Mapping[str, Credential] = field(default_factory=dict)
    _known: frozenset[str] = frozenset()
    _epochs: Mapping[str, _Epoch] = field(default_factory=dict)
    _issued: Mapping[int, int] = field(default_factory=dict)
    """The revisions that gave out placeholders, with their number in order."""
    _generations: tuple[tuple[int, Mapping[str, Credential]], ...] = ()
    _placed: tuple[Credential, ...] = ()
    """Those that are placed without being asked for."""
    _reach: dict[tuple[str, Place], bool] = field(default_factory=dict)
    """What was asked before; emptied when it is full."""
    _authorities: dict[tuple[str, int], bool] = field(default_factory=dict)
    """The same for `credentialed`."""

    def __repr__(self) -> str:
        return f"CredentialSnapshot({len(self._entries)} values)"

    @staticmethod
    def empty() -> "CredentialSnapshot":
        return CredentialSnapshot()

    def next(self, credentials: Sequence[Credential], *, retain: str = "current") -> "CredentialSnapshot":
        """The snapshot after a valid fetch of everything."""
        revision = int.from_bytes(os.urandom(8)) or 1
        entries = {one.key: one for one in credentials}
        bound = {key: one for key, one in entries.items() if one.scope is not None}
        unmanaged = {key: one for key, one in entries.items() if not one.handle}
        issued = self._with_issued(revision) if unmanaged else self._issued
        kept = self._generations if _identities(self._entries) == _identities(entries) else ()
        return CredentialSnapshot(
            revision,
            retain,
            entries,
            self._known | bound.keys(),
            {key: self._epoch(key, one.identity, issued[revision]) for key, one in bound.items() if not one.handle},
            issued,
            ((revision, unmanaged), *kept)[:RETAINED_GENERATIONS],
            tuple([one for one in bound.values() if one.placement is not None and one.placement.when != "never"]),
        )

    def revoked(self, *, keep_epochs: bool = True) -> "CredentialSnapshot":
        """No values. Epochs outlive an outage, so that placeholders recover with the same identity."""
        epochs = self._epochs if keep_epochs else {}
        return CredentialSnapshot(
            int.from_bytes(os.urandom(8)) or 1, self.retain, {}, self._known, epochs, self._issued
        )

    def _epoch(self, key: str, identity: str, number: int) -> _Epoch:
        before = self._epochs.get(key)
        return before if before is not None and before.identity == identity else _Epoch(identity, number)

    def _with_issued(self, revision: int) -> dict[int, int]:
        issued = dict(self._issued)
        number = next(reversed(issued.values()), 0) + 1
        if len(issued) >= REMEMBERED_REVISIONS:
            del issued[next(iter(issued))]
        issued[revision] = number
        return issued

    # what others ask ---------------------------------------------------------------------------------------------

    def served(self, agent: str) -> dict[str, Credential]:
        """Variable to credential, of every provider that serves the agent. The first that has a key has its name."""
        named: dict[str, Credential] = {}
        for key, one in self._entries.items():
            if one.scope is None or one.scope.serves(agent):
                plain = _plain_key(one)
                named[plain if plain not in named else key] = one
        return named

    def placeholders(self, agent: str) -> dict[str, str]:
        """Variable to placeholder, for the environment of the agent."""
        return {
            name: spell(one.key, revision=self.revision if self.revision else None, handle=one.handle)
            for name, one in self.served(agent).items()
        }

    def expiry(self, key: str) -> float | None:
        """When the value of a key expires, seconds since the epoch."""
        entry = self._entries.get(key)
        return entry.expires if entry is not None else None

    def has(self, key: str, now: float) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.usable(now)

    def credentialed(self, host: str, port: int) -> bool:
        """May some credential go to this authority?"""
        answer = self._authorities.get((host, port))
        if answer is None:
            if len(self._authorities) >= REMEMBERED:
                self._authorities.clear()
            scopes = [one.scope for one in self._entries.values() if one.scope is not None]
            answer = any(selector.covers_authority(host, port) for scope in scopes for selector in scope.selectors)
            self._authorities[host, port] = answer
        return answer

    def reaches(self, one: Credential, place: Place) -> bool:
        """Does the scope of a credential of this snapshot cover the request?"""
        if one.scope is None:
            return True
        question = (one.key, place)
        answer = self._reach.get(question)
        if answer is None:
            if len(self._reach) >= REMEMBERED:
                self._reach.clear()
            answer = self._reach[question] = one.scope.reaches(place)
        return answer

    def values(self) -> Iterator[Credential]:
        yield from self._entries.values()

    def resolver(self, place: Place, now: float) -> "Resolver | None":
        """The view of one request; None where nothing is configured and nothing ever was."""
        if not self._entries and not self._known:
            return None
        return Resolver(self, place, now)


def _identities(entries: Mapping[str, Credential]) -> frozenset[tuple[str, str]]:
    return frozenset((key, one.identity) for key, one in entries.items() if one.scope is not None)


class Resolver:
    """Placeholders to values, for one request at one moment. `used` lists what was given out."""

    __slots__ = ("_now", "_place", "_snapshot", "used")

    def __init__(self, snapshot: CredentialSnapshot, place: Place, now: float) -> None:
        self._snapshot = snapshot
        self._place = place
        self._now = now
        self.used: list[Credential] = []

    def __repr__(self) -> str:
        return f"Resolver({len(self.used)} used)"

    @property
    def revision(self) -> int:
        return self._snapshot.revision

    def resolve(self, token: bytes) -> Secret | Fault:
        """The value of a whole placeholder."""
        placeholder = whole(token)
        return Fault.MALFORMED if placeholder is None else self.value(placeholder)

    def value(self, placeholder: Placeholder) -> Secret | Fault:
        """The value that a recognised placeholder stands for."""
        found = self._find(placeholder)
        return found if isinstance(found, Fault) else self._give(found)

    def key(self, name: str, provider: str = "") -> Secret | Fault | None:
        """The value of an environment key, for signing; None when nobody has it.

        Several providers may have a key of the same name: `provider` tells whose is meant, else the one that reaches
        this request.
        """
        candidates = [
            one
            for one in self._snapshot.values()
            if one.scope is not None and _plain_key(one) == name and provider in ("", one.provider)
        ]
        for one in candidates:
            if self._reaches(one):
                return self._give(one)
        return Fault.MISMATCH if candidates else None

    def injections(self) -> list[Credential]:
        """What is placed without being asked for."""
        return [one for one in self._snapshot._placed if self._reaches(one)]

    def give(self, one: Credential) -> Secret | Fault:
        """The value of one of `injections`."""
        return self._give(one)

    def to_scrub(self) -> tuple[Secret, ...]:
        """What must not come back: the values given out, and the same providers' others that reach this request."""
        providers = {one.provider for one in self.used}
        others = [
            one for one in self._snapshot.values() if one.provider in providers and one.scope and self._reaches(one)
        ]
        secrets = dict.fromkeys(one.secret for one in (*self.used, *others))
        return tuple(secret for secret in secrets if len(secret.reveal().encode()) >= SCRUBBED_BYTES)

    def _find(self, placeholder: Placeholder) -> Credential | Fault:
        snapshot = self._snapshot
        key, form = placeholder.key, placeholder.form
        current = snapshot._entries.get(key)
        known = key in snapshot._known
        if known and (current is None or current.scope is None or not self._reaches(current)):
            return Fault.MISMATCH  # also a key that names configuration now: who held it meant a credential
        if current is None or (known and form is Form.PLAIN):
            return Fault.UNAVAILABLE
        if form is Form.STABLE:
            return current if current.handle == placeholder.handle else Fault.UNAVAILABLE
        if form is Form.PLAIN:
            return current
        if known and not self._in_epoch(placeholder):
            return Fault.UNAVAILABLE
        return self._of_generation(placeholder) or current

    def _in_epoch(self, placeholder: Placeholder) -> bool:
        """Was the placeholder given out under the identity that the key has now? Keys with a handle have no epoch."""
        epoch = self._snapshot._epochs.get(placeholder.key)
        number = self._snapshot._issued.get(placeholder.revision, 0)
        return epoch is not None and number >= epoch.since

    def _of_generation(self, placeholder: Placeholder) -> Credential | None:
        """The value that the key had in the revision, where such values are kept."""
        if self._snapshot.retain == "generations":
            for revision, entries in self._snapshot._generations:
                if revision == placeholder.revision:
                    return entries.get(placeholder.key)
        return None

    def _reaches(self, one: Credential) -> bool:
        return self._snapshot.reaches(one, self._place)

    def _give(self, one: Credential) -> Secret | Fault:
        text = one.secret.reveal()
        if not one.usable(self._now) or not text or _UNSAFE.search(text):
            return Fault.UNAVAILABLE
        if not any(one is known for known in self.used):
            self.used.append(one)
        return one.secret


def namespaced(key: str, provider: str) -> str:
    """A key that another provider has too."""
    return f"{key}__{provider.replace('-', '_').replace('.', '_')}"


def _plain_key(one: Credential) -> str:
    """The name of a key without what tells two providers apart."""
    return one.key.removesuffix(namespaced("", one.provider))
