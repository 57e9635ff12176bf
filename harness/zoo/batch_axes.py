"""Where the batch of a model's inputs and outputs is, by their shapes, and arrays with it first or in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.zoo.input_files import Arrays

Axes = Mapping[str, int | None]
"""The batch axis by name, where it is not the first; None for a tensor that all samples share."""

Shape = Sequence[int | str | None]
"""Extents as an ONNX file has them: a number, a symbol, or None for an axis without a name."""

_BATCH = ("n", "b", "bs", "batch", "batch_size", "batchsize")


def batch_first(outputs: Arrays, axes: Axes) -> Arrays:
    """Outputs with their batch axis moved to the front, and those that all samples share repeated for each; views."""
    arrays = {
        name: np.moveaxis(values, axes.get(name) or 0, 0) if values.ndim else values for name, values in outputs.items()
    }
    shared = [name for name in arrays if axes.get(name, 0) is None]
    count = next(len(values) for name, values in arrays.items() if name not in shared) if shared else 0
    return arrays | {name: np.broadcast_to(outputs[name], (count, *outputs[name].shape)) for name in shared}


def in_model_layout(samples: Arrays, axes: Axes) -> Arrays:
    """Arrays with the sample axis first → as the model takes them: the batch on its axis, shared inputs once."""
    arrays: Arrays = {}
    for name, values in samples.items():
        axis = axes.get(name, 0)
        if axis is None:
            arrays[name] = np.array(values[0])
        else:
            arrays[name] = values if axis == 0 else np.ascontiguousarray(np.moveaxis(values, 0, axis))
    return arrays


def sample_first(taken: Arrays, axes: Axes) -> Arrays:
    """The opposite of in_model_layout(): a shared input is repeated for each sample."""
    count = sample_count(taken, axes)
    arrays: Arrays = {}
    for name, values in taken.items():
        axis = axes.get(name, 0)
        shared = axis is None
        arrays[name] = np.stack([values] * count) if shared else np.moveaxis(values, axis or 0, 0)
    return arrays


def sample_count(taken: Arrays, axes: Axes) -> int:
    """The number of samples in a batch."""
    own = next(name for name in taken if axes.get(name, 0) is not None)
    return int(taken[own].shape[axes.get(own, 0) or 0])


def axes_of_examples(shapes: Mapping[str, Sequence[int]]) -> dict[str, int | None]:
    """The batch axis of each input of a module, where it is not the first, by the shapes of its examples.

    The first axis of the first input that has axes gives the number of samples. Another input has its batch on the axis
    with that extent; an input without such an axis is shared by all samples.

    >>> axes_of_examples({"x": (16, 8), "state": (2, 16, 4), "scale": ()})
    {'state': 1, 'scale': None}
    """
    count = next((shape[0] for shape in shapes.values() if len(shape)), None)
    axes = {name: _place(shape, count) for name, shape in shapes.items()}
    return {name: axis for name, axis in axes.items() if axis != 0}


def axes_of_graph(shapes: Mapping[str, Shape]) -> dict[str, int | None]:
    """As axes_of_examples, by the shapes that an ONNX file declares, where the batch is a symbol or a fixed number.

    >>> axes_of_graph({"x": ("batch", 8), "state": (2, "batch", 4), "scale": ()})
    {'state': 1, 'scale': None}
    """
    batch = _batch_symbol(shapes)
    if batch is None and not any(shape and not isinstance(shape[0], int) for shape in shapes.values()):
        return axes_of_examples(
            {name: [axis for axis in shape if isinstance(axis, int)] for name, shape in shapes.items()}
        )
    axes: dict[str, int | None] = {}
    for name, shape in shapes.items():
        axis = _place(shape, batch) if batch is not None else None
        if axis is None and shape and not isinstance(shape[0], int):
            axis = 0
        axes[name] = axis
    return {name: axis for name, axis in axes.items() if axis != 0}


def fixed_batch(shapes: Mapping[str, Shape], axes: Mapping[str, int | None]) -> int | None:
    """The only batch size of a file whose inputs have these shapes; None where it is free. axes: as axes_of_graph.

    >>> fixed_batch({"x": (4, 8), "scale": ()}, {"scale": None})
    4
    >>> fixed_batch({"x": ("batch", 8)}, {})
    """
    own = [(shape, axes.get(name, 0)) for name, shape in shapes.items()]
    extents = {shape[axis] for shape, axis in own if axis is not None}
    return max((extent for extent in extents if isinstance(extent, int)), default=None)


def _place(shape: Shape, count: int | str | None) -> int | None:
    return next((axis for axis, extent in enumerate(shape) if extent == count), None)


def _batch_symbol(shapes: Mapping[str, Shape]) -> str | None:
    symbols = [extent for shape in shapes.values() for extent in shape if isinstance(extent, str)]
    called = [symbol for symbol in symbols if symbol.lower() in _BATCH or "batch" in symbol.lower()]
    first = [shape[0] for shape in shapes.values() if shape and isinstance(shape[0], str)]
    return next(iter((*called, *first)), None)
