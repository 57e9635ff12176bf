"""Which layers of a profile a table shows: by group, path or class, down to a depth; no time gets lost (pure)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import get_args

from harness.core.schemas.profile_record import Group, LayerRow

_NEAR = 5
"""Names that an error lists."""

_CUTOFF = 0.4
"""Of difflib's similarity, from which a name is near."""


@dataclass(frozen=True)
class Choice:
    """words: groups, paths of modules with `*`, or classes; none of them chooses every layer. depth: of the module
    tree, where the model is 0: what stands deeper counts for the module that it stands in there. None for no end."""

    words: tuple[str, ...] = ()
    depth: int | None = None


EVERYTHING = Choice()


def chosen(layers: Sequence[LayerRow], choice: Choice = EVERYTHING) -> tuple[LayerRow, ...]:
    """The layers that match any word, those below the depth added to the module that they stand in.

    self_ns of each is its time alone with what was added; flops the same: its own, not those of modules in it that
    are rows themselves. A row that takes in layers of one group alone has that group.
    """
    by_name = {row.name: row for row in layers}
    flops = _own_flops(layers)
    taken: dict[str, list[LayerRow]] = {}
    for row in layers:
        if not choice.words or any(matches(row, word) for word in choice.words):
            taken.setdefault(_place(row, by_name, choice.depth).name, []).append(row)
    return tuple(_sum(by_name[name], rows, flops) for name, rows in taken.items())


def matches(row: LayerRow, word: str) -> bool:
    """Whether a word chooses a layer: a group by its name, else a class, or a module and everything in it.

    A path may begin at any module: `layer.0` finds `encoder.layer.0` and `encoder.layer.0.attention`. Of a graph's node
    it is the path of the module that it came from, and its own name.
    """
    if word in get_args(Group):
        return row.group == word
    return fnmatchcase(row.kind, word) or any(_inside(name, word) for name in (row.name, row.parent) if name)


def unmatched(words: Iterable[str], profiles: Iterable[Sequence[LayerRow]]) -> list[str]:
    """The words that choose no layer of any profile."""
    rows = [row for layers in profiles for row in layers]
    return [word for word in words if not any(matches(row, word) for row in rows)]


def near_names(word: str, profiles: Iterable[Sequence[LayerRow]]) -> list[str]:
    """Names that a word may have meant, the nearest first; the groups that there are where none is near."""
    rows = [row for layers in profiles for row in layers]
    groups = list(dict.fromkeys(str(row.group) for row in rows))
    paths = {end for row in rows for name in (row.name, row.parent) if name for end in _ends(name)}
    known = {name.lower(): name for name in (*sorted(paths), *sorted({row.kind for row in rows}), *groups)}
    near = difflib.get_close_matches(word.strip("*").lower(), known, n=_NEAR, cutoff=_CUTOFF)
    return [known[name] for name in near] or groups


def _inside(path: str, pattern: str) -> bool:
    """Whether any stretch of a path is what the pattern says: then the path is that module, or stands in it."""
    names = path.split(".")
    places = range(len(names))
    return any(
        fnmatchcase(".".join(names[begin : end + 1]), pattern) for begin in places for end in places if end >= begin
    )


def _ends(path: str) -> list[str]:
    """A path from each of its modules on, numbers as `*`: that is nearly the same for every layer."""
    names = ["*" if name.isdecimal() else name for name in path.split(".")]
    return [".".join(names[begin:]) for begin, name in enumerate(names) if name != "*"]


def _place(row: LayerRow, by_name: Mapping[str, LayerRow], depth: int | None) -> LayerRow:
    """The row itself, or the module at that depth that it stands in."""
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
    """All self times in ns."""
    return sum(row.self_ns for row in layers)


def inside(layers: Sequence[LayerRow], module: str) -> int | None:
    """Self time in ns of a module, of what it calls, and of nodes that came from there; None where nothing did, as of
    a module that was fused into others."""
    below = f"{module}."
    found = [
        row.self_ns
        for row in layers
        if module in (row.name, row.parent) or row.name.startswith(below) or (row.parent or "").startswith(below)
    ]
    return sum(found) if found else None
