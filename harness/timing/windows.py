"""The timed part of a process beside others: short windows, each started from outside by a byte in a named pipe.

Between its windows the process waits in the kernel and uses no CPU, so that it does not disturb the others. The other
processes work in the meantime, so each window begins with untimed work that brings clocks and caches back.
"""

from __future__ import annotations

import os
import random
from array import array
from collections.abc import Callable
from typing import Protocol

from harness.core.errors import CaseError
from harness.core.protocol import GO, OVER, WindowRequest
from harness.core.schemas import Block, Measurement, Situation, TimedWindow
from harness.core.schemas.plan_record import MOST_SAMPLES
from harness.timing.clock import now_ns
from harness.timing.loop import Timed
from harness.timing.modes import Mode

MIN_ITERATIONS = 5
"""Least inferences of a window: its median needs some, also where one inference takes long."""


class Signals(Protocol):
    """The signals that start the windows (harness/timing/windows.py)."""

    def next(self) -> Situation:
        """Wait for the next window; returns its situation."""

    def over(self) -> None:
        """Wait until the windows of all processes are over."""


class WindowedPart:
    """A timed part (timing/session.py) that runs a window at each signal; `windows` then has their times.

    signals: start the windows. done: called after each window.
    """

    def __init__(self, request: WindowRequest, signals: Signals, done: Callable[[], None]) -> None:
        self._request, self._signals, self._done = request, signals, done
        self.windows: list[TimedWindow] = []

    def __call__(
        self,
        mode: Mode,
        settings: Measurement,
        after_block: Callable[[int], None],
        warmed_ns: int,
        chance: random.Random,
    ) -> Timed:
        """Run all windows. Raises CaseError where one window has more inferences than a record can hold."""
        del settings, warmed_ns, chance
        samples = array("q", bytes(8 * MOST_SAMPLES))
        used, blocks = 0, list[Block]()
        for _ in range(self._request.count):
            situation = self._signals.next()
            # The window itself then overwrites these samples, on the GPU's clock too.
            mode.block(samples, used, int(self._request.warm_s * 1e9), 1)
            start = now_ns()
            block = mode.block(samples, used, int(self._request.window_s * 1e9), MIN_ITERATIONS)
            self.windows.append(TimedWindow(situation=situation, start_ns=start, end_ns=now_ns()))
            used += block.iterations
            if used >= MOST_SAMPLES:
                raise CaseError(
                    f"The windows have more than {MOST_SAMPLES:,} inferences.", "Choose a larger batch (BATCHES=…)."
                )
            blocks.append(block)
            after_block((used - 1 + mode.ahead) % mode.batches)
            self._done()
        # What follows, checks of outputs and the end of the process, must not disturb the windows of others.
        self._signals.over()
        return Timed(samples[: used if mode.has_latencies else 0], tuple(blocks), "time limit")


class WindowSignals:
    """The reading end of the named pipe of one process (WindowRequest.fifo). Every wait is in the kernel.

    Both methods raise CaseError where the parent gives the windows up, or has ended.
    """

    def __init__(self, fifo: str) -> None:
        self._pipe = os.open(fifo, os.O_RDONLY)
        self._by_byte = {byte: situation for situation, byte in GO.items()}

    def next(self) -> Situation:
        """Wait for the next window of this process; returns its situation."""
        situation = self._by_byte.get(os.read(self._pipe, 1))
        if situation is None:
            raise _given_up_error()
        return situation

    def over(self) -> None:
        """Wait until the windows of all processes are over."""
        if os.read(self._pipe, 1) != OVER:
            raise _given_up_error()


def _given_up_error() -> CaseError:
    return CaseError(
        "The process of another device ended early, so the devices could not work together.",
        "Its own record has the reason; the same command tries again.",
    )
