"""Names: messages about one that is not known, and short ones of models for tables and charts (pure)."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable


def unknown_name(what: str, given: str, known: Iterable[str]) -> tuple[str, str]:
    """(problem, hint) for a name that is not among the known ones: the nearest, else the list."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.6)
    hint = f"Did you mean `{near[0]}`? " if near else ""
    return f"Unknown {what} `{given}`.", f"{hint}Known: {', '.join(names)}."


_DIGITS = 16
"""Of the hash at the end of a pickle's name."""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """By whole name its short one; of names that would be short alike, each gets the least that distinguishes them.

    >>> short_names(["onnx:/data/a/net.onnx", "onnx:/data/b/net.onnx", "hf:./bert"])
    {'onnx:/data/a/net.onnx': 'a/net.onnx', 'onnx:/data/b/net.onnx': 'b/net.onnx', 'hf:./bert': 'bert'}
    """
    longer = {name: _names(name) for name in dict.fromkeys(names)}
    level = dict.fromkeys(longer, 0)
    while True:
        shown = {name: longer[name][level[name]] for name in longer}
        counts = Counter(shown.values())
        alike = [name for name in longer if counts[shown[name]] > 1 and level[name] < len(longer[name]) - 1]
        if not alike:
            return shown
        for name in alike:
            level[name] += 1


def _names(name: str) -> list[str]:
    """The ways to write a name, the shortest first, the whole one last."""
    prefix, colon, reference = name.partition(":")
    if not colon:
        return [name]
    if prefix == "pickle":
        label, _, digits = reference.rpartition("-")
        parts = [label, *(f"{label}-{digits[:count]}" for count in range(1, _DIGITS + 1))]
    elif prefix == "module":
        module, _, function = reference.rpartition(":")
        packages = module.split(".")
        parts = [function, *(f"{'.'.join(packages[place:])}:{function}" for place in reversed(range(len(packages))))]
    elif prefix in ("onnx", "pt2", "hf", "torchvision", "timm"):
        folders = reference.rstrip("/").split("/")
        parts = ["/".join(folders[place:]) for place in reversed(range(len(folders))) if folders[place] != "."]
    else:
        return [name]
    return list(dict.fromkeys([*filter(None, parts), name]))
