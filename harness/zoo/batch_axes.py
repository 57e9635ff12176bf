"""Which axis of a tensor is the batch. Stored arrays have the item first; a model may take and give it elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.zoo.loaded import Arrays

Axes = Mapping[str, int | None]
"""The batch axis by name, where it is not the first; None for an input that all items share."""

Shape = Sequence[int | str | None]
"""Extents as an ONNX file has them: a number, a symbol, or None for an axis without a name."""

_BATCH = ("n", "b", "bs", "batch", "batch_size", "batchsize")


def batch_first(outputs: Arrays, axes: Axes) -> Arrays:
    """Outputs with their batch axis moved to the front; views."""
    return {
        key: np.moveaxis(values, axes.get(key, 0) or 0, 0) if values.ndim else values for key, values in outputs.items()
    }


def as_taken(items: Arrays, axes: Axes) -> Arrays:
    """Arrays with the item first as the model takes them: the batch where it has it, and shared inputs once."""
    found: Arrays = {}
    for name, values in items.items():
        axis = axes.get(name, 0)
        if axis is None:
            found[name] = np.array(values[0])
        else:
            found[name] = values if axis == 0 else np.ascontiguousarray(np.moveaxis(values, 0, axis))
    return found


def item_first(taken: Arrays, axes: Axes) -> Arrays:
    """The opposite of as_taken(): a shared input is there once for each item."""
    count = items_of(taken, axes)
    found: Arrays = {}
    for name, values in taken.items():
        axis = axes.get(name, 0)
        shared = axis is None
        found[name] = np.stack([values] * count) if shared else np.moveaxis(values, axis or 0, 0)
    return found


def items_of(taken: Arrays, axes: Axes) -> int:
    """How many items a batch has."""
    own = next(name for name in taken if axes.get(name, 0) is not None)
    return int(taken[own].shape[axes.get(own, 0) or 0])


def axes_of_examples(shapes: Mapping[str, Sequence[int]]) -> dict[str, int | None]:
    """The batch axis of each input of a module, where it is not the first, by the shapes of its examples.

    The first axis of the first input that has one says how many items there are. Another input has its batch where it
    has that extent; one that has it nowhere is shared by all items.

    >>> axes_of_examples({"x": (16, 8), "state": (2, 16, 4), "scale": ()})
    {'state': 1, 'scale': None}
    """
    count = next((shape[0] for shape in shapes.values() if len(shape)), None)
    found = {name: _place(shape, count) for name, shape in shapes.items()}
    return {name: axis for name, axis in found.items() if axis != 0}


def axes_of_graph(shapes: Mapping[str, Shape]) -> dict[str, int | None]:
    """The same by the shapes that an ONNX file declares, where the batch is a symbol or a fixed number.

    >>> axes_of_graph({"x": ("batch", 8), "state": (2, "batch", 4), "scale": ()})
    {'state': 1, 'scale': None}
    """
    batch = _batch_symbol(shapes)
    if batch is None and not any(shape and not isinstance(shape[0], int) for shape in shapes.values()):
        return axes_of_examples(
            {name: [one for one in shape if isinstance(one, int)] for name, shape in shapes.items()}
        )
    found: dict[str, int | None] = {}
    for name, shape in shapes.items():
        axis = _place(shape, batch) if batch is not None else None
        if axis is None and shape and not isinstance(shape[0], int):
            axis = 0
        found[name] = axis
    return {name: axis for name, axis in found.items() if axis != 0}


def _place(shape: Shape, count: int | str | None) -> int | None:
    return next((axis for axis, extent in enumerate(shape) if extent == count), None)


def _batch_symbol(shapes: Mapping[str, Shape]) -> str | None:
    symbols = [extent for shape in shapes.values() for extent in shape if isinstance(extent, str)]
    called = [symbol for symbol in symbols if symbol.lower() in _BATCH or "batch" in symbol.lower()]
    first = [shape[0] for shape in shapes.values() if shape and isinstance(shape[0], str)]
    return next(iter((*called, *first)), None)
