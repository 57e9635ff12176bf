"""The repeat check, after MLPerf's TEST04: passes on new inputs compared with passes on inputs that repeat.

A backend that answers from memory, by the content or the address of its input, is fast only while inputs repeat. So
pairs of passes run in turn: on a stored input, and on a new input that was written into the same memory. Both are
written outside the clock right before their pass, so that both are in the caches in the same way. Which of the two runs
first is random, and balanced: whatever the machine does to the first or second pass of pairs, equal work is then longer
on either side equally often. The pairs are judged in harness/aggregation/checks.py.

A new input is made of two stored inputs (harness/core/new_inputs.py). A new answer is wrong where it is, bit for bit,
that of any stored input: a cache with a coarse key, such as a neighbour's, is as fast for new inputs.

Answers that are made up for new inputs equal none. So new samples that the export made, and for which it has reference
outputs, are answered last, in the place of the stored ones that they were made from.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.core.errors import InferometerError
from harness.core.new_inputs import Arrays, changing, equal, new_input
from harness.core.padding import Mask
from harness.core.schemas import Repeats
from harness.statistics.parity import sample_distances
from harness.timing.clock import now_ns

LEAST_PAIRS = 8
"""Pairs for slow models: three rounds then have 24 pairs."""

ALONE_PAIRS = 16
"""Pairs where one process checks for a whole row: the interval over pairs needs eleven (checks.repeat_interval)."""

MOST_PAIRS = 64

BUDGET_NS = 400_000_000
"""Faster models run pairs for this long, new inputs and copies included."""
TOKENS_BUDGET_S = 5.0
"""Longest time for the pairs of prompts of one process of generation (token_session.py); several rounds together give
enough pairs."""

NEW_PASSES = 4
"""Batches with new samples that a process answers: in two rounds of a batch size of 1 all of them."""


@dataclass(frozen=True)
class NewBatches:
    """Batches in which new samples replace stored ones.

    rows: batch number → the places of its new samples. inputs(i): the arrays of batch i; reference(i): the fp32 outputs
    for them.
    """

    rows: Mapping[int, Sequence[int]]
    inputs: Callable[[int], Arrays]
    reference: Callable[[int], Arrays]


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
    names = changing(batches[0]) if len(batches) > 1 else ()
    if not names:
        return Repeats(missing="no input has more than two values, so that none can be made of two others")
    fresh_ns, repeated_ns = array("q"), array("q")
    compared = unchanged = 0
    first = True
    _timed(runs, 0)  # so that the first pair is not the only pair after a pause
    started = now_ns()
    while len(fresh_ns) < least or (len(fresh_ns) < MOST_PAIRS and now_ns() - started < BUDGET_NS):
        pair = len(fresh_ns)
        batch = pair % len(batches)
        stored = {name: np.copy(batches[batch][name]) for name in names}
        made = new_input(stored, batch, batches, rng)
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
        if answers and not equal(reference(batch), reference(other)):
            compared += 1
            unchanged += equal(answers[True], answers[False]) or answer_digest(answers[True]) in known
    return Repeats(fresh_ns=tuple(fresh_ns), repeated_ns=tuple(repeated_ns), compared=compared, unchanged=unchanged)


def new_distances(
    runs: Rewritable, new: NewBatches, round_number: int, masks: Sequence[Mask | None]
) -> tuple[float, ...]:
    """The relative L2 distance from the reference of each answer to a new sample. Afterwards all batches are as before.

    round_number: from 1; decides which batches are answered.
    """
    numbers = sorted(new.rows)
    first = (round_number - 1) * NEW_PASSES
    distances: list[float] = []
    for batch in dict.fromkeys(numbers[(first + place) % len(numbers)] for place in range(NEW_PASSES)):
        stored = {name: np.copy(values) for name, values in runs.batches[batch].items()}
        _write(runs.batches[batch], new.inputs(batch))
        runs.make_ready(batch)
        runs.run_once()
        outputs = {name: np.array(values) for name, values in runs.outputs().items()}
        _write(runs.batches[batch], stored)
        runs.make_ready(batch)
        mask = masks[batch] if masks else None
        distances += sample_distances(outputs, new.reference(batch), new.rows[batch], mask)
    return tuple(distances)


def copy_and_pass_ns(runs: Rewritable, index: int, scratch: Arrays) -> tuple[int, int]:
    """Times of one thread that copies a stored batch to other memory, and of a pass on the batch right after: it is
    then in the caches, whichever batch had the pass before."""
    start = now_ns()
    _write(scratch, runs.batches[index])
    return now_ns() - start, _timed(runs, index)


def _timed(runs: Rewritable, index: int) -> int:
    runs.make_ready(index)
    start = now_ns()
    runs.run_once()
    return now_ns() - start


def _write(batch: Arrays, content: Arrays) -> None:
    for name, values in content.items():
        np.copyto(batch[name], values)
