"""Lists the plugins of installed packages: their entry points of one group, found without importing anything.

https://packaging.python.org/en/latest/specifications/entry-points/
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any


@dataclass(frozen=True)
class Plugin:
    """One entry point. load: imports its module and returns its object; raises what that module raises."""

    name: str
    distribution: str
    version: str
    load: Callable[[], Any]

    @property
    def origin(self) -> str:
        """Distribution and version, as records have them."""
        return f"{self.distribution} {self.version}"


def installed(group: str) -> tuple[list[Plugin], list[str]]:
    """(entry points of a group by name, distributions that name the group in a file that cannot be read)."""
    plugins: list[Plugin] = []
    unreadable: list[str] = []
    seen: set[str] = set()
    # metadata.entry_points() would stop at the first malformed file, even one of an unrelated package.
    for distribution in metadata.distributions():
        if group not in _entry_points_of(distribution):
            continue
        name = distribution.metadata["Name"] or "a distribution without a name"
        if name.lower() in seen or _is_shadowed(distribution, name):
            continue
        seen.add(name.lower())
        try:
            points = distribution.entry_points.select(group=group)
        except (TypeError, UnicodeDecodeError):  # a line without `=`, or bytes that are not text
            unreadable.append(f"{name} {distribution.version}")
            continue
        plugins += [Plugin(point.name, name, distribution.version, point.load) for point in points]
    return sorted(plugins, key=lambda plugin: (plugin.name, plugin.distribution)), sorted(unreadable)


def _entry_points_of(distribution: metadata.Distribution) -> str:
    try:
        return distribution.read_text("entry_points.txt") or ""
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")


def _is_shadowed(distribution: metadata.Distribution, name: str) -> bool:
    """Whether another copy, perhaps without these entry points, comes earlier on the path: Python imports that copy."""
    first = next(iter(metadata.distributions(name=name)), distribution)
    return first.locate_file("") != distribution.locate_file("")
