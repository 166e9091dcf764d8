"""Every platform bound that is no setting, named, with its unit and what happens at the edge.

Settings (`settings.md`) hold the bounds an operator may move.
"""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """One instance, `LIMITS`; tests make others."""

    proxy_head_bytes: int = 8 * KIB
    """First head on the proxy port. Beyond: 431 `head_too_large`."""
    tunnel_head_bytes: int = 16 * KIB
    """Request and response heads inside tunnels. Request beyond: 431; response: 502 `upstream_protocol_error`."""
    early_bytes: int = 64 * KIB
    """Bytes kept that came with CONNECT; reading stops there until they are consumed."""
    path_bytes: int = 4 * KIB
    """Path part of a target. Beyond: 400 `invalid_request_target`."""
    chunk_line_bytes: int = 256
    """One chunk-size line with its extensions. Beyond: `malformed_request`, or 502 from an origin."""
    trailer_bytes: int = 8 * KIB
    """All trailer lines of one message. Beyond: as a bad chunk line."""
    interim_responses: int = 16
    """1xx heads before a final one. Beyond: 502 `upstream_protocol_error`."""
    stream_buffer: int = 256 * KIB
    """Bytes read ahead per stream and direction; reading pauses there."""
    refusal_drain_bytes: int = 256 * KIB
    """Body bytes read and dropped after a refusal so that the client can read it."""
    refusal_drain_seconds: float = 1.0
    """Time for the same."""
    close_flush_seconds: float = 30.0
    """Time for a peer to read what is queued when its connection closes; then the rest is dropped."""
    sniff_bytes: int = 24
    """First bytes looked at to tell TLS, HTTP/1 and HTTP/2 apart."""
    hello_bytes: int = 16 * KIB
    """A ClientHello larger than this is refused with a TLS alert."""
    expect_wait_seconds: float = 1.0
    """Silence of an origin after `Expect: 100-continue` before we answer 100 ourselves."""
    proxy_reply_bytes: int = 8 * KIB
    """Head of a corporate proxy's reply to CONNECT. Beyond: 502 with `proxy_malformed_reply`."""
    proxy_interim_replies: int = 3
    """1xx heads of a corporate proxy before that reply. Beyond: the same."""
    rpc_batch_messages: int = 1000
    """Messages of one JSON-RPC batch. Beyond: 400 `invalid_jsonrpc_request`."""
    mcp_reply_bytes: int = 4 * MIB
    """A JSON reply, or one event of a stream, that must be cut down. Beyond: 502 `upstream_protocol_error`."""
    metadata_head_bytes: int = 4 * KIB
    """Head of a request to the metadata server. Beyond: 413."""
    metadata_connections: int = 32
    """Connections to the metadata server at a time. Beyond: they wait to be accepted."""
    metadata_head_seconds: float = 5.0
    """Time for such a head; then the connection is closed."""
    metadata_answer_seconds: float = 5.0
    """Time to answer it; then the same."""
    metadata_short_life_seconds: int = 225
    """A token with less left is refreshed before it is named: SDKs ask again at once for one that ends so soon."""
    metadata_refresh_seconds: float = 2.5
    """Wait for that; then the old one is named. Below the 3 s after which Google's SDKs give up."""
    granted_tokens: int = 1024
    """Access tokens of token grants that are remembered. Beyond: the longest unused is forgotten."""
    token_reply_bytes: int = 64 * KIB
    """Reply of a token endpoint. Beyond: 502 `token_grant_failed`."""
    assertion_bytes: int = 16 * KIB
    """An identity document. Beyond: 502 `token_grant_failed`."""
    placed_bytes: int = 1 * MIB
    """Bytes of values placed into one text. Beyond: 500 `credential_unavailable`."""
    mcp_sessions: int = 4096
    """MCP sessions whose owner is remembered. Beyond: the owner's own longest unused is forgotten, else anybody's."""
    mcp_session_seconds: float = 24 * 3600.0
    """Disuse after which the owner of an MCP session is forgotten."""


LIMITS = Limits()
