"""The GPU's clock: events on the stream that a backend enqueues on, the same for every backend.

An event is a time stamp that the GPU writes when it reaches that place of the stream, so two events span all work that
was enqueued between them. Two facts matter for the figures:

- An idle GPU passes the first event at once. The time until the first kernel arrives is then part of the span, as it is
  part of a caller's wait: work that is shorter than its submission looks as long as the submission.
- An event can be read only after the GPU passed it: modes read theirs after they took the end of a sample.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from harness.core.errors import CaseError
from harness.core.schemas import Clock

NAME = "CUDA events"

RESOLUTION_NS = 500.0
"""Resolution that the CUDA driver API documents for cuEventElapsedTime."""

_PAIRS = 200


class Marks:
    """Events, each on a stream, to be recorded in order.

    record: one call for each event; it enqueues the time stamp.
    wait: returns when the GPU passed the last event, whatever was enqueued behind it.
    """

    def __init__(self, streams: Sequence[Any]) -> None:
        """`streams`: the stream of each event."""
        from pycuda import driver  # noqa: PLC0415 - there is a stream, so there is pycuda; elsewhere there need not be

        self._events = [driver.Event() for _ in streams]
        self.record = tuple(partial(event.record, on) for event, on in zip(self._events, streams, strict=True))
        self.wait = self._events[-1].synchronize

    def stream_wait(self, index: int, stream: Any) -> Callable[[], None]:
        """A call that makes all later work on a stream wait for the latest record of an event."""
        return partial(stream.wait_for_event, self._events[index])

    def between_ns(self, first: int, last: int) -> int:
        """Device time from one event to another; the GPU must have passed both."""
        milliseconds: float = self._events[first].time_till(self._events[last])
        return round(milliseconds * 1e6)


class UntimedEvent:
    """An event that only says whether the GPU passed it; without a time stamp its record is cheaper."""

    def __init__(self) -> None:
        from pycuda import driver  # noqa: PLC0415 - as in Marks

        event = driver.Event(driver.event_flags.DISABLE_TIMING)
        self.record: Callable[[Any], None] = event.record
        self.passed: Callable[[], bool] = event.query


def calibrate(stream: Any) -> Clock:
    """Measure the overhead of the clock: the median device time between two events with nothing between them."""
    marks = Marks([stream] * 2)
    begin, end = marks.record
    gaps = []
    for _ in range(_PAIRS):
        begin()
        end()
        marks.wait()
        gaps.append(marks.between_ns(0, 1))
    return Clock(name=NAME, resolution_ns=RESOLUTION_NS, overhead_ns=round(statistics.median(gaps)))


def required_stream(backend: Any) -> Any:
    """The stream that a loaded backend shows; CaseError where it shows none, so that nothing could be timed."""
    if backend.stream is None:
        raise CaseError(
            f"{type(backend).__name__} shows no stream, so its work on the GPU cannot be timed.",
            "Set `stream` in its load(): harness/backends/base.py says what a backend must provide.",
        )
    return backend.stream
