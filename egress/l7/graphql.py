"""GraphQL over HTTP: which operations a request asks for, read as the server would execute them.

Owns the envelope, the document and the registry of persisted queries; `graphql_rules` judges what comes out. The only
importer of graphql-core.
"""

import hashlib
import re
from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

from egress.http.query import QueryPairs, decode_query
from egress.l7.strict_json import lookalike, read_json, spellings
from egress.model.message import Malformed, RequestHead
from egress.model.operation import GraphqlOperation, GraphqlOperations
from egress.model.verdict import Denial, DenialCode, Stage
from egress.policy.compiled import Endpoint

if TYPE_CHECKING:
    from graphql import FragmentDefinitionNode, OperationDefinitionNode

MAX_TOKENS = 20_000
REMEMBERED_DOCUMENTS = 1024
MAX_REMEMBERED_LENGTH = 16 * 1024
"""Longer documents are read anew each time, so that what is remembered stays small."""

_IDS = ("id", "documentId", "queryId")
_CONTROLS = spellings("query", "operationName", "extensions", *_IDS)
_PERSISTED_QUERY = spellings("persistedQuery")
_HASH = spellings("sha256Hash")
_JSON_TYPE = re.compile(rb"application/(?:json|[a-z0-9.-]+\+json)\Z")
_DOCUMENT_TYPE = b"application/graphql"
_AMBIGUOUS_LINE_END = re.compile("[\x0b\x0c\x85\u2028\u2029]|\r(?!\n)")
_UNREGISTERED = GraphqlOperation("", "", (), registered=False)

type Envelope = Mapping[str, object]


def read_request(endpoint: Endpoint, head: RequestHead, body: bytes) -> GraphqlOperations | Denial:
    """The operations of one request; `body` has no content coding. What cannot be read is denied, and audit does not
    soften that."""
    if head.upgrade is not None:
        reason = "a WebSocket needs an endpoint with `protocol: websocket`"
        return Denial(Stage.L7, DenialCode.UPGRADE_REFUSED, reason, entry=endpoint.entry)
    match head.method:
        case "GET":
            operations = _over_get(endpoint, head)
        case "POST":
            operations = _over_post(endpoint, head, body)
        case _:
            operations = _fault("method is neither GET nor POST")
    return rejected(operations, endpoint) if isinstance(operations, Malformed) else operations


def read_payload(endpoint: Endpoint, envelope: Envelope) -> GraphqlOperation | Malformed:
    """The operation that one envelope (a JSON body, a batch item, a WebSocket payload) asks for."""
    if lookalike(envelope, _CONTROLS):
        return _fault("key in unusual letter case")
    document, name = envelope.get("query"), envelope.get("operationName")
    if not isinstance(document, str | None):
        return _fault("`query` is not a string")
    if not isinstance(name, str | None):
        return _fault("`operationName` is not a string")
    digest = _persisted_hash(envelope.get("extensions"))
    if isinstance(digest, Malformed):
        return digest
    if document:
        if digest and digest != hashlib.sha256(document.encode()).hexdigest():
            return _fault("`sha256Hash` is not the hash of the document")
        return read_document(document, name or "")
    ids = {text for key in _IDS if isinstance(text := envelope.get(key), str) and text}
    if len(ids) > 1:
        return _fault("more than one persisted query")
    key = digest or next(iter(ids), "")
    return _registered(endpoint, key, name or "") if key else _fault("neither a document nor a persisted query")


def rejected(fault: Malformed, endpoint: Endpoint) -> Denial:
    """The refusal of something that could not be read."""
    return Denial(Stage.L7, fault.code, f"GraphQL request rejected: {fault.reason}", entry=endpoint.entry)


def load_parser() -> None:
    """Import graphql-core (a quarter of a second) before a request has to wait for it."""
    import graphql  # noqa: F401, PLC0415


