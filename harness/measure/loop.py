"""The loop that times every backend: warm-up until steady, then blocks until the answer is precise enough.

What one sample covers is the mode's (modes.py, endtoend.py): choosing the next input, storing the sample and deciding
when to stop all happen outside of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from harness.core.schemas import Block, Measurement
from harness.measure.clock import now_ns
from harness.measure.modes import Mode
from harness.measure.stats import relative_half_width

WINDOWS = 3
"""Warm-up windows that must agree: perf_analyzer's rule (METHOD.md §2.4)."""


@dataclass(frozen=True)
class WarmUp:
    """Warm-up samples (none where the mode has none), and whether the windows agreed in the end."""

    samples_ns: array[int]
    steady: bool


@dataclass(frozen=True)
class Timed:
    """Measured samples (none where the mode has none), the blocks they were taken in, and why the loop stopped."""

    samples_ns: array[int]
    blocks: tuple[Block, ...]
    stop: Literal["converged", "time limit", "sample limit"]


def warm_up(mode: Mode, settings: Measurement) -> WarmUp:
    """Run the very inputs that will be measured until three windows agree on their median, or the limit is reached.

    Samples are kept up to max_samples.
    """
    kept = array("q")
    # Longer than a rotation of the inputs, whose index is where a block begins.
    scratch = array("q", bytes(8 * (mode.batches + settings.max_samples)))
    medians: list[float] = []
    position = 0
    started = now_ns()
    while True:
        window_end = now_ns() + _ns(settings.window_s)
        while True:
            # A block's first position also chooses its first input: this goes on in the rotation.
            first = position % mode.batches
            block = mode.block(scratch, first, window_end - now_ns(), 1)
            latest = scratch[first : first + block.iterations]
            position += block.iterations
            if mode.has_latencies:
                kept.extend(latest[: settings.max_samples - len(kept)])
            # Work of less than a microsecond fills the buffer before the window is over: it is then used again.
            if now_ns() >= window_end:
                break
        medians.append(mode.centre_ns(block, latest))
        elapsed = now_ns() - started
        enough = position >= settings.warmup_min_iterations and elapsed >= _ns(settings.warmup_min_s)
        if enough and _agree(medians[-WINDOWS:], settings.steady_tolerance):
            return WarmUp(kept, steady=True)
        if elapsed >= _ns(settings.warmup_max_s):
            return WarmUp(kept, steady=False)


def measure(mode: Mode, settings: Measurement, after_block: Callable[[int], None]) -> Timed:
    """Time blocks until the stop rule holds.

    `after_block` is called between blocks with the index of the input that ran last, so that outputs of timed
    iterations can be kept for checking.
    """
    samples = array("q", bytes(8 * settings.max_samples))
    used, blocks, medians = 0, list[Block](), list[float]()
    started = now_ns()
    deadline = started + _ns(settings.max_s)
    while True:
        block = mode.block(samples, used, _ns(settings.block_s), settings.block_iterations, deadline)
        medians.append(mode.centre_ns(block, samples[used : used + block.iterations]))
        used += block.iterations
        blocks.append(block)
        after_block((used - 1 + mode.ahead) % mode.batches)
        stop = _stop(medians, used, deadline, settings)
        if stop:
            return Timed(samples[: used if mode.has_latencies else 0], tuple(blocks), stop)


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
