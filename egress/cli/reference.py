"""`egress reference`: what can be set, refused, bounded and typed, printed from the code that does it."""

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields

import typer

from egress.cli.terminal import show
from egress.config.catalogue import entries
from egress.destination import ranges
from egress.model import limits
from egress.model.verdict import DenialCode, ReasonCode


def print_reference(app: typer.Typer, topics: Sequence[str]) -> None:
    """Print the named topics as Markdown."""
    makers: Mapping[str, Callable[[], Iterator[str]]] = {
        "settings": _settings,
        "codes": _codes,
        "limits": _limits,
        "commands": lambda: _commands(app),
        "ranges": _ranges,
    }
    for topic in topics:
        show(f"# {topic.capitalize()}\n\n")
        show("".join(f"{line}\n" for line in makers[topic]()))
        show("\n")


def _settings() -> Iterator[str]:
    yield "`r`: needs a restart. `-`: not available in this version, only the default may be written."
    yield ""
    yield from _table(
        ("Key", "Type", "Default", "", "Meaning"),
        (
            (
                f"`{entry.key}`",
                entry.type,
                entry.default,
                " ".join(mark for mark, holds in (("r", entry.restart), ("-", not entry.available)) if holds),
                entry.description,
            )
            for entry in entries()
        ),
    )


def _codes() -> Iterator[str]:
    yield "The `error` of a refusal."
    yield ""
    yield from _table(
        ("Code", "Status", "Layer", "Trying again can help"),
        (
            (f"`{code.word}`", str(code.status or "TLS alert"), code.layer.value, "yes" if code.retryable else "no")
            for code in DenialCode
        ),
    )
    yield ""
    yield "The `reason_code`, where there is more to say."
    yield ""
    yield from (f"- `{code.value}`" for code in ReasonCode)


def _limits() -> Iterator[str]:
    yield "Bounds that are no settings."
    yield ""
    texts = _attribute_docs(limits.Limits)
    yield from _table(
        ("Limit", "Value", "Meaning"),
        (
            (f"`{field.name}`", str(getattr(limits.LIMITS, field.name)), texts.get(field.name, ""))
            for field in fields(limits.Limits)
        ),
    )


def _attribute_docs(subject: type) -> Mapping[str, str]:
    """The text below each attribute of a class; Python keeps it in the source only."""
    body = ast.parse(inspect.getsource(subject)).body[0]
    assert isinstance(body, ast.ClassDef)  # the source of a class is a class
    found = {}
    for attribute, text in zip(body.body, body.body[1:], strict=False):
        match attribute, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as words)):
                found[name] = " ".join(words.split())
    return found


def _commands(app: typer.Typer) -> Iterator[str]:
    yield from _table(("Command", "Does"), ((f"`egress {name}`", text) for name, text in command_list(app)))


def command_list(app: typer.Typer, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every command with the first sentence of its help."""
    for command in app.registered_commands:
        callback = command.callback
        name = command.name or (callback.__name__ if callback else "")
        yield f"{prefix}{name}", _first_paragraph(callback.__doc__ if callback else None)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from command_list(group.typer_instance, f"{prefix}{group.name} ")


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").strip().split("\n\n")[0].split())


def _ranges() -> Iterator[str]:
    yield "Classes of addresses; the first block that holds an address counts. `internal`: policy must name the host"
    yield "or list the address. `blocked`: no policy reaches it."
    yield ""
    yield from _table(
        ("Block", "Class", "Reach"),
        ((f"`{item.network}`", item.kind.word, item.kind.reach.name.lower()) for item in ranges.RANGES),
    )


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"
