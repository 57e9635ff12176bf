"""The GPU's clock: events on the very stream that a backend enqueues on, the same for every backend.

An event is a time stamp that the GPU writes when it comes to that place of the stream, so two of them span whatever was
enqueued between them. To be known when reading the figure:

- The GPU passes the first event at once when it has nothing else to do. The time until the first kernel arrives is then
  part of the span, as it is of what a caller waits for: work that is shorter than submitting it looks as long as that.
- An event can be read when it has been passed: modes read theirs after the end of a sample was taken.
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
"""What the CUDA driver API documents for cuEventElapsedTime."""

_PAIRS = 200


class Marks:
    """Some events, each on a stream, to be recorded in order.

    record: one call for each; it enqueues the time stamp.
    wait: returns when the last one has been passed, whatever was enqueued behind it.
    """

    def __init__(self, streams: Sequence[Any]) -> None:
        """`streams`: that of each event."""
        from pycuda import driver  # noqa: PLC0415 - there is a stream, so there is pycuda; elsewhere there need not be

        self._events = [driver.Event() for _ in streams]
        self.record = tuple(partial(event.record, on) for event, on in zip(self._events, streams, strict=True))
        self.wait = self._events[-1].synchronize

    def gate(self, index: int, stream: Any) -> Callable[[], None]:
        """A call that makes what a stream is given from then on wait for an event, as it was last recorded."""
        return partial(stream.wait_for_event, self._events[index])

    def between_ns(self, first: int, last: int) -> int:
        """Device time from one to another, both passed."""
        milliseconds: float = self._events[first].time_till(self._events[last])
        return round(milliseconds * 1e6)


def calibrate(stream: Any) -> Clock:
    """What the clock itself costs: the median device time between two events with nothing between them."""
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
