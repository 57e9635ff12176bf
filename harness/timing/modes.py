"""The modes: how a block of inferences is run and timed by the host's clock; for a GPU see cuda_modes.py.

sync       one batch in flight; a sample is the time from submitting a batch until its answer is complete
pipelined  two batches in flight; a sample is the same, and includes the wait for the previous batch
offline    back to back, one synchronise at the end of a block; only the block is timed, so there are no samples
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from harness.core import schemas
from harness.core.new_inputs import Arrays
from harness.core.schemas import Block, DeviceSamples, SplitSamples
from harness.statistics.estimators import median
from harness.timing import clock
from harness.timing.repeat_check import Rewritable


class Inference(Protocol):
    """The part of a backend that is timed (harness.backends.base.Backend has it)."""

    def select(self, index: int) -> None:
        """Point the next infer() or submit() at an input batch."""

    def infer(self) -> None:
        """Enqueue one forward pass."""

    def synchronize(self) -> None:
        """Wait until the pass is done."""

    def refresh(self, index: int) -> None:
        """The arrays of an input batch have changed in place."""

    def outputs(self) -> dict[str, NDArray[np.generic]]:
        """Copies of the outputs of the last pass."""

    def submit(self) -> None:
        """Start one forward pass and return at once."""

    def wait(self) -> None:
        """Wait until the oldest pass in flight is done."""


class Mode(ABC):
    """One way to run the input batches of a case.

    has_latencies: False where a block is timed as a whole.
    ahead: batches that ran after the last batch that counts in a block.
    """

    has_latencies = True
    ahead = 0

    def __init__(self, backend: Inference, batches: int) -> None:
        self._backend = backend
        self.batches = batches

    def select_batch(self, index: int) -> None:
        """Make batch `index` ready for run_once(). Outside the clock."""
        self._backend.select(index)

    def run_once(self) -> None:
        """Answer the chosen batch and wait for it."""
        self._backend.infer()
        self._backend.synchronize()

    def rewritable(self, batches: Sequence[Arrays]) -> Rewritable:
        """How to run batches again after their arrays were written to; `batches`: the backend's batches."""

        def make_ready(index: int) -> None:
            self._backend.refresh(index)
            self.select_batch(index)

        return Rewritable(batches, make_ready, self.run_once, self._backend.outputs)

    @abstractmethod
    def block(
        self, samples: array[int], first: int, block_ns: int, min_iterations: int, deadline: int | None = None
    ) -> Block:
        """Run until block_ns and min_iterations have passed, or the deadline, or `samples` is full.

        Position `first` of samples also chooses the first input; from there on the samples are filled.
        """

    def split_samples(self, used: int) -> SplitSamples | None:
        """The parts of the first `used` samples measured, where a sample has parts."""
        del used
        return None

    def device_samples(self, used: int) -> DeviceSamples | None:
        """A GPU's times of the first `used` samples, on a GPU. Called before the backend is closed."""
        del used
        return None

    def batch_ns(self, block: Block, samples: array[int]) -> float:
        """Time of one batch in a block: the median of its samples, where there are any."""
        return median(samples) if self.has_latencies else block.wall_ns / block.iterations


class Sync(Mode):
    """One batch in flight."""

    def block(
        self, samples: array[int], first: int, block_ns: int, min_iterations: int, deadline: int | None = None
    ) -> Block:
        """Time each inference."""
        # Bound once: attribute look-ups inside the loop would be charged to every backend.
        backend, batches, now_ns = self._backend, self.batches, clock.now_ns
        select, infer, synchronize = backend.select, backend.infer, backend.synchronize
        last = len(samples)
        position = first
        block_start = now_ns()
        earliest_end = block_start + block_ns
        wanted = first + min_iterations
        while True:
            select(position % batches)
            start = now_ns()
            infer()
            synchronize()
            end = now_ns()
            samples[position] = end - start
            position += 1
            if position == last or (end >= earliest_end and position >= wanted) or (deadline and end >= deadline):
                return Block(iterations=position - first, wall_ns=end - block_start)


class Offline(Mode):
    """Back to back. The number of batches is fixed before a block starts: inside, no clock is read and no wait happens,
    so that a device can work behind the submitting thread.
    """

    has_latencies = False

    def __init__(self, backend: Inference, batches: int) -> None:
        super().__init__(backend, batches)
        self._batch_ns: float | None = None

    def block(
        self, samples: array[int], first: int, block_ns: int, min_iterations: int, deadline: int | None = None
    ) -> Block:
        """Time the block as a whole. The very first block is a single batch, to learn its time."""
        select, infer, batches, now_ns = self._backend.select, self._backend.infer, self.batches, clock.now_ns
        iterations = self._planned(len(samples) - first, block_ns, min_iterations, deadline)
        start = now_ns()
        for position in range(first, first + iterations):
            select(position % batches)
            infer()
        self._backend.synchronize()
        wall_ns = now_ns() - start
        self._learn(iterations, wall_ns)
        return Block(iterations=iterations, wall_ns=wall_ns)

    def _planned(self, room: int, block_ns: int, min_iterations: int, deadline: int | None) -> int:
        """Number of batches of the next block, at most `room`."""
        if self._batch_ns is None:
            return 1
        wanted = max(min_iterations, math.ceil(block_ns / self._batch_ns))
        if deadline is not None:
            wanted = min(wanted, math.ceil((deadline - clock.now_ns()) / self._batch_ns))
        return min(room, max(1, wanted))

    def _learn(self, iterations: int, wall_ns: int) -> None:
        self._batch_ns = max(1.0, wall_ns / iterations)


class Pipelined(Mode):
    """Two batches in flight in turn. The first of a block fills the pipeline and the last empties it: neither counts,
    so that every batch that counts ran beside another batch.
    """

    ahead = 1

    def run_once(self) -> None:
        """One request alone, by the calls that are timed."""
        self._backend.submit()
        self._backend.wait()

    def block(
        self, samples: array[int], first: int, block_ns: int, min_iterations: int, deadline: int | None = None
    ) -> Block:
        """Time each request from its submission until it is done."""
        backend, batches, now_ns = self._backend, self.batches, clock.now_ns
        select, submit, wait = backend.select, backend.submit, backend.wait
        last = len(samples)
        position = first
        select((first - 1) % batches)
        submit()
        select(first % batches)
        older_start = now_ns()
        submit()
        wait()
        block_start = now_ns()
        earliest_end = block_start + block_ns
        wanted = first + min_iterations
        while True:
            select((position + 1) % batches)
            newer_start = now_ns()
            submit()
            wait()
            end = now_ns()
            samples[position] = end - older_start
            position += 1
            older_start = newer_start
            if position == last or (end >= earliest_end and position >= wanted) or (deadline and end >= deadline):
                wait()
                return Block(iterations=position - first, wall_ns=end - block_start)


MODES: Mapping[schemas.ModeName, type[Mode]] = {"sync": Sync, "pipelined": Pipelined, "offline": Offline}
"""Modes that the host's clock alone times, by their name in a case."""
