"""What installed packages add to Inferometer: their entry points of one group, found without importing anything.

https://packaging.python.org/en/latest/specifications/entry-points/
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any


@dataclass(frozen=True)
class Extension:
    """One entry point. load: imports its module and gives its object; raises whatever that module raises."""

    name: str
    distribution: str
    version: str
    load: Callable[[], Any]

    @property
    def origin(self) -> str:
        """Distribution and version, as they stand in records."""
        return f"{self.distribution} {self.version}"


def installed(group: str) -> tuple[list[Extension], list[str]]:
    """(entry points of a group by name, distributions that name the group in a file that cannot be read)."""
    found: list[Extension] = []
    unreadable: list[str] = []
    seen: set[str] = set()
    # metadata.entry_points() would end at the first file that is not well formed, whoever it belongs to.
    for distribution in metadata.distributions():
        text = distribution.read_text("entry_points.txt") or ""
        if group not in text:
            continue
        name = distribution.metadata["Name"] or "a distribution without a name"
        if name.lower() in seen:  # further down the path: Python imports the first
            continue
        seen.add(name.lower())
        try:
            points = distribution.entry_points.select(group=group)
        except TypeError:  # a line without `=`
            unreadable.append(f"{name} {distribution.version}")
            continue
        found += [Extension(point.name, name, distribution.version, point.load) for point in points]
    return sorted(found, key=lambda extension: (extension.name, extension.distribution)), sorted(unreadable)


def reason(error: BaseException) -> str:
    """`ImportError: no module named x`, on one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
