"""Identifiers of flows, exchanges and generations."""

import os
import time
from typing import NewType

FlowId = NewType("FlowId", str)
ExchangeId = NewType("ExchangeId", str)
GenerationNumber = NewType("GenerationNumber", int)


def new_id() -> str:
    """A UUIDv7 in its usual text form (RFC 9562 section 5.7): sorts by time of creation."""
    milliseconds = time.time_ns() // 1_000_000
    text = f"{milliseconds:012x}7{os.urandom(10).hex()}"
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{variant}{text[17:20]}-{text[20:32]}"


def new_flow_id() -> FlowId:
    return FlowId(new_id())


def exchange_id(flow: FlowId, number: int) -> ExchangeId:
    """The id of the `number`-th exchange of a flow; unique because the flow's is, and cheap to make."""
    return ExchangeId(f"{flow}.{number}")
