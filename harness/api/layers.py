"""Some layers of a profile, by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.api.profiles import LayerProfile
from harness.api.runs import Found
from harness.core.errors import UnavailableError, UsageError
from harness.measure.layer_choice import Choice, near_names, unmatched


def some_layers(folder: Path, found: Found, names: Sequence[str] | str | None, depth: int | None) -> LayerProfile:
    """The layers that any of the names chooses; all for None.

    Raises UsageError for a depth below 0 and for a name that matches nothing, with near ones, and UnavailableError
    where no layer was told.
    """
    if depth is not None and depth < 0:
        raise UsageError(f"depth={depth} is above the model itself.", "At least 0: the model as a whole.")
    layers = found.parts.layers if found.parts else ()
    if not layers:
        raise UnavailableError(f"{found.model.backend} has no per-layer profile.", "Use backend='torch-eager'.")
    words = (names,) if isinstance(names, str) else tuple(names or ())
    for word in unmatched(words, [layers]):
        near = ", ".join(f"`{name}`" for name in near_names(word, [layers]))
        raise UsageError(f"No layer matches `{word}`.", f"Near: {near}. A group, a path of modules or a class.")
    return LayerProfile(folder, found.model, layers, Choice(words, depth))
