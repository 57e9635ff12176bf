"""The service times of every prepared batch size, with guards against work that depends on repetition or order; and the
padding: a batch of any number of requests runs on the backend object of the smallest prepared size that holds it.

A batch is padded with further stored samples, which are computed and not counted. One dispatch is select, infer and
synchronize; the inputs already lie where the backend reads them (boundary *compute*), so assembling a batch from its
requests is not timed.

Everything that serves is at work while the service times of a size are measured, in a closed loop, because workers or
batches in flight of one device slow each other. The sizes take turns in several passes, so that a drift of the machine
is not a difference of sizes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import CaseError
from harness.core.schemas import GuardTimes
from harness.serving.batching import prepared_for
from harness.statistics.parity import Outputs
from harness.timing.clock import now_ns
from harness.timing.cuda_events import UntimedEvent, required_stream
from harness.timing.repeat_check import Rewritable, copy_and_pass_ns
from harness.timing.request_loops import Dispatches


class Served(Protocol):
    """The part of a backend that a service calls (harness.backends.base.Backend has it).

    stream: on a GPU, where infer() enqueues.
    """

    stream: Any

    @property
    def shares_outputs(self) -> bool:
        """Whether a pass of another object may overwrite the outputs."""

    def activate(self) -> None:
        """Take the library's state of this thread."""

    def select(self, index: int) -> None:
        """Point the next infer() at an input batch."""

    def infer(self) -> None:
        """Enqueue one forward pass."""

    def synchronize(self) -> None:
        """Wait until the pass is done."""

    def outputs(self) -> dict[str, NDArray[np.generic]]:
        """Copies of the outputs of the last pass."""

    def issue(self, index: int, done: Callable[[str | None], None]) -> None:
        """Start a pass of an input batch and return; the library calls done when it is complete."""

    def issued(self) -> list[tuple[int, dict[str, NDArray[np.generic]]]]:
        """(input batch, copies of its outputs) of the latest issued passes."""


class _Prepared:
    """One backend object, and the order in which its batches take turns."""

    def __init__(self, backend: Served, batches: int) -> None:
        self.backend = backend
        self.order: Sequence[int] = range(batches)
        self.batches = batches
        self.position = 0
        self.last: int | None = None

    def turn(self) -> int:
        """The input batch of the next pass."""
        index = self.order[self.position]
        self.position = (self.position + 1) % len(self.order)
        self.last = index
        return index


class Dispatcher:
    """One worker of a service: a backend object for each prepared batch size.

    backends: prepared size → (backend, number of its input batches).
    """

    def __init__(self, backends: Mapping[int, tuple[Served, int]]) -> None:
        self._prepared = {size: _Prepared(*backend) for size, backend in sorted(backends.items())}
        sizes = tuple(self._prepared)
        self._latest: _Prepared | None = None
        self._issues = False
        # Looked up by the number of requests: the loop that is timed searches nothing.
        self._for = [None, *(self._prepared[prepared_for(sizes, count)] for count in range(1, sizes[-1] + 1))]

    def run(self, requests: int) -> None:
        """Compute one batch for so many requests, to its end."""
        self.enqueue(requests).synchronize()

    def enqueue(self, requests: int) -> Served:
        """Call infer() once for a batch of so many requests; the object that it is enqueued on, or computed by."""
        chosen = self._chosen(requests)
        backend = chosen.backend
        self._latest = chosen
        backend.activate()
        backend.select(chosen.turn())
        backend.infer()
        return backend

    def start(self, requests: int, done: Callable[[str | None], None]) -> None:
        """Issue one batch for so many requests and return; done is called when it is complete."""
        chosen = self._chosen(requests)
        self._issues = True
        chosen.backend.issue(chosen.turn(), done)

    def _chosen(self, requests: int) -> _Prepared:
        chosen = self._for[requests]
        if chosen is None:
            raise ValueError("a batch has at least one request")
        return chosen

    def reorder(self, seed: int) -> None:
        """Let the batches of every size take turns in an order, and from a beginning, of this seed."""
        chance = random.Random(seed)  # noqa: S311 - an order, not a secret
        for prepared in self._prepared.values():
            prepared.order = chance.sample(range(prepared.batches), prepared.batches)
            prepared.position, prepared.last = 0, None

    def latest(self) -> list[tuple[int, int, Outputs]]:
        """(prepared size, input batch, outputs) of the last pass of each backend object since reorder().

        Of objects that share their outputs, only the last pass of all has them. Once batches are issued: of the latest
        issued passes of each object.
        """
        if self._issues:
            return [(size, *issued) for size, own in self._prepared.items() for issued in own.backend.issued()]
        latest: list[tuple[int, int, Outputs]] = []
        for size, prepared in self._prepared.items():
            if prepared.last is not None and (prepared is self._latest or not prepared.backend.shares_outputs):
                prepared.backend.activate()
                latest.append((size, prepared.last, prepared.backend.outputs()))
        return latest