def _over_get(endpoint: Endpoint, head: RequestHead) -> GraphqlOperations | Malformed:
    """Operation from the query string. A body on GET is read by some servers and ignored by others."""
    if not head.framing.empty:
        return _fault("GET with a body")
    controls = _url_controls(head.query)
    if isinstance(controls, Malformed):
        return controls
    envelope: dict[str, object] = dict(controls)
    if len(envelope) != len(controls):
        return _fault("control parameter given more than once")
    if sum(key in envelope for key in _IDS) > 1:
        return _fault("more than one persisted query")
    if extensions := envelope.pop("extensions", None):
        read = read_json(str(extensions).encode())
        if isinstance(read, Malformed):
            return _fault(f"`extensions`: {read.reason}")
        envelope["extensions"] = read
    operation = read_payload(endpoint, envelope)
    return operation if isinstance(operation, Malformed) else GraphqlOperations((operation,), over_get=True)


def _over_post(endpoint: Endpoint, head: RequestHead, body: bytes) -> GraphqlOperations | Malformed:
    controls = _url_controls(head.query)
    if isinstance(controls, Malformed):
        return controls
    if controls:
        return _fault("control parameter in the URL of a POST")
    media_type = _media_type(head)
    if isinstance(media_type, Malformed):
        return media_type
    if media_type == _DOCUMENT_TYPE:
        items = _document_body(body)
    elif _JSON_TYPE.match(media_type):
        items = _json_body(body)
    else:
        return _fault("content type is neither JSON nor application/graphql")
    if isinstance(items, Malformed):
        return items
    operations = []
    for item in items:
        operation = read_payload(endpoint, item)
        if isinstance(operation, Malformed):
            return operation
        operations.append(operation)
    return GraphqlOperations(tuple(operations))


def _media_type(head: RequestHead) -> bytes | Malformed:
    """The one content type, lower case. A body without one is a form to some servers (Rack), hence refused."""
    values = [value for name, value in head.fields if name.lower() == b"content-type"]
    if len(values) != 1:
        return _fault("more than one content type" if values else "no content type")
    media_type, *parameters = values[0].lower().split(b";")
    for parameter in parameters:
        name, _, value = parameter.strip().partition(b"=")
        if name == b"charset" and value.strip(b'"') not in (b"utf-8", b"utf8"):
            return Malformed("charset is not UTF-8", DenialCode.UNSUPPORTED_ENCODING)
    return media_type.strip()


def _document_body(body: bytes) -> list[Envelope] | Malformed:
    try:
        return [{"query": body.decode()}]
    except UnicodeDecodeError:
        return _fault("body is not UTF-8")


def _json_body(body: bytes) -> list[Envelope] | Malformed:
    value = read_json(body)
    if isinstance(value, Malformed):
        return _fault(value.reason)
    items = value if isinstance(value, list) else [value]
    objects: list[Envelope] = [item for item in items if isinstance(item, dict)]
    if not items:
        return _fault("empty batch")
    return objects if len(objects) == len(items) else _fault("request is not a JSON object")


def _url_controls(query: str | None) -> QueryPairs | Malformed:
    """The control parameters of a URL, if every server finds the same ones there.

    Some split at `;` (older Python and Perl), some ignore letter case (ASP.NET) or blanks around names (PHP).
    """
    if not query:
        return ()
    read = [decode_query(query, separators=separators) for separators in ("&", "&;")]
    found: list[QueryPairs] = []
    for pairs in read:
        if isinstance(pairs, Malformed):
            return pairs
        found.append(tuple(pair for pair in pairs if pair[0].strip(" \t\r\n\0").casefold() in _CONTROLS))
    if found[0] != found[1] or any(_CONTROLS.get(name.casefold()) != name for name, _ in found[0]):
        return _fault("control parameter that servers read differently")
    return found[0]


def _persisted_hash(extensions: object) -> str | Malformed | None:
    """`persistedQuery.sha256Hash` of an `extensions` object."""
    if extensions is None:
        return None
    if not isinstance(extensions, dict):
        return _fault("`extensions` is not an object")
    persisted = extensions.get("persistedQuery")
    if lookalike(extensions, _PERSISTED_QUERY) or (isinstance(persisted, dict) and lookalike(persisted, _HASH)):
        return _fault("key in unusual letter case")
    digest = persisted.get("sha256Hash") if isinstance(persisted, dict) else None
    return digest if isinstance(digest, str) else None


