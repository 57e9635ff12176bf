"""The repeat check, after MLPerf's TEST04: passes on new inputs compared with passes on inputs that repeat.

A backend that answers from memory, by the content or the address of its input, is fast only while inputs repeat. So
pairs of passes run in turn: on a stored input, and on a new input that was written into the same memory. Both are
written outside the clock right before their pass, so that both are in the caches in the same way. Which of the two runs
first is random, and balanced: whatever the machine does to the first or second pass of pairs, equal work is then longer
on either side equally often. The pairs are judged in harness/aggregation/checks.py.

A new input is made of two stored inputs, so that it has their shapes, types and ranges: floats are blended, integers
(token ids, pixels) spliced element by element, or, where the two differ in one place alone, drawn from between them; an
array with at most two values, such as a mask, stays unchanged. So does the padding that a mask hides: a backend that
skips it would answer a change there alone as before.

A new answer is wrong where it is, bit for bit, that of any stored input: a cache with a coarse key, such as a
neighbour's, is as fast for new inputs.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import InferometerError
from harness.core.padding import Mask, mask_of
from harness.core.schemas import Repeats
from harness.timing.clock import now_ns

Arrays = Mapping[str, NDArray[np.generic]]

LEAST_PAIRS = 8
"""Pairs for slow models: three rounds then have 24 pairs."""

ALONE_PAIRS = 16
"""Pairs where one process checks for a whole row: the interval over pairs needs eleven (checks.repeat_interval)."""

MOST_PAIRS = 64

BUDGET_NS = 400_000_000
"""Faster models run pairs for this long, new inputs and copies included."""

_DRAWS = 8
"""Tries with each other batch to make an input that differs from both of its sources: two texts may differ in only one
token."""

_LEAST_OTHER = 0.5
"""Smallest share of the other input in a blend: a blend nearer to the other can hardly pass for the first."""


@dataclass(frozen=True)
class Rewritable:
    """How a mode runs batches whose arrays were written to (harness.timing.modes.Mode.rewritable).

    batches: arrays that may be written to. make_ready(i): makes batch i, with its present arrays, the next batch;
    outside the clock. run_once: one complete pass of it. outputs: copies of its answer.
    """

    batches: Sequence[Arrays]
    make_ready: Callable[[int], None]
    run_once: Callable[[], None]
    outputs: Callable[[], Arrays]


def answer_digest(outputs: Arrays) -> bytes | None:
    """Identifies an answer bit for bit; None where two inputs may honestly have the same one, because no output is of
    floats that are more than whole numbers, as labels are."""
    floats = {name: np.ascontiguousarray(values) for name, values in outputs.items() if values.dtype.kind == "f"}
    if not any((np.isfinite(values) & (values != np.rint(values))).any() for values in floats.values()):
        return None
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(floats):
        digest.update(floats[name].view(np.uint8).data)
    return digest.digest()


def check_repeats(
    runs: Rewritable,
    reference: Callable[[int], Arrays],
    seed: Sequence[int],
    least: int = LEAST_PAIRS,
    known: Collection[bytes] = (),
) -> Repeats:
    """Run the pairs, or say why not. Afterwards all batches are as before.

    reference(i): the fp32 outputs for stored batch i. seed: chooses the new inputs and the order within pairs;
    different for each process, so that no process repeats the inputs of an earlier process. least: pairs, at least.
    known: digests of the backend's answers to stored batches, where these answers differ from each other.
    """
    try:
        return _pairs(runs, reference, np.random.default_rng(seed), least, known)
    except InferometerError as error:
        return Repeats(missing=error.problem)
    except Exception as error:  # it must not lose the earlier measurements
        return Repeats(missing=f"a pass on a new input failed: {type(error).__name__}: {str(error)[:200]}")


def _pairs(
    runs: Rewritable,
    reference: Callable[[int], Arrays],
    rng: np.random.Generator,
    least: int,
    known: Collection[bytes],
) -> Repeats:
    batches = runs.batches
    changing = _changing(batches[0]) if len(batches) > 1 else ()
    if not changing:
        return Repeats(missing="no input has more than two values, so that none can be made of two others")
    fresh_ns, repeated_ns = array("q"), array("q")
    compared = unchanged = 0
    first = True
    _timed(runs, 0)  # so that the first pair is not the only pair after a pause
    started = now_ns()
    while len(fresh_ns) < least or (len(fresh_ns) < MOST_PAIRS and now_ns() - started < BUDGET_NS):
        pair = len(fresh_ns)
        batch = pair % len(batches)
        stored = {name: np.copy(batches[batch][name]) for name in changing}
        made = _new_input(stored, batch, batches, rng)
        if made is None:
            return Repeats(missing="the inputs are too alike to make another one of two of them")
        fresh, other = made
        answers: dict[bool, Arrays] = {}
        # The first pass of a pair follows a longer pause: two pairs in turn run in opposite orders.
        first = bool(rng.integers(2)) if pair % 2 == 0 else not first
        for new in (first, not first):
            _write(batches[batch], fresh if new else stored)
            (fresh_ns if new else repeated_ns).append(_timed(runs, batch))
            if pair < LEAST_PAIRS:
                answers[new] = {name: np.array(values) for name, values in runs.outputs().items()}
        _write(batches[batch], stored)
        runs.make_ready(batch)
        if answers and not _equal(reference(batch), reference(other)):
            compared += 1
            unchanged += _equal(answers[True], answers[False]) or answer_digest(answers[True]) in known
    return Repeats(fresh_ns=tuple(fresh_ns), repeated_ns=tuple(repeated_ns), compared=compared, unchanged=unchanged)


def _timed(runs: Rewritable, index: int) -> int:
    runs.make_ready(index)
    start = now_ns()
    runs.run_once()
    return now_ns() - start


def _write(batch: Arrays, content: Arrays) -> None:
    for name, values in content.items():
        np.copyto(batch[name], values)


def _equal(some: Arrays, others: Arrays) -> bool:
    return all(np.array_equal(values, others[name]) for name, values in some.items() if name in others)


def _changing(batch: Arrays) -> tuple[str, ...]:
    """Names of the inputs that have more than two values."""
    return tuple(name for name, values in batch.items() if _has_three_values(values.reshape(-1)))


def _has_three_values(values: NDArray[np.generic]) -> bool:
    if not values.size:
        return False
    others = values[values != values[0]]
    return bool(others.size and (others != others[0]).any())


def _new_input(
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
            if not _equal(fresh, stored) and not _equal(fresh, other):
                return fresh, place
    return None


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
