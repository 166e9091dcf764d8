"""Replies to MCP list requests, cut down to what the rules would let this caller call (decision 11): a tool that
cannot be called is not on the menu. What cannot be read is not passed on.
"""

import json
import re
from collections.abc import Mapping

from egress.l7.calls import TOOL_CALL, CallRules
from egress.l7.mcp import is_tool_name
from egress.l7.strict_json import read_json
from egress.model.limits import LIMITS
from egress.model.message import Malformed, RequestHead
from egress.model.operation import McpStream, Operation, RpcMessages
from egress.model.verdict import DenialCode
from egress.policy.authorization import Authorization
from egress.policy.compiled import Endpoint, Enforcement

_LISTS: Mapping[str, tuple[str, str]] = {
    "tools/list": ("tools", TOOL_CALL),
    "prompts/list": ("prompts", "prompts/get"),
    "resources/list": ("resources", "resources/read"),
    "resources/templates/list": ("resourceTemplates", "resources/read"),
}
"""By list method: the member of its result that is the list, and the method that uses an item."""

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_IDLE_LINE = re.compile(rb"(?::[^\r\n]*)?(?>\r\n|\n|\r)")
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_EVENT_END_BYTES = 4
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ReplyFilter:
    """The reply to one request, or the stream of server messages, which repeats replies that a client missed."""

    __slots__ = ("_cuts", "_rules", "_strict")

    def __init__(
        self, authorization: Authorization, endpoint: Endpoint, head: RequestHead, operation: Operation | None
    ) -> None:
        self._strict = endpoint.mcp.strict_tool_names
        self._rules = CallRules(authorization, endpoint, head.path)
        lists = [] if endpoint.enforcement is Enforcement.AUDIT else _lists_in(operation)
        self._cuts = {member: method for member, method in lists if not self._rules.open(method)}

    @property
    def wanted(self) -> bool:
        """False when the reply may pass unread."""
        return bool(self._cuts)

    def filter_json(self, body: bytes) -> bytes | Malformed:
        """A whole reply; the same object when nothing was taken out of it."""
        if not body:
            return body
        if len(body) > LIMITS.mcp_reply_bytes:
            return _unreadable(f"list reply is larger than {LIMITS.mcp_reply_bytes} bytes")
        value = read_json(body)
        if isinstance(value, Malformed):
            return _unreadable(f"list reply: {value.reason}")
        shortened = False
        for message in value if isinstance(value, list) else [value]:
            changed = self._cut(message)
            if isinstance(changed, Malformed):
                return changed
            shortened = shortened or changed
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() if shortened else body

    def events(self) -> "SseFilter":
        """For a reply that is an event stream."""
        return SseFilter(self)

    def _cut(self, message: object) -> bool | Malformed:
        """Take out of one message, in place, what must not be seen. Replies are told by their shape: their `id` is the
        server's word."""
        result = message.get("result") if isinstance(message, dict) else None
        if not isinstance(result, dict):
            return False
        shortened = False
        for member, method in self._cuts.items():
            items = result.get(member)
            if items is None:
                continue
            if not isinstance(items, list):
                return _unreadable(f"`{member}` of a list reply is no list")
            kept = [item for item in items if self._callable(method, item)]
            shortened = shortened or len(kept) < len(items)
            result[member] = kept
        return shortened

    def _callable(self, method: str, item: object) -> bool:
        if method != TOOL_CALL:
            return self._rules.reachable(method, None)
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or (self._strict and not is_tool_name(name)):
            return False
        return self._rules.reachable(method, name)


class SseFilter:
    """The same for an event stream, event by event as they come. Whatever is not cut goes on byte for byte.

    A filter that answered `Malformed` is done: the stream has to end without its end being shown as a clean one.
    """

    __slots__ = ("_first", "_pending", "_reply", "_scanned")

    def __init__(self, reply: ReplyFilter) -> None:
        self._reply = reply
        self._pending = bytearray()
        self._scanned = 0
        self._first = True

    def feed(self, data: bytes) -> bytes | Malformed:
        """What may go on now. Comments and blank lines do not wait for an event: they keep connections alive."""
        pending = self._pending
        pending += data
        if b"\n" not in data and b"\r" not in data:
            return self._held(b"")
        out = bytearray()
        at = 0
        while at < len(pending):
            if idle := _IDLE_LINE.match(pending, at):
                out += idle[0]
                at = idle.end()
                continue
            end = _EVENT_END.search(pending, max(at, self._scanned))
            if end is None:
                break
            event = self._event(bytes(pending[at : end.end()]))
            if isinstance(event, Malformed):
                return event
            out += event
            at = end.end()
        del pending[:at]
        return self._held(bytes(out))

    def finish(self) -> bytes | Malformed:
        """The stream ended. An event without its blank line is none to most clients, but some take it."""
        left = bytes(self._pending)
        self._pending.clear()
        return self._event(left) if left else b""

    def _held(self, out: bytes) -> bytes | Malformed:
        """`out` may go on; the rest waits for the end of its event, as long as that is not too far."""
        waiting = len(self._pending)
        self._scanned = max(0, waiting - _EVENT_END_BYTES + 1)
        if waiting > LIMITS.mcp_reply_bytes:
            return _unreadable(f"an event is larger than {LIMITS.mcp_reply_bytes} bytes")
        return out

    def _event(self, event: bytes) -> bytes | Malformed:
        first, self._first = self._first, False
        mark = _BYTE_ORDER_MARK if first and event.startswith(_BYTE_ORDER_MARK) else b""
        lines = _LINE.findall(event, len(mark))
        values = [value for line in lines if (value := _data(line)) is not None]
        data = b"\n".join(values)
        if not data.lstrip(b" \t\r\n").startswith((b"{", b"[")):
            return event
        cut = self._reply.filter_json(data)
        if isinstance(cut, Malformed):
            return cut
        return event if cut is data else mark + _with_data(lines, cut)


def _lists_in(operation: Operation | None) -> list[tuple[str, str]]:
    match operation:
        case McpStream():
            return list(_LISTS.values())
        case RpcMessages():
            return [_LISTS[call.method] for call in operation.calls if call.method in _LISTS]
        case _:
            return []


def _data(line: bytes) -> bytes | None:
    """The value of a `data` line, None for other lines."""
    name, _, value = line.rstrip(b"\r\n").partition(b":")
    return value.removeprefix(b" ") if name == b"data" else None


def _with_data(lines: list[bytes], data: bytes) -> bytes:
    """The event with its data in one line, where the first one stood."""
    written: list[bytes] = []
    pending = True
    for line in lines:
        if _data(line) is None:
            written.append(line)
        elif pending:
            pending = False
            written.append(b"data: " + data + line[len(line.rstrip(b"\r\n")) :])
    return b"".join(written)


def _unreadable(reason: str) -> Malformed:
    return Malformed(reason, DenialCode.UPSTREAM_PROTOCOL_ERROR)
