"""Middleware across all documents: order, and traffic that a fail-closed stage could never read."""

from collections.abc import Iterable, Sequence

from egress.documents.diagnostic import Diagnostic, error
from egress.documents.location import KeyPath, path_text
from egress.documents.yaml import Document
from egress.policy.ambiguity import Site
from egress.policy.document import MiddlewareModel, PolicyModel
from egress.policy.hosts import HostPatternError, parse_host_selector
from egress.policy.overlap import Reading, covers, host_reading, overlaps, selector_reading


def check_middlewares(parts: Sequence[tuple[Document, PolicyModel]], sites: Sequence[Site]) -> Iterable[Diagnostic]:
    """One error for each order used twice and each unreadable endpoint under a fail-closed stage."""
    orders: dict[int, str] = {}
    unread = [site for site in sites if site.model.tls == "skip"]
    for document, model in parts:
        for key, middleware in model.network_middlewares.items():
            place: KeyPath = ("network_middlewares", key)
            first = orders.setdefault(middleware.order, key)
            if first != key:
                says = f"{path_text((*place, 'order'))}: `{first}` has the order {middleware.order} too"
                yield error(document.locate((*place, "order")), says, "give every middleware its own order")
            if middleware.on_error == "fail_closed":
                yield from (_unreadable(document, place, site) for site in unread if _selects(middleware, site))


def _unreadable(document: Document, place: KeyPath, site: Site) -> Diagnostic:
    says = f"{path_text(place)}: {path_text(site.path)} ({site.location}) has `tls: skip`, so this stage cannot read it"
    hint = "exclude the host, remove `tls: skip`, or write `on_error: fail_open`"
    return error(document.locate_key(place), says, hint)


def _selects(middleware: MiddlewareModel, site: Site) -> bool:
    """May the middleware cover the endpoint? A hostless endpoint may be any host."""
    if site.pattern is None:
        return True
    host = host_reading(site.pattern)
    if any(covers((selector,), (host,), ".") for selector in _readings(middleware.endpoints.exclude)):
        return False
    return any(overlaps((selector,), (host,), ".") for selector in _readings(middleware.endpoints.include))


def _readings(selectors: Iterable[str]) -> Iterable[Reading]:
    for text in selectors:
        try:
            yield selector_reading(parse_host_selector(text))
        except HostPatternError:
            continue  # reported with the document it stands in
