"""What a running proxy holds in trust: the credential store, token grants, metadata servers. Made once a providers file
is named; part of the composition root."""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from egress.config.settings import Settings
from egress.credentials.assertions import Assertions
from egress.credentials.feeds import Intake
from egress.credentials.grant_rules import GrantChoice, GrantTable
from egress.credentials.grants import GrantExchanged, GrantStore
from egress.credentials.hygiene import harden
from egress.credentials.installation import Installation
from egress.credentials.intake import intake_of, with_handle_key
from egress.credentials.metadata import MetadataAnswered, MetadataServer, address_of, bind_metadata
from egress.credentials.metadata_answers import MetadataView
from egress.credentials.metadata_facts import (
    Clouds,
    GoogleFacts,
    aws_environment,
    azure_environment,
    google_environment,
)
from egress.credentials.metadata_identity import IdentityTokens
from egress.credentials.placeholder import alias
from egress.credentials.providers import Provider, ProviderSet
from egress.credentials.scope import Place
from egress.credentials.snapshot import SCRUBBED_BYTES, CredentialSnapshot
from egress.credentials.sources.registry import Sources, Surroundings
from egress.credentials.store import CredentialStore, ProviderChanged, Staged
from egress.events.event import Event, Severity, StateChange
from egress.events.redact import Redactor
from egress.extension.load import Plugins
from egress.generation.cell import RuntimeCell
from egress.generation.prepare import Candidate
from egress.generation.providers import attached
from egress.model.clock import Clock
from egress.model.intent import AgentName
from egress.model.secret import Secret
from egress.model.verdict import Denial
from egress.policy.compiled import CompiledPolicy
from egress.sdk.http import HttpClient
from egress.sdk.secrets import SecretSource

_GOOGLE = ("google-cloud", "google-vertex-ai")


class GrantDesk:
    """The token grants in force, as the pipeline asks for them."""

    def __init__(self, store: GrantStore) -> None:
        self._store = store
        self._table = GrantTable(())

    def install(self, table: GrantTable) -> None:
        self._table = table
        self._store.purge(table.choices)

    def match(self, place: Place) -> GrantChoice | None:
        return self._table.match(place)

    async def token(self, choice: GrantChoice) -> Secret | Denial:
        return await self._store.token(choice)

    def evict(self, choice: GrantChoice, used: Secret) -> None:
        self._store.evict(choice, used)

    async def close(self) -> None:
        await self._store.close()


