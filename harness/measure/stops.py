"""Counts how often this process was stopped and continued (SIGSTOP, SIGTSTP), and how long the machine was suspended.

A stopped process uses no CPU and waits for none, so that no counter of the kernel shows it; but nothing continues
without SIGCONT, which a process may catch. A frozen container (`docker pause`) gets no signal: the looks of the monitor
show it (harness/measure/disturbance.py).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from harness.core.schemas import Stops
from harness.measure import clock


class StopCounter:
    """Counts from when it is made, by phase. enter: what to call as well when a phase begins."""

    def __init__(self, enter: Callable[[str], None]) -> None:
        self._enter = enter
        self._phase = "start"
        self._continued: list[str] = []
        self._suspended_ns = clock.suspended_ns()
        self._counts = threading.current_thread() is threading.main_thread()
        if self._counts:
            self._before = signal.signal(signal.SIGCONT, self._on_continue)
            # Calls of native libraries that a stop interrupts go on as they would without a handler.
            signal.siginterrupt(signal.SIGCONT, False)

    def enter(self, phase: str) -> None:
        """A phase begins."""
        self._phase = phase
        self._enter(phase)

    def end(self) -> Stops | None:
        """What was counted; None where signals could not be (outside of the main thread)."""
        if not self._counts:
            return None
        signal.signal(signal.SIGCONT, signal.SIG_DFL if self._before is None else self._before)
        before_ns, now_ns = self._suspended_ns, clock.suspended_ns()
        # Two clocks are read one after the other: the difference may come out some nanoseconds below nothing.
        suspended_ns = None if before_ns is None or now_ns is None else max(0, now_ns - before_ns)
        return Stops(continued=tuple(self._continued), suspended_ns=suspended_ns)

    def _on_continue(self, _signal: int, _frame: FrameType | None) -> None:
        self._continued.append(self._phase)
