"""What no single key can tell: settings that contradict each other, agents that nobody can be."""

from collections.abc import Iterator
from itertools import combinations

from egress.config.settings import Agent, AgentMatch, Settings
from egress.documents.diagnostic import Diagnostic, error, warning
from egress.documents.yaml import Document

_WIDEST_BLOCK = {4: 24, 6: 64}


def check_settings(settings: Settings, document: Document) -> tuple[Diagnostic, ...]:
    """Errors and warnings across keys."""
    return (
        *_policy_is_named(settings, document),
        *_aliases_are_distinct(settings, document),
        *_agents_are_distinct(settings, document),
        *(found for index in range(len(settings.agents)) for found in _agent(settings, document, index)),
    )


def _policy_is_named(settings: Settings, document: Document) -> Iterator[Diagnostic]:
    if settings.policy.file is None and not (settings.agents and all(agent.policy for agent in settings.agents)):
        yield error(
            document.locate(("policy",)),
            "policy: nothing says which policy applies",
            "set `policy.file`, or start with `--policy FILE`",
        )


def _aliases_are_distinct(settings: Settings, document: Document) -> Iterator[Diagnostic]:
    written = document.data.get("destinations", {}).get("aliases", {})
    if len(written) != len(settings.destinations.aliases):
        location = document.locate(("destinations", "aliases"))
        yield error(location, "destinations.aliases: two spellings of one name", "names are compared in lower case")


def _agents_are_distinct(settings: Settings, document: Document) -> Iterator[Diagnostic]:
    for (first, one), (second, other) in combinations(enumerate(settings.agents), 2):
        location = document.locate(("agents", second))
        if one.name == other.name:
            yield error(location, f"agents[{second}].name: `{other.name}` is taken by agents[{first}]")
        elif _covers(one.match, other.match):
            message = f"agents[{second}]: `{other.name}` can never be chosen, agents[{first}] matches all of it"
            yield warning(location, message, "the first agent that matches wins; put the narrower one first")


def _covers(wide: AgentMatch, narrow: AgentMatch) -> bool:
    """True when every caller that `narrow` matches is matched by `wide`."""
    if wide.uids is not None and not (narrow.uids and set(narrow.uids) <= set(wide.uids)):
        return False
    if wide.cidrs is not None and not (narrow.cidrs and all(map(wide.covers_block, narrow.cidrs))):
        return False
    return wide.proxy_auth is None or wide.proxy_auth == narrow.proxy_auth


def _agent(settings: Settings, document: Document, index: int) -> Iterator[Diagnostic]:
    agent, name = settings.agents[index], f"agents[{index}]"
    match, location = agent.match, document.locate(("agents", index, "match"))
    if match == AgentMatch():
        yield error(location, f"{name}.match: matches nobody", "give at least one of `uids`, `cidrs`, `proxy_auth`")
        return
    exposed = not all(address.loopback for address in settings.listen.proxy)
    mode = agent.identity or settings.identity.mode
    if exposed and _may_be_remote(agent) and mode != "off" and settings.identity.netns is None:
        yield error(
            location,
            f"{name}: may be on another host, where no program can be looked up, but identity is `{mode}`",
            "write `identity: off` for this agent, or restrict it to `uids`",
        )
    if exposed and match.proxy_auth is not None:
        yield warning(location, f"{name}: its password crosses the network in clear", "listen on loopback only")
    if match.uids is not None or match.proxy_auth is not None:
        return
    for block in match.cidrs or ():
        if not block.is_loopback and block.prefixlen < _WIDEST_BLOCK[block.version]:
            message = f"{name}: everybody in {block} is this agent"
            yield warning(location, message, f"a block of /{_WIDEST_BLOCK[block.version]} or narrower, or `proxy_auth`")


def _may_be_remote(agent: Agent) -> bool:
    """Uids hold with local evidence only, and loopback addresses are nobody else's."""
    match = agent.match
    return match.uids is None and not (match.cidrs and all(block.is_loopback for block in match.cidrs))
