"""The modules of one model that several profiles can all tell apart (pure).

Module trees have a row a module; graphs have nodes that name the module they came from. A graph that fused a module
into another one has no node of it, so its time stands elsewhere: what they share, their parent, is then the finest line
that compares like with like.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.core.schemas.profile_parts import LayerRow

MODEL = "(model)"
"""The model itself, as profiles name it."""

NOT_TOLD = "not assigned to a module"

_PASSING_ON = frozenset({"Dropout", "Dropout1d", "Dropout2d", "Identity", "StochasticDepth", "DropPath"})
"""Classes that compute nothing when a model infers. Graphs leave them out, which fuses nothing."""


def module_of(row: LayerRow, layers: Sequence[LayerRow]) -> str | None:
    """The module that a row's own time belongs to: itself in a tree, else the one that the node came from."""
    return row.name if is_tree(layers) else row.parent


def is_tree(layers: Sequence[LayerRow]) -> bool:
    """Whether rows are modules: only those stand in each other."""
    return any(row.depth for row in layers)


def shared_modules(profiles: Sequence[Sequence[LayerRow]]) -> dict[str, str]:
    """Module → the line that it belongs to, its own or that of one that it stands in; in the model's order.

    A module that some profile has nothing of goes to the nearest module around it that all profiles have, and takes
    along the other modules there that have no modules themselves: with one of those it was fused.
    """
    trees_first = sorted(profiles, key=lambda layers: not is_tree(layers))  # whose rows stand in the model's order
    known = [[module for row in layers if (module := module_of(row, layers)) is not None] for layers in trees_first]
    modules = list(dict.fromkeys(module for found in known for module in found))
    inside = [{around for module in found for around in (module, *_around(module))} for found in known]
    everywhere = set.intersection(*inside) if inside else set()
    idle = {row.name for layers in profiles for row in layers if row.kind in _PASSING_ON and is_tree(layers)}
    lines = {module: _nearest(module, everywhere) for module in modules}
    fused = {lines[module] for module in modules if module not in everywhere and module not in idle}
    holding = {around for module in modules for around in _around(module)}
    for module in modules:
        around = next(iter(_around(module)), MODEL)
        if lines[module] == module and module not in holding and around in fused:
            lines[module] = around
    return lines


def _around(module: str) -> Iterable[str]:
    """The modules that one stands in, from the inside out; none of the model itself."""
    if module == MODEL:
        return
    while "." in module:
        module = module.rpartition(".")[0]
        yield module
    yield MODEL


def _nearest(module: str, everywhere: set[str]) -> str:
    return next((found for found in (module, *_around(module)) if found in everywhere), MODEL)
