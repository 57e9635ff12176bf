"""The loop that times every backend: warm-up until steady, then blocks until the result is precise enough.

The mode defines the content of a sample (modes.py, end_to_end.py): choosing the next input, storing the sample and
deciding when to stop all happen outside of it.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from harness.core.schemas import Block, Measurement
from harness.statistics.estimators import relative_half_width
from harness.timing.clock import now_ns
from harness.timing.modes import Mode

WINDOWS = 3
"""Warm-up windows that must agree: the rule of Triton's Perf Analyzer."""

MAX_LENGTHENED = 0.5
"""Share of a block by which it is longer at most, at random. With blocks of exactly 20 iterations and 64 inputs, only
every fourth input would ever be last, and a wrong answer to any other would never be seen."""


@dataclass(frozen=True)
class WarmUp:
    """Warm-up samples (empty where the mode has none), whether the windows agreed at the end, and its duration."""

    samples_ns: array[int]
    steady: bool
    elapsed_ns: int


@dataclass(frozen=True)
class Timed:
    """Measured samples (empty where the mode has none), their blocks, and why the loop stopped."""

    samples_ns: array[int]
    blocks: tuple[Block, ...]
    stop: Literal["converged", "time limit", "sample limit"]


def warm_up(mode: Mode, settings: Measurement, after_window: Callable[[], object] = lambda: None) -> WarmUp:
    """Run the inputs that will be measured until three windows agree on their median, or the limit is reached.

    It continues where the timed part will end so early, by max_samples or max_s, that both together would not last
    min_s. Samples are kept up to max_samples. `after_window` is called between windows.
    """
    kept = array("q")
    # Longer than a rotation of the inputs: a block begins at the index of an input.
    scratch = array("q", bytes(8 * (mode.batches + settings.max_samples)))
    medians: list[float] = []
    position = 0
    started = now_ns()
    while True:
        window_end = now_ns() + _ns(settings.window_s)
        while True:
            # A block's first position also chooses its first input: this continues the rotation.
            first = position % mode.batches
            block = mode.block(scratch, first, window_end - now_ns(), 1)
            latest = scratch[first : first + block.iterations]
            position += block.iterations
            if mode.has_latencies:
                kept.extend(latest[: settings.max_samples - len(kept)])
            # Work of less than a microsecond fills the buffer before the window ends: the buffer is then used again.
            if now_ns() >= window_end:
                break
        medians.append(mode.batch_ns(block, latest))
        after_window()
        elapsed = now_ns() - started
        enough = position >= settings.warmup_min_iterations and elapsed >= _ns(settings.warmup_min_s)
        steady = enough and _agree(medians[-WINDOWS:], settings.steady_tolerance)
        if steady and elapsed + _longest_timed_ns(medians[-1], settings) >= _ns(settings.min_s):
            return WarmUp(kept, steady=True, elapsed_ns=elapsed)
        if elapsed >= _ns(settings.warmup_max_s):
            return WarmUp(kept, steady, elapsed)


def measure(
    mode: Mode,
    settings: Measurement,
    after_block: Callable[[int], None],
    warmed_ns: int | None = None,
    chance: random.Random | None = None,
) -> Timed:
    """Time blocks until the stop rule holds, and until warm-up and timed part together have lasted min_s.

    `after_block` is called between blocks with the index of the input that ran last, so that outputs of timed
    iterations can be kept for checking. With `chance` a block is up to a half longer, so that the last input and the
    number of iterations vary. `warmed_ns`: duration of the warm-up; without it min_s does not apply.
    """
    samples = array("q", bytes(8 * settings.max_samples))
    used, blocks, medians = 0, list[Block](), list[float]()
    started = now_ns()
    deadline = started + _ns(settings.max_s)
    earliest = started if warmed_ns is None else started + _ns(settings.min_s) - warmed_ns
    while True:
        longer = 1 + MAX_LENGTHENED * chance.random() if chance else 1.0
        iterations = round(settings.block_iterations * longer)
        block = mode.block(samples, used, _ns(settings.block_s * longer), iterations, deadline)
        medians.append(mode.batch_ns(block, samples[used : used + block.iterations]))
        used += block.iterations
        blocks.append(block)
        after_block((used - 1 + mode.ahead) % mode.batches)
        stop = _stop(medians, used, (earliest, deadline), settings)
        if stop:
            return Timed(samples[: used if mode.has_latencies else 0], tuple(blocks), stop)


def _agree(medians: list[float], tolerance: float) -> bool:
    return len(medians) == WINDOWS and max(medians) - min(medians) <= tolerance * min(medians)


def _stop(
    medians: list[float], used: int, ends: tuple[int, int], settings: Measurement
) -> Literal["converged", "time limit", "sample limit"] | None:
    width = relative_half_width(medians)
    earliest, deadline = ends
    precise = width is not None and width <= settings.target_ci
    if used >= settings.min_samples and precise and now_ns() >= earliest:
        return "converged"
    if used >= settings.max_samples:
        return "sample limit"
    if now_ns() >= deadline:
        return "time limit"
    return None


def _longest_timed_ns(median_ns: float, settings: Measurement) -> float:
    """Upper bound of the timed part's duration, a tenth below the median's value, which may still change a little."""
    return min(0.9 * settings.max_samples * median_ns, _ns(settings.max_s))


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