def _registered(endpoint: Endpoint, key: str, name: str) -> GraphqlOperation:
    """What the endpoint's registry says of a persisted query. An `operationName` may pick another operation of a stored
    document, so it has to be the registered one where the registry names one."""
    options = endpoint.graphql
    if options.persisted_queries != "allow_registered":
        return _UNREGISTERED
    position = bisect_left(options.registered, key, key=attrgetter("id"))
    query = options.registered[position] if position < len(options.registered) else None
    if query is None or query.id != key or (name and query.operation_name and name != query.operation_name):
        return _UNREGISTERED
    return GraphqlOperation(query.operation_type, query.operation_name, query.fields)


def read_document(document: str, name: str) -> GraphqlOperation | Malformed:
    """The operation of a document that a server executes when asked for `name`, empty for none. Remembered, since
    clients send the same few documents again and again."""
    return (_remembered if len(document) <= MAX_REMEMBERED_LENGTH else _read_document)(document, name)


def _read_document(document: str, name: str) -> GraphqlOperation | Malformed:
    from graphql import FragmentDefinitionNode, GraphQLError, OperationDefinitionNode, parse  # noqa: PLC0415

    if "#" in document and _AMBIGUOUS_LINE_END.search(document):
        return _fault("comment whose end is ambiguous")
    try:
        definitions = parse(document, no_location=True, max_tokens=MAX_TOKENS).definitions
    except GraphQLError as error:
        return _fault(_syntax_error(error.locations))
    operations: dict[str, OperationDefinitionNode] = {}
    fragments: dict[str, FragmentDefinitionNode] = {}
    for definition in definitions:
        if isinstance(definition, OperationDefinitionNode):
            operations[definition.name.value if definition.name else ""] = definition
        elif isinstance(definition, FragmentDefinitionNode):
            fragments[definition.name.value] = definition
        else:
            return _fault("document holds type definitions")
    if len(operations) + len(fragments) != len(definitions):
        return _fault("duplicate operation or fragment name")
    operation = operations.get(name) if name else _only(operations)
    if operation is None:
        return _fault("no operation of that name" if name else "document does not hold exactly one operation")
    fields = _root_fields(operation, fragments)
    if isinstance(fields, Malformed):
        return fields
    return GraphqlOperation(operation.operation.value, operation.name.value if operation.name else "", fields)


_remembered = lru_cache(maxsize=REMEMBERED_DOCUMENTS)(_read_document)


def _only(operations: "dict[str, OperationDefinitionNode]") -> "OperationDefinitionNode | None":
    return next(iter(operations.values())) if len(operations) == 1 else None


def _root_fields(
    operation: "OperationDefinitionNode", fragments: "Mapping[str, FragmentDefinitionNode]"
) -> tuple[str, ...] | Malformed:
    """Real names of the root fields, through inline and named fragments. Directives are ignored: what variables may
    switch on counts as selected."""
    from graphql import FieldNode, FragmentSpreadNode, InlineFragmentNode  # noqa: PLC0415

    fields: set[str] = set()
    spread: set[str] = set()
    pending = [operation.selection_set]
    while pending:
        for selection in pending.pop().selections:
            if isinstance(selection, FieldNode):
                fields.add(selection.name.value)
            elif isinstance(selection, InlineFragmentNode):
                pending.append(selection.selection_set)
            elif isinstance(selection, FragmentSpreadNode) and selection.name.value not in spread:
                fragment = fragments.get(selection.name.value)
                if fragment is None:
                    return _fault("spread of an unknown fragment")
                spread.add(selection.name.value)
                pending.append(fragment.selection_set)
    return tuple(sorted(fields))


def _syntax_error(locations: object) -> str:
    """Where the parser stopped; its own words quote the document."""
    if isinstance(locations, list) and locations:
        return f"document cannot be parsed at line {locations[0].line}, column {locations[0].column}"
    return "document cannot be parsed"


def _fault(reason: str) -> Malformed:
    return Malformed(reason, DenialCode.INVALID_GRAPHQL_REQUEST)
