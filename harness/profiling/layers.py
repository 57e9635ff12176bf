"""Selects the layers of a profile for a table: by group, path or class, down to a depth; no time is lost (pure)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import get_args

from harness.core.schemas.profile_record import Group, LayerRow

_NEAR = 5
"""Number of names that an error lists."""

_CUTOFF = 0.4
"""Smallest similarity of a near name, by difflib."""


@dataclass(frozen=True)
class LayerChoice:
    """words: groups, paths of modules with `*`, or classes; without words every layer is chosen. depth: in the module
    tree, where the model is 0. A deeper layer counts for the module at that depth that contains it; None: no limit."""

    words: tuple[str, ...] = ()
    depth: int | None = None


EVERYTHING = LayerChoice()


def chosen(layers: Sequence[LayerRow], choice: LayerChoice = EVERYTHING) -> tuple[LayerRow, ...]:
    """The layers that match any word; layers below the depth are added to the module that contains them.

    self_ns and flops of a row are its own and those of the layers added to it, without those of modules in it that have
    a row. A row whose layers all have one group has that group.
    """
    by_name = {row.name: row for row in layers}
    flops = _own_flops(layers)
    taken: dict[str, list[LayerRow]] = {}
    for row in layers:
        if not choice.words or any(matches(row, word) for word in choice.words):
            taken.setdefault(_place(row, by_name, choice.depth).name, []).append(row)
    return tuple(_sum(by_name[name], rows, flops) for name, rows in taken.items())


def matches(row: LayerRow, word: str) -> bool:
    """Whether a word chooses a layer: by its group, else by its class, or by its module or a module around it.

    A path may begin at any module: `layer.0` finds `encoder.layer.0` and `encoder.layer.0.attention`. For a node of a
    graph, its own name and the path of the module that it came from count.
    """
    if word in get_args(Group):
        return row.group == word
    return fnmatchcase(row.kind, word) or any(_inside(name, word) for name in (row.name, row.parent) if name)


def unmatched(words: Iterable[str], profiles: Iterable[Sequence[LayerRow]]) -> list[str]:
    """The words that choose no layer of any profile."""
    rows = [row for layers in profiles for row in layers]
    return [word for word in words if not any(matches(row, word) for row in rows)]


def near_names(word: str, profiles: Iterable[Sequence[LayerRow]]) -> list[str]:
    """Names that are similar to a word, the most similar first; where none is, the groups of the profiles."""
    rows = [row for layers in profiles for row in layers]
    groups = list(dict.fromkeys(str(row.group) for row in rows))
    paths = {end for row in rows for name in (row.name, row.parent) if name for end in _ends(name)}
    known = {name.lower(): name for name in (*sorted(paths), *sorted({row.kind for row in rows}), *groups)}
    near = difflib.get_close_matches(word.strip("*").lower(), known, n=_NEAR, cutoff=_CUTOFF)
    return [known[name] for name in near] or groups


def _inside(path: str, pattern: str) -> bool:
    """Whether any part of a path matches the pattern: then the path is that module, or is inside it."""
    names = path.split(".")
    places = range(len(names))
    return any(
        fnmatchcase(".".join(names[begin : end + 1]), pattern) for begin in places for end in places if end >= begin
    )


def _ends(path: str) -> list[str]:
    """The ends of a path from each of its modules, with numbers as `*`, because layers with other numbers are alike."""
    names = ["*" if name.isdecimal() else name for name in path.split(".")]
    return [".".join(names[begin:]) for begin, name in enumerate(names) if name != "*"]


def _place(row: LayerRow, by_name: Mapping[str, LayerRow], depth: int | None) -> LayerRow:
    """The row itself, or the module at that depth that contains it."""
    above = by_name.get(row.parent or "")
    while depth is not None and row.depth > depth and above is not None:
        row, above = above, by_name.get(above.parent or "")
    return row


def _own_flops(layers: Sequence[LayerRow]) -> dict[str, int | None]:
    """Name → FLOPs without those of its children."""
    inner: dict[str, int] = {}
    for row in layers:
        if row.parent is not None:
            inner[row.parent] = inner.get(row.parent, 0) + (row.flops or 0)
    return {row.name: None if row.flops is None else row.flops - inner.get(row.name, 0) for row in layers}


def _sum(place: LayerRow, rows: Sequence[LayerRow], flops: Mapping[str, int | None]) -> LayerRow:
    groups = {row.group for row in rows}
    known = [own for row in rows if (own := flops[row.name]) is not None]
    return place.model_copy(
        update={
            "self_ns": sum(row.self_ns for row in rows),
            "flops": sum(known) if known else None,
            "group": groups.pop() if len(groups) == 1 else place.group,
        }
    )


def by_group(layers: Sequence[LayerRow]) -> dict[Group, int]:
    """Group → self time in ns, the longest first."""
    found: dict[Group, int] = {}
    for row in layers:
        found[row.group] = found.get(row.group, 0) + row.self_ns
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def total(layers: Sequence[LayerRow]) -> int:
    """Sum of all self times in ns."""
    return sum(row.self_ns for row in layers)


def inside(layers: Sequence[LayerRow], module: str) -> int | None:
    """Self time in ns of a module, of modules inside it, and of nodes that came from them; None without any, as for
    a module that was fused into others."""
    below = f"{module}."
    found = [
        row.self_ns
        for row in layers
        if module in (row.name, row.parent) or row.name.startswith(below) or (row.parent or "").startswith(below)
    ]
    return sum(found) if found else None
