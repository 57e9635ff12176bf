"""Texts that people read: without control characters, with short names of models."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable

CUT = " […] "
"""Where the middle of a text was left out."""


def one_line(text: str) -> str:
    """Without line breaks, control characters and marks that reorder text; each of them is a space."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def lines(text: str) -> str:
    """The same line by line: line feeds and tabs stay, and a carriage return ends a line, too."""
    if text.isprintable():
        return text
    whole = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join("\t".join(map(one_line, line.split("\t"))) for line in whole)


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a text that is longer than `most` characters."""
    if len(text) <= most:
        return text
    half = (most - len(CUT)) // 2
    return f"{text[:half]}{CUT}{text[-half:]}"


_NAME_LENGTH = 40


def plain_name(text: str) -> str:
    """A name that another program gave itself, safe in a terminal, in Markdown and in HTML: letters, digits, spaces and
    `._-+:@/`; control characters are dropped, others become `?`."""
    seen = "".join(one for one in text if one.isprintable())[:_NAME_LENGTH]
    return "".join(one if one.isalnum() or one in " ._-+:@/" else "?" for one in seen).strip() or "?"


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