class DispatcherOnStream:
    """A place of an issuing thread on a GPU: a dispatcher whose batches are enqueued, each with an event behind it."""

    def __init__(self, worker: Dispatcher) -> None:
        self._worker, self._end = worker, UntimedEvent()
        self._stream: Any = None

    def launch(self, requests: int) -> None:
        """Enqueue one batch for so many requests."""
        self._stream = required_stream(self._worker.enqueue(requests))

    def mark(self) -> None:
        """Enqueue the event behind it."""
        self._end.record(self._stream)

    def passed(self) -> bool:
        """Whether the GPU passed the event."""
        return self._end.passed()


PASSES = 4

MOST_TIMES = 2_000
"""Service times of one batch size and worker: the predicted peak then scatters by about 1%
(docs/decisions/0031-load-verdicts.md)."""

LEAST_TIMES = 20

WARM_UP_S = 0.3
"""Of each size before its first pass, besides the reference check."""

GUARD_PAIRS = 12

GUARD_S = 0.03
"""Length of one block of a pair."""
LEAST_IN_BLOCK = 3


ClosedLoop = Callable[[int, int, int, int], Dispatches]
"""(size, most batches, duration in ns, fewest batches) → a closed loop with all workers, or batches in flight."""


def service_times(served: ClosedLoop, workers: int, sizes: Sequence[int], seconds: float) -> dict[int, tuple[int, ...]]:
    """Size → the time of each dispatch in ns: of each worker in the order measured, one worker after the other.

    workers: or batches in flight. seconds: longest measurement of a size. Raises CaseError where a dispatch fails.
    """
    by_size: dict[int, list[list[int]]] = {size: [[] for _ in range(workers)] for size in sizes}
    for size in sizes:
        served(size, MOST_TIMES, int(WARM_UP_S * 1e9), workers)
    for _ in range(PASSES):
        for size in sizes:
            most, least = (count * workers // PASSES for count in (MOST_TIMES, LEAST_TIMES))
            got = served(size, most, int(seconds / PASSES * 1e9), least)
            if got.error is not None:
                raise CaseError(f"A batch of {size} failed: {got.error}", "Serve it without load first: make run.")
            for number, start, done in zip(got.worker, got.start_ns, got.done_ns, strict=True):
                by_size[size][number].append(done - start)
    return {size: tuple(time for times in by_worker for time in times) for size, by_worker in by_size.items()}


def repeat_guard(runs: Rewritable, seed: int) -> GuardTimes:
    """Pairs of blocks: inputs in rotation, and one stored input each time. Called on the thread of the worker.

    Every input is copied elsewhere right before its pass: large inputs of a light model would else come from the memory
    in rotation, and from the caches where one is repeated, which is no work that was skipped. Other CPUs still have a
    part of the repeated one in caches of their own, so the time of copying is kept.
    """
    stored = len(runs.batches)
    turns = itertools.cycle(random.Random(seed).sample(range(stored), stored))  # noqa: S311 - an order, not a secret
    scratch = {name: np.empty_like(values) for name, values in runs.batches[0].items()}
    copied: list[float] = []

    def block(indices: Iterable[int]) -> tuple[float, float]:
        copies, passes = zip(*(copy_and_pass_ns(runs, index, scratch) for index in indices), strict=True)
        return sum(copies) / len(copies), sum(passes) / len(passes)

    def usual(_: int) -> float:
        copy_ns, pass_ns = block(itertools.islice(turns, count))
        copied.append(copy_ns)
        return pass_ns

    began = now_ns()
    block(itertools.islice(turns, LEAST_IN_BLOCK))
    count = _block_length(now_ns() - began)
    times = _pairs(usual, lambda number: block([number % stored] * count)[1], seed)
    return times.model_copy(update={"copy_ns": sum(copied) / len(copied)})


def order_guard(worker: Dispatcher, size: int, seed: int) -> GuardTimes:
    """Pairs of blocks: inputs in one random order, and in another. Called on the thread of the worker."""
    count = _block_length(_block_ns(worker, size, LEAST_IN_BLOCK))

    def block(order: int) -> float:
        worker.reorder(order)
        return _block_ns(worker, size, count) / count

    times = _pairs(lambda _: block(seed), lambda number: block(seed + number + 1), seed)
    worker.reorder(seed)
    return times


def _pairs(usual: Callable[[int], float], other: Callable[[int], float], seed: int) -> GuardTimes:
    """GUARD_PAIRS pairs of blocks, of which each gets the number of its pair; which of the two comes first is random
    and balanced."""
    chance = random.Random(seed)  # noqa: S311 - an order, not a secret
    first = chance.sample([True, False] * (GUARD_PAIRS // 2), GUARD_PAIRS)
    usual_ns, other_ns = list[float](), list[float]()
    for number, usual_first in enumerate(first):
        for is_usual in (usual_first, not usual_first):
            if is_usual:
                usual_ns.append(usual(number))
            else:
                other_ns.append(other(number))
    return GuardTimes(usual_ns=tuple(usual_ns), other_ns=tuple(other_ns))


def _block_length(first_ns: int) -> int:
    """Passes of a block of GUARD_S. first_ns: time of LEAST_IN_BLOCK passes."""
    return max(LEAST_IN_BLOCK, round(GUARD_S * 1e9 / max(1, first_ns / LEAST_IN_BLOCK)))


def _block_ns(worker: Dispatcher, size: int, count: int) -> int:
    start = now_ns()
    for _ in range(count):
        worker.run(size)
    return now_ns() - start
