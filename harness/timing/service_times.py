"""Service times of every prepared batch size, and guards against work that depends on repetition or order.

Everything that serves is at work while a size is measured, in a closed loop, because workers or batches in flight of
one device slow each other. The sizes take turns in several passes, so that a drift of the machine is not a difference
of sizes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from harness.core.errors import CaseError
from harness.core.schemas import GuardTimes
from harness.timing.clock import now_ns
from harness.timing.dispatcher import Dispatcher
from harness.timing.virtual_arrivals import Dispatches

PASSES = 4

MOST_TIMES = 2_000
"""Service times of one batch size and worker: the predicted peak then scatters by less than 1% (LOAD.md 5.3)."""

LEAST_TIMES = 20

WARM_UP_S = 0.3
"""Of each size before its first pass, besides the reference check."""

GUARD_PAIRS = 12

GUARD_S = 0.03
"""Length of one block of a pair."""


Served = Callable[[int, int, int, int], Dispatches]
"""(size, most batches, duration in ns, fewest batches) → a closed loop with all workers, or batches in flight."""


def service_times(served: Served, workers: int, sizes: Sequence[int], seconds: float) -> dict[int, tuple[int, ...]]:
    """By size, the time of each dispatch in ns: of each worker in the order measured, one worker after the other.

    workers: or batches in flight. seconds: longest measurement of a size. Raises CaseError where a dispatch fails.
    """
    found: dict[int, list[list[int]]] = {size: [[] for _ in range(workers)] for size in sizes}
    for size in sizes:
        served(size, MOST_TIMES, int(WARM_UP_S * 1e9), workers)
    for _ in range(PASSES):
        for size in sizes:
            most, least = (count * workers // PASSES for count in (MOST_TIMES, LEAST_TIMES))
            got = served(size, most, int(seconds / PASSES * 1e9), least)
            if got.error is not None:
                raise CaseError(f"A batch of {size} failed: {got.error}", "Serve it without load first: make run.")
            for number, start, done in zip(got.worker, got.start_ns, got.done_ns, strict=True):
                found[size][number].append(done - start)
    return {size: tuple(time for times in by_worker for time in times) for size, by_worker in found.items()}


def repeat_guard(worker: Dispatcher, size: int, seed: int) -> GuardTimes:
    """Pairs of blocks: inputs in rotation, and one stored input each time. Called on the thread of the worker."""
    return _pairs(worker, size, seed, lambda number: worker.repeat(number % 2))


def order_guard(worker: Dispatcher, size: int, seed: int) -> GuardTimes:
    """Pairs of blocks: inputs in one random order, and in another."""
    return _pairs(worker, size, seed, lambda number: worker.reorder(seed + number + 1))


def _pairs(worker: Dispatcher, size: int, seed: int, other: Callable[[int], None]) -> GuardTimes:
    """GUARD_PAIRS pairs; which block of a pair comes first is random and balanced."""
    chance = random.Random(seed)  # noqa: S311 - an order, not a secret
    first = chance.sample([True, False] * (GUARD_PAIRS // 2), GUARD_PAIRS)
    count = max(3, round(GUARD_S * 1e9 / max(1, _block_ns(worker, size, 3) / 3)))
    usual, others = list[float](), list[float]()
    for number, usual_first in enumerate(first):
        for is_usual in (usual_first, not usual_first):
            if is_usual:
                worker.reorder(seed)
            else:
                other(number)
            (usual if is_usual else others).append(_block_ns(worker, size, count) / count)
    worker.reorder(seed)
    return GuardTimes(usual_ns=tuple(usual), other_ns=tuple(others))


def _block_ns(worker: Dispatcher, size: int, count: int) -> int:
    start = now_ns()
    for _ in range(count):
        worker.run(size)
    return now_ns() - start
