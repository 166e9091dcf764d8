"""Recognises template placeholders that nobody filled in. They are reported, never expanded."""

import re

_PLACEHOLDER = re.compile(r"\$\{|\{\{|__[A-Z][A-Z0-9_]*__")


def unfilled(text: str) -> bool:
    """True for `${NAME}`, `{{name}}` and `__NAME__`."""
    return _PLACEHOLDER.search(text) is not None
