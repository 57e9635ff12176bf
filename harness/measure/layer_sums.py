"""Sums over the layers of a profile: by group, and by module, the same way for module trees and for graphs (pure).

A graph's node counts for the module that it came from; one that fuses several modules counts for its product's alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas.profile_parts import Group, LayerRow


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