class Custody:
    """One per process. `stage` waits and touches nothing live; `adopt` changes everything in one turn of the loop."""

    def __init__(
        self,
        settings: Settings,
        cell: RuntimeCell,
        clock: Clock,
        *,
        emit: Callable[[Event], None],
        redact: Callable[[Redactor], None],
        http: HttpClient,
        plugins: Plugins,
        allow_literal: bool,
    ) -> None:
        """`redact` takes what keeps known values out of every event."""
        harden()
        self._cell = cell
        self._clock = clock
        self._emit = emit
        self._http = http
        self._redact = redact
        self._shown: tuple[str, ...] = ()
        self._settings = settings
        self._plugins = plugins
        self._around = Surroundings(http, clock, settings.state, allow_literal=allow_literal)
        self._store = CredentialStore(
            Installation(settings.state), self._install, clock, self._around.threads, self._changed
        )
        context = Sources(self._around, settings.state, plugins.sources).context()
        named = {"workload_api": settings.token_grants.workload_api}
        identities = {scheme: make(named, context) for scheme, make in plugins.identities.items()}
        assertions = Assertions(identities, self._assertion_source, clock)
        self.grants = GrantDesk(GrantStore(http, assertions, clock, self._exchanged))
        self._providers: ProviderSet | None = None
        self._servers: dict[AgentName, tuple[str, asyncio.Task[None]]] = {}

    # what is configured ------------------------------------------------------------------------------------------

    async def stage(self, candidate: Candidate) -> Staged:
        """Fetch what the candidate's providers need and is not held yet."""
        providers = candidate.providers
        assert providers is not None
        sources = Sources(self._around, providers.base, self._plugins.sources)
        intake = intake_of(providers, policies_of(candidate), sources)
        assert isinstance(intake, Intake)  # the candidate was checked
        return await self._store.stage(await with_handle_key(intake, providers, sources))

    def adopt(self, candidate: Candidate, staged: Staged) -> None:
        """Make it what is in force."""
        assert candidate.providers is not None
        self._providers, self._settings = candidate.providers, candidate.settings
        self._install(self._store.adopt(staged))
        self.grants.install(candidate.providers.grants)
        self._serve_metadata(candidate)

    def _install(self, snapshot: CredentialSnapshot) -> None:
        """Values for requests, and what no event may hold: these and the ones before them."""
        self._cell.refresh(snapshot)
        texts = tuple(one.secret.reveal() for one in snapshot.values() if one.scope is not None)
        known = {text for text in (*self._shown, *texts) if len(text) >= SCRUBBED_BYTES}
        self._shown = texts
        self._redact(Redactor([re.compile("|".join(map(re.escape, sorted(known))))] if known else []))

    def revoke_all(self) -> None:
        """The providers file cannot be used: no static value is left; grants stay (decision 4)."""
        self._install(self._store.revoke_all())
        detail = "the providers file is invalid: static credentials are revoked"
        self._emit(StateChange(self._clock.now(), "fail_closed", detail, Severity.HIGH))

    async def close(self) -> None:
        for _, task in self._servers.values():
            task.cancel()
        await self._store.close()
        await self.grants.close()
        self._around.threads.close()

    # what workloads are given ------------------------------------------------------------------------------------

    def environment(self, agent: AgentName) -> dict[str, str]:
        """Placeholders, and where cloud SDKs ask. Nothing in it is a secret."""
        snapshot = self._cell.credentials or CredentialSnapshot.empty()
        shapes = {key: one.shape for key, one in snapshot.served(agent).items()}
        found = {
            key: alias(text, shapes[key]) if shapes[key] else text for key, text in snapshot.placeholders(agent).items()
        }
        server = self._servers.get(agent)
        address = server[0] if server is not None else None
        for one in self._google(agent):
            found |= google_environment(address, _facts(one))
        if address is not None and self._settings.metadata_server.aws:
            found |= aws_environment(address)
        if address is not None and self._settings.metadata_server.azure:
            found |= azure_environment(address)
        return found

    # what operators ask ------------------------------------------------------------------------------------------

    def listing(self) -> list[Mapping[str, object]]:
        return [
            {
                "provider": one.provider, "key": one.key, "source": one.kind, "state": one.state,
                "endpoints": list(one.places), "expires": one.expires, "age": one.age, "error": one.error,
            }
            for one in self._store.listing()
        ]  # fmt: skip

    async def refresh(self, name: str) -> bool:
        return await self._store.refresh(name)

    async def revoke(self, name: str) -> bool:
        return await self._store.revoke(name)

    # metadata servers --------------------------------------------------------------------------------------------

    def _serve_metadata(self, candidate: Candidate) -> None:
        """One server for each agent that a provider wants one for; those that run keep their address."""
        wanted = {agent for agent in candidate.generation.agents if self._wants_metadata(agent)}
        for agent in self._servers.keys() - wanted:
            self._servers.pop(agent)[1].cancel()
        for agent in wanted - self._servers.keys():
            listen = self._settings.metadata_server.listen
            try:
                sock = bind_metadata(str(listen))
            except OSError as error:
                detail = f"no metadata server for {agent}: {error.strerror}"
                self._emit(StateChange(self._clock.now(), "degraded", detail, Severity.MEDIUM))
                continue
            address = address_of(sock)
            self._servers[agent] = (address, asyncio.create_task(self._metadata(agent).run(sock)))

    def _wants_metadata(self, agent: AgentName) -> bool:
        chosen = self._settings.metadata_server
        return (chosen.gcp == "auto" and any(self._google(agent))) or chosen.aws or chosen.azure

    def _metadata(self, agent: AgentName) -> MetadataServer:
        def clouds() -> Clouds:
            facts = next((_facts(one) for one in self._google(agent)), GoogleFacts())
            chosen = self._settings.metadata_server
            return Clouds(facts, chosen.aws, chosen.azure, frozenset(chosen.id_tokens))

        def snapshot() -> CredentialSnapshot:
            return self._cell.credentials or CredentialSnapshot.empty()

        identities = IdentityTokens(self._http, snapshot, lambda: clouds().google.email, self._clock, agent)
        return MetadataServer(
            lambda: MetadataView.of(snapshot(), agent, clouds()), self._clock, refresh=self._refresh_due,
            mint=identities.mint, observe=self._answered,
        )  # fmt: skip

    async def _refresh_due(self, provider: str) -> None:
        await self._store.refresh_due(provider, 300.0)

    def _google(self, agent: AgentName) -> Iterator[Provider]:
        serving = attached(self._providers, agent)
        for one in self._providers.providers if self._providers is not None else ():
            if one.profile.id in _GOOGLE and one.name in serving:
                yield one

    # events ------------------------------------------------------------------------------------------------------

    def _changed(self, change: ProviderChanged) -> None:
        if change.available:
            self._tell("loaded", f"credentials of {change.provider} are available")
        else:
            reason = f": {change.error}" if change.error else ""
            self._tell("fail_closed", f"credentials of {change.provider} are not available{reason}", Severity.HIGH)

    def _exchanged(self, exchange: GrantExchanged) -> None:
        if exchange.code is None:
            self._tell("updated", f"token grant {exchange.key}: a token was obtained from {exchange.endpoint}")
        else:
            self._tell("degraded", f"token grant {exchange.key}: {exchange.reason}", Severity.MEDIUM)

    def _answered(self, answer: MetadataAnswered) -> None:
        if answer.served:
            self._tell("enriched", f"metadata server: {answer.route} answered with a placeholder")
        elif answer.status >= 500:
            self._tell("degraded", f"metadata server: {answer.route} could not be answered", Severity.LOW)

    def _tell(self, word: str, detail: str, severity: Severity = Severity.INFO) -> None:
        self._emit(StateChange(self._clock.now(), word, detail, severity))

    def _assertion_source(self, specification: object, base: Path) -> SecretSource:
        return Sources(self._around, base, self._plugins.sources).nested(specification)


def policies_of(candidate: Candidate) -> list[CompiledPolicy]:
    """Every policy of a candidate: they bind providers without endpoints."""
    found = {id(terms.policy): terms.policy for terms in candidate.generation.agents.values()}
    return [policy for policy in found.values() if policy is not None]


def _facts(provider: Provider) -> GoogleFacts:
    return GoogleFacts.of(provider.config, vertex=provider.profile.id == "google-vertex-ai")
