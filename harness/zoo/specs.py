"""Describe tensors from what they did: an axis that followed the sequence length is dynamic."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import TensorSpec
from harness.zoo.loaded import Arrays


def tensor_specs(
    seen: list[Arrays],
    names: tuple[str, ...],
    fixed_batch: int | None,
    batch_axes: Mapping[str, int | None] | None = None,
) -> tuple[TensorSpec, ...]:
    """Names, types and shapes of tensors seen at one or two sequence lengths, first and last of `seen`, batch first.

    Axis 0 is `batch` unless the graph fixes it; an axis whose extent differs between the two is `sequence`. batch_axes:
    where the model has the batch of a tensor, if not first; None where it has none.
    """
    first, last = seen[0], seen[-1]
    axes = batch_axes or {}
    return tuple(_spec(name, first[name], last[name], fixed_batch or "batch", axes.get(name, 0)) for name in names)


def _spec(
    name: str, first: NDArray[np.generic], last: NDArray[np.generic], batch: int | str, batch_axis: int | None
) -> TensorSpec:
    shape: list[int | str] = [
        one if one == other else "sequence" for one, other in zip(first.shape[1:], last.shape[1:], strict=True)
    ]
    if batch_axis is not None:
        shape.insert(batch_axis, batch)
    return TensorSpec(name=name, dtype=str(first.dtype), shape=tuple(shape), batch_axis=batch_axis)
