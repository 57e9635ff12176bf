"""Layers of a profile as a tree to fold: module trees as they are, graphs below the modules that they came from (pure).

A graph tells nodes and for each the path of its module, so the modules between are made here, with the sums of their
nodes. What no module is told of stands below a line of its own: nothing is dropped, and each level adds up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.core.schemas.profile_parts import Group, LayerRow
from harness.measure.shared_modules import NOT_TOLD, is_tree

MAX_LINES = 2_000
"""Lines of one tree: the ones that took longest, with everything that they stand in."""


@dataclass
class Line:
    """A layer, or a module that only its nodes tell of.

    label: its name without that of what it stands in; path: its whole name; row: as profiled, None of a line made here;
    self_ns, total_ns: as in LayerRow; total_ns of a line made here is the sum of its nodes.
    """

    label: str
    path: str
    row: LayerRow | None = None
    below: list[Line] = field(default_factory=list)

    @property
    def self_ns(self) -> int:
        """Time of this line alone."""
        return self.row.self_ns if self.row else 0

    @property
    def total_ns(self) -> int:
        """Time of this line and of all below it."""
        return self.row.total_ns if self.row else sum(line.total_ns for line in self.below)

    @property
    def group(self) -> Group | None:
        """Its own, or the one that all below it share."""
        if self.row:
            return self.row.group
        groups = {line.group for line in self.below}
        return groups.pop() if len(groups) == 1 else None


def tree(layers: Sequence[LayerRow]) -> list[Line]:
    """The lines that stand in no other, each with what stands in it, in the order in which they ran."""
    return _modules(layers) if is_tree(layers) else _graph(layers)


def flat(lines: Sequence[Line], most: int = MAX_LINES) -> tuple[list[tuple[int, Line]], int]:
    """(depth, line) from the top, each before what stands in it; and how many of the shortest were left out."""
    everything = list(_walk(lines, 0))
    if len(everything) <= most:
        return everything, 0
    longest = sorted(range(len(everything)), key=lambda place: -everything[place][1].total_ns)[:most]
    kept = set(longest)
    shown, above = [], [True]
    for place, (depth, line) in enumerate(everything):
        # A mean may be above that of what it stands in: a line goes with the one that holds it.
        fits = above[depth] and place in kept
        above[depth + 1 :] = [fits]
        if fits:
            shown.append((depth, line))
    return shown, len(everything) - len(shown)


def _walk(lines: Sequence[Line], depth: int) -> Iterator[tuple[int, Line]]:
    for line in lines:
        yield depth, line
        yield from _walk(line.below, depth + 1)


def _modules(layers: Sequence[LayerRow]) -> list[Line]:
    lines = {row.name: Line(_label(row), row.name, row) for row in layers}
    top: list[Line] = []
    for row in layers:
        above = lines.get(row.parent or "")
        (above.below if above else top).append(lines[row.name])
    return top


def _label(row: LayerRow) -> str:
    """Names within a tree are paths: what the line above says already is left out."""
    return row.name.removeprefix(f"{row.parent}.")


def _graph(layers: Sequence[LayerRow]) -> list[Line]:
    top = Line("", "")
    modules: dict[str, Line] = {"": top}
    untold = Line(NOT_TOLD, NOT_TOLD)
    several = any(row.parent for row in layers)
    for row in layers:
        above = _module(modules, row.parent) if row.parent else untold if several else top
        above.below.append(Line(row.name, row.name, row))
    return [*_joined(top).below, *([untold] if untold.below else [])]


def _module(modules: dict[str, Line], path: str) -> Line:
    """The line of a module, made with all above it where it is new."""
    if path not in modules:
        above, _, label = path.rpartition(".")
        modules[path] = Line(label, path)
        _module(modules, above).below.append(modules[path])
    return modules[path]


def _joined(line: Line) -> Line:
    """A module that holds one module and nothing else is one line with it: `encoder.layer`."""
    line.below = [_joined(one) for one in line.below]
    only = line.below[0] if len(line.below) == 1 else None
    if line.path and only and only.row is None:
        return Line(f"{line.label}.{only.label}", only.path, None, only.below)
    return line
