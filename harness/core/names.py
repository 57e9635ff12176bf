"""Messages about a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown_name(what: str, given: str, known: Iterable[str]) -> tuple[str, str]:
    """(problem, hint) for a name that is not among the known ones: the nearest, else the list."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.6)
    hint = f"Did you mean `{near[0]}`? " if near else ""
    return f"Unknown {what} `{given}`.", f"{hint}Known: {', '.join(names)}."


_NAME_LENGTH = 40


def plain_name(text: str) -> str:
    """A name that another program gave itself, safe in a terminal, in Markdown and in HTML: letters, digits, spaces and
    `._-+:@/`; control characters are dropped, others become `?`."""
    seen = "".join(one for one in text if one.isprintable())[:_NAME_LENGTH]
    return "".join(one if one.isalnum() or one in " ._-+:@/" else "?" for one in seen).strip() or "?"
