"""Describe tensors from what they did: an axis that followed the sequence length is dynamic."""

from __future__ import annotations

from harness.core.schemas import TensorSpec
from harness.zoo.loaded import Arrays


def tensor_specs(seen: list[Arrays], names: tuple[str, ...], fixed_batch: int | None) -> tuple[TensorSpec, ...]:
    """Names, types and shapes of tensors seen at one or two sequence lengths, first and last of `seen`.

    Axis 0 is `batch` unless the graph fixes it; an axis whose extent differs between the two is `sequence`.
    """
    first, last = seen[0], seen[-1]
    return tuple(
        TensorSpec(
            name=name,
            dtype=str(first[name].dtype),
            shape=(
                fixed_batch or "batch",
                *(
                    one if one == other else "sequence"
                    for one, other in zip(first[name].shape[1:], last[name].shape[1:], strict=True)
                ),
            ),
        )
        for name in names
    )
