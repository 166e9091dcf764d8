"""The candidate that offline questions are asked of."""

import asyncio
from ipaddress import IPv4Address, IPv6Address

from egress.cli.terminal import ExitCode, fail
from egress.config.settings import Settings
from egress.destination.local import LocalAddresses, expand_wildcards
from egress.destination.validate import DestinationSettings
from egress.generation.prepare import Candidate
from egress.model.intent import AgentName
from egress.pipeline.answer import Answer
from egress.pipeline.explain import Question, World, explain


def world_of(candidate: Candidate) -> World:
    """What `egress serve` would decide by, without its sockets."""
    settings = candidate.settings
    own = [
        (literal, address.port) for address in settings.listen.proxy if (literal := address.host.address) is not None
    ]
    return World(candidate.generation, _destinations(settings), expand_wildcards(own, LocalAddresses().current()))


def ask(question: Question, world: World) -> Answer:
    """One answer. Nothing waits, so a loop for it alone is enough."""
    return asyncio.run(explain(question, world))


def agent_of(candidate: Candidate, name: str | None) -> AgentName:
    """The agent that asks; with agents configured somebody has to be named."""
    agents = candidate.generation.agents
    if name is None and len(agents) == 1:
        return next(iter(agents))
    if name is None or AgentName(name) not in agents:
        what = f"no agent is called `{name}`" if name else "several agents may ask; name one with --agent"
        fail(f"{what}: {', '.join(agents)}", ExitCode.INVALID)
    return AgentName(name)


def _destinations(settings: Settings) -> DestinationSettings:
    chosen = settings.destinations
    gateway = chosen.host_gateway
    return DestinationSettings(
        {host.name: address for host, address in chosen.aliases.items()},
        gateway if isinstance(gateway, IPv4Address | IPv6Address) else None,
        chosen.trust_declared_hosts,
        settings.errors.verbose,
    )
