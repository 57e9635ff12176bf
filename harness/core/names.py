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
