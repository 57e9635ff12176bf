"""New inputs, made of stored ones, so that they have their shapes, types and ranges (pure).

Floats are blended, integers (token ids, pixels) spliced element by element, or, where the two differ in one place
alone, drawn from between them; an array with at most two values, such as a mask, stays unchanged. So does the padding
that a mask hides: a backend that skips it would answer a change there alone as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.padding import Mask, mask_of

Arrays = Mapping[str, NDArray[np.generic]]

NEW_SAMPLES = 8
"""Number of the first samples of an export that have a new one in their place, with a reference."""

_DRAWS = 8
"""Tries with each other batch to make an input that differs from both of its sources: two texts may differ in only one
token."""

_LEAST_OTHER = 0.5
"""Smallest share of the other input in a blend: a blend nearer to the other can hardly pass for the first."""


def new_input(
    stored: Arrays, batch: int, batches: Sequence[Arrays], rng: np.random.Generator
) -> tuple[Arrays, int] | None:
    """An input between batch number `batch` and another one, and equal to neither; and the number of the other. None
    where no other batch gave one. stored: the changing arrays of the batch. Two that differ in one integer alone, as
    texts of one word do, are spliced to one of both: then integers between them are drawn."""
    mask = mask_of(batches[batch])
    others = [(batch + int(step)) % len(batches) for step in 1 + rng.permutation(len(batches) - 1)]
    for mix in (mixed, _between):
        for place in islice(cycle(others), _DRAWS * len(others)):
            other = batches[place]
            fresh = {n: _with_padding(mix(values, other[n], rng), values, mask) for n, values in stored.items()}
            if not equal(fresh, stored) and not equal(fresh, other):
                return fresh, place
    return None


def new_samples(arrays: Arrays, count: int, rng: np.random.Generator) -> dict[str, NDArray[Any]] | None:
    """A new sample for each of the first `count`; None where one of them cannot be made. arrays: samples first."""
    # An input that all samples share is the same for a whole batch.
    names = [name for name in changing(arrays) if (arrays[name] != arrays[name][:1]).any()]
    singles = [
        {name: values[place : place + 1] for name, values in arrays.items()}
        for place in range(len(next(iter(arrays.values()))))
    ]
    made: list[Arrays] = []
    for place in range(min(count, len(singles))):
        found = new_input({name: singles[place][name] for name in names}, place, singles, rng)
        if found is None:
            return None
        made.append({**singles[place], **found[0]})
    return {name: np.concatenate([sample[name] for sample in made]) for name in arrays}


def equal(some: Arrays, others: Arrays) -> bool:
    """Whether the arrays that both have are equal."""
    return all(np.array_equal(values, others[name]) for name, values in some.items() if name in others)


def changing(batch: Arrays) -> tuple[str, ...]:
    """Names of the inputs that have more than two values."""
    return tuple(name for name, values in batch.items() if _has_three_values(values.reshape(-1)))


def _has_three_values(values: NDArray[np.generic]) -> bool:
    if not values.size:
        return False
    others = values[values != values[0]]
    return bool(others.size and (others != others[0]).any())


def _with_padding(values: NDArray[Any], stored: NDArray[Any], mask: Mask | None) -> NDArray[Any]:
    """The values with the stored ones in the places that the mask hides."""
    if mask is None or values.shape[: mask.ndim] != mask.shape:
        return values
    return np.where(mask.reshape(*mask.shape, *[1] * (values.ndim - mask.ndim)), values, stored)


def mixed(first: NDArray[Any], other: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """An array of the same shape and type: blended sample by sample, or spliced element by element."""
    if not np.issubdtype(first.dtype, np.floating):
        return np.where(rng.random(first.shape) < _LEAST_OTHER, first, other)
    blended = np.empty_like(first)
    for sample in np.ndindex(first.shape[:1]):  # one at a time stays in the cache; a batch would need much memory
        share = rng.uniform(_LEAST_OTHER, 0.9)
        blended[sample] = first[sample] * first.dtype.type(1 - share) + other[sample] * first.dtype.type(share)
    return blended


def _between(first: NDArray[Any], other: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """As mixed, but integers that are drawn from the smaller to the larger one."""
    if first.dtype.kind not in "iu":
        return mixed(first, other, rng)
    low, high = np.minimum(first, other), np.maximum(first, other)
    return np.asarray(rng.integers(low, high, dtype=first.dtype, endpoint=True))
