"""Timed inferences with and without a profiler, mixed so that both see the same machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from harness.profiling.reconcile import middle_mean
from harness.timing.clock import now_ns

WARM_UP_RUNS = 5

Listener = Callable[[str], None]
"""Called with the phase that a profiled process has reached."""

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """From here on, report each phase that begins: compiler processes of the case itself are no disturbance."""
    _listeners.append(listener)


def entered(phase: str) -> None:
    """A phase of a session begins."""
    for listener in _listeners:
        listener(phase)


class TimedPass(Protocol):
    """What is timed with and without a profiler: a Backend, or one phase of a decoder (decoder_phases.py)."""

    @property
    def inputs(self) -> int:
        """Number of batches that select() knows."""

    @property
    def on_gpu(self) -> bool:
        """Whether passes run on a GPU; known after load()."""

    def load(self) -> None:
        """Load the model."""

    def compile(self) -> None:
        """Compile."""

    def alone(self, passes: int) -> int:
        """Prepare up to so many passes with no other work between them, and return how many there will be."""

    def select(self, index: int) -> None:
        """Prepare one pass, outside the clock."""

    def infer(self) -> None:
        """Enqueue the pass."""

    def synchronize(self) -> None:
        """Wait for it."""

    def outputs(self) -> Any:
        """Its results on the host."""

    def close(self) -> None:
        """Release resources."""


def span_of(backend: TimedPass, index: int) -> int:
    """Wall time in ns of one inference of batch `index`, counted round and round, until the device is done."""
    choose(backend, index)
    return selected_span(backend)


def choose(backend: TimedPass, index: int) -> None:
    """Select batch `index`, counted round and round, for selected_span()."""
    backend.select(index % backend.inputs)


def selected_span(backend: TimedPass) -> int:
    """As span_of(), of the batch that is selected: a profiler that starts after choose() sees the inference alone."""
    begin = now_ns()
    backend.infer()
    backend.synchronize()
    return now_ns() - begin


def ready(backend: TimedPass) -> None:
    """Load, compile, warm up; the inferences after that are timed."""
    entered("load")
    backend.load()
    entered("compile")
    backend.compile()
    entered("warm-up")
    warm_up(backend)
    entered("measure")


def warm_up(backend: TimedPass) -> None:
    """Some inferences without timing, and their answers, which are checked before any inference is timed."""
    for index in range(WARM_UP_RUNS):
        span_of(backend, index)
        backend.outputs()


def plain_ns(backend: TimedPass, runs: int) -> int:
    """The typical wall time of one inference in ns."""
    return middle_mean([span_of(backend, index) for index in range(runs)])


def spans_alone(backend: TimedPass, runs: int) -> list[int]:
    """Wall times in ns of `runs` inferences of a backend that is made ready for them and closed after.

    For libraries with threads of their own: the threads of a second session would spin beside the timed ones.
    """
    ready(backend)
    spans = [span_of(backend, index) for index in range(runs)]
    backend.close()
    return spans


def in_turns(plain: Callable[[int], int], watched: Callable[[int], int], runs: int) -> tuple[list[int], list[int]]:
    """Wall times in ns of `runs` inferences without a profiler, and of as many with it, of the same session."""
    spans = [(plain(index), watched(index)) for index in range(runs)]
    return [without for without, _ in spans], [with_it for _, with_it in spans]
