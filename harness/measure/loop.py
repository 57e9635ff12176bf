"""The loop that times every backend: warm-up until steady, then blocks until the answer is precise enough.

One sample is the host time from submitting one forward pass until it is done (`infer`, then `synchronize`).
Choosing the next input, storing the sample and deciding when to stop all happen outside a sample.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from harness.core.schemas import Block, Measurement
from harness.measure.clock import now_ns
from harness.measure.stats import median, relative_half_width

WINDOWS = 3
"""Warm-up windows that must agree: perf_analyzer's rule (METHOD.md §2.4)."""


class Inference(Protocol):
    """The part of a backend that is timed."""

    def select(self, index: int) -> None:
        """Point the next infer() at an input batch."""

    def infer(self) -> None:
        """Enqueue one forward pass."""

    def synchronize(self) -> None:
        """Wait until it is done."""


@dataclass(frozen=True)
class WarmUp:
    """Warm-up samples, and whether the windows agreed in the end."""

    samples_ns: array[int]
    steady: bool


@dataclass(frozen=True)
class Timed:
    """Measured samples, the blocks that they were taken in, and why the loop stopped."""

    samples_ns: array[int]
    blocks: tuple[Block, ...]
    stop: Literal["converged", "time limit", "sample limit"]


def warm_up(backend: Inference, batches: int, settings: Measurement) -> WarmUp:
    """Run the very inputs that will be measured until three windows agree on their median, or the limit is reached.

    Samples are kept up to max_samples.
    """
    kept = array("q")
    # Longer than a rotation of the inputs, whose index is where a block begins.
    scratch = array("q", bytes(8 * (batches + settings.max_samples)))
    medians: list[float] = []
    position = 0
    started = now_ns()
    while True:
        window_end = now_ns() + _ns(settings.window_s)
        while True:
            # A block's first position also chooses its first input: this goes on in the rotation.
            first = position % batches
            block = _run_block(backend, batches, scratch, first, window_end - now_ns(), 1)
            latest = scratch[first : first + block.iterations]
            position += block.iterations
            kept.extend(latest[: settings.max_samples - len(kept)])
            # Work of less than a microsecond fills the buffer before the window is over: it is then used again.
            if now_ns() >= window_end:
                break
        medians.append(median(latest))
        elapsed = now_ns() - started
        if position >= settings.warmup_min_iterations:
            if elapsed >= _ns(settings.warmup_min_s) and _agree(medians[-WINDOWS:], settings.steady_tolerance):
                return WarmUp(kept, steady=True)
            if elapsed >= _ns(settings.warmup_max_s):
                return WarmUp(kept, steady=False)


def measure(backend: Inference, batches: int, settings: Measurement, after_block: Callable[[int], None]) -> Timed:
    """Time blocks until the stop rule holds.

    `after_block` is called between blocks with the index of the input that ran last, so that outputs of timed
    iterations can be kept for checking.
    """
    samples = array("q", bytes(8 * settings.max_samples))
    used, blocks, medians = 0, list[Block](), list[float]()
    started = now_ns()
    deadline = started + _ns(settings.max_s)
    while True:
        block = _run_block(backend, batches, samples, used, _ns(settings.block_s), settings.block_iterations, deadline)
        medians.append(median(samples[used : used + block.iterations]))
        used += block.iterations
        blocks.append(block)
        after_block((used - 1) % batches)
        stop = _stop(medians, used, deadline, settings)
        if stop:
            return Timed(samples[:used], tuple(blocks), stop)


def _run_block(
    backend: Inference,
    batches: int,
    samples: array[int],
    first: int,
    block_ns: int,
    min_iterations: int,
    deadline: int | None = None,
) -> Block:
    """Fill `samples` from `first` until block_ns and min_iterations have passed, or the deadline, or it is full."""
    # Bound once: attribute look-ups inside the loop would be charged to every backend.
    select, infer, synchronize, clock = backend.select, backend.infer, backend.synchronize, now_ns
    last = len(samples)
    position = first
    block_start = clock()
    earliest_end = block_start + block_ns
    wanted = first + min_iterations
    while True:
        select(position % batches)
        start = clock()
        infer()
        synchronize()
        end = clock()
        samples[position] = end - start
        position += 1
        if position == last or (end >= earliest_end and position >= wanted) or (deadline and end >= deadline):
            return Block(iterations=position - first, wall_ns=end - block_start)


def _agree(medians: list[float], tolerance: float) -> bool:
    return len(medians) == WINDOWS and max(medians) - min(medians) <= tolerance * min(medians)


def _stop(
    medians: list[float], used: int, deadline: int, settings: Measurement
) -> Literal["converged", "time limit", "sample limit"] | None:
    width = relative_half_width(medians)
    if used >= settings.min_samples and width is not None and width <= settings.target_ci:
        return "converged"
    if used >= settings.max_samples:
        return "sample limit"
    if now_ns() >= deadline:
        return "time limit"
    return None


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
