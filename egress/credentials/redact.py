"""A request target without placeholders, as policy and logs see it. Syntax only: known or not makes no difference
(credentials.md section 7)."""

from egress.credentials.placeholder import (
    SHOWN,
    contains_marker,
    contains_marker_text,
    find,
    has_raw_marker,
    percent_decoded,
)


def redact_target(path: str, query: str | None) -> tuple[str, str | None] | None:
    """Path and query with `[CREDENTIAL]` for each placeholder; None when one is malformed.

    A segment keeps its encoding around the placeholder; a query value that holds one is shown by the word alone.
    """
    if query is not None:
        query = _query(query)
        if query is None:
            return None
    if not contains_marker_text(path):
        return path, query
    segments = [_segment(segment) for segment in path.split("/")]
    if None in segments:
        return None
    return "/".join([segment for segment in segments if segment is not None]), query


def _segment(segment: str) -> str | None:
    raw = segment.encode("ascii", "replace")
    if not contains_marker(raw):
        return segment
    if not has_raw_marker(raw):
        raw = percent_decoded(raw)
    return _shown(raw)


def _shown(raw: bytes) -> str | None:
    parts, position = [], 0
    for found in find(raw):
        if found.token is None:
            return None
        parts += [raw[position : found.start].decode("latin-1"), SHOWN]
        position = found.end
    return "".join([*parts, raw[position:].decode("latin-1")])


def _query(query: str) -> str | None:
    if not contains_marker_text(query):
        return query
    shown = []
    for item in query.split("&"):
        name, equals, value = item.partition("=")
        raw = value.encode("ascii", "replace")
        if equals and contains_marker(raw):
            if _shown(percent_decoded(raw)) is None:
                return None
            shown.append(f"{name}={SHOWN}")
        else:
            shown.append(item)
    return "&".join(shown)
