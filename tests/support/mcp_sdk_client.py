"""What the conformance suite asks of a client, done with the Python SDK: `python mcp_sdk_client.py URL`.

Stands alone, since it runs as a workload does. Authorization is answered as a browser would whose user agrees.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import ClientSession, types
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl

REDIRECT = "http://localhost:3000/callback"


class Memory:
    """Tokens and client registration, for as long as this runs."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def get_tokens(self) -> Any:
        return self.kept.get("tokens")

    async def set_tokens(self, tokens: Any) -> None:
        self.kept["tokens"] = tokens

    async def get_client_info(self) -> Any:
        return self.kept.get("client")

    async def set_client_info(self, client_info: Any) -> None:
        self.kept["client"] = client_info


class Browser:
    """Follows the authorization URL up to the redirect, which holds the code."""

    def __init__(self) -> None:
        self._answer: dict[str, list[str]] = {}

    async def open(self, url: str) -> None:
        async with httpx2.AsyncClient() as client:
            reply = await client.get(url, follow_redirects=False)
        self._answer = parse_qs(urlsplit(reply.headers["location"]).query)

    async def answer(self) -> Any:
        code, state = self._answer["code"][0], self._answer.get("state", [None])[0]
        return AuthorizationCodeResult(code=code, state=state)


async def elicited(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Accept with the defaults of the schema."""
    del context
    if isinstance(params, types.ElicitRequestURLParams):
        return types.ElicitResult(action="decline")
    properties = params.requested_schema.get("properties", {})
    return types.ElicitResult(
        action="accept", content={name: value["default"] for name, value in properties.items() if "default" in value}
    )


@contextlib.asynccontextmanager
async def session(url: str) -> AsyncIterator[ClientSession]:
    metadata = OAuthClientMetadata(
        client_name="suite", redirect_uris=[AnyUrl(REDIRECT)], grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )  # fmt: skip
    browser = Browser()
    auth = OAuthClientProvider(
        server_url=url, client_metadata=metadata, storage=Memory(), redirect_handler=browser.open,
        callback_handler=browser.answer,
    )  # fmt: skip
    async with (
        httpx2.AsyncClient(auth=auth, timeout=20, follow_redirects=True) as client,
        streamable_http_client(url, http_client=client) as streams,
        ClientSession(streams[0], streams[1], elicitation_callback=elicited) as talking,
    ):
        await talking.initialize()
        yield talking


async def main(url: str) -> None:
    async with session(url) as talking:
        for tool in (await talking.list_tools()).tools:
            await talking.call_tool(tool.name, {"a": 5, "b": 3} if tool.name == "add_numbers" else {})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
