"""Transfers behind computing: three streams, and as many batches in flight as there are stages.

While batch i computes, batch i + 1 is copied to the device and the outputs of batch i - 1 are copied back. Two rules
keep them separate:

- within a batch, two events: its pass waits for its upload, its download for its pass;
- between batches, slots: each batch in flight has its own inputs and outputs, and pinned memory for its answer. A slot
  is filled again only when the host has seen the end of its last download, so neither an upload nor a pass can
  overwrite the previous batch.

Batches of one stage go through one stream, in order. The host waits only for the end of the oldest batch.
"""

from __future__ import annotations

from array import array
from typing import Any

from harness.core.errors import CaseError
from harness.core.schemas import Block
from harness.timing import clock
from harness.timing.cuda_events import Marks, required_stream
from harness.timing.cuda_modes import DeviceMode, OnStream

IN_FLIGHT = 3
"""Batches in flight, and so slots: one for each stage."""


class DeviceOverlapped(DeviceMode):
    """The transfer boundary, pipelined. As in DevicePipelined, the first batch of a block fills the pipeline and the
    last two empty it: none of them counts.
    """

    fields = ("device_ns", "enqueue_ns", "h2d_ns", "compute_ns", "d2h_ns")
    ahead = IN_FLIGHT - 1

    def once(self) -> None:
        """One batch alone, by the calls that are timed."""
        alone = _Flight(self._queue)
        alone.submit()
        alone.wait()

    def block(
        self, samples: array[int], first: int, block_ns: int, min_iterations: int, deadline: int | None = None
    ) -> Block:
        """Time each batch from its submission until the GPU passed the end of its download."""
        select, batches, now_ns = self._queue.select, self.batches, clock.now_ns
        oldest, middle, newest = (_Flight(self._queue) for _ in range(IN_FLIGHT))
        columns = self._columns_for(len(samples))
        last = len(samples)
        position = first
        for number, flight in enumerate((oldest, middle, newest), first - 1):
            select(number % batches)
            flight.submit()
        oldest.wait()
        block_start = now_ns()
        earliest_end = block_start + block_ns
        wanted = first + min_iterations
        while True:
            oldest, middle, newest = middle, newest, oldest
            select((position + self.ahead) % batches)
            newest.submit()
            oldest.wait()
            end = now_ns()
            samples[position] = end - oldest.start
            for column, value in zip(columns, oldest.times_ns(), strict=True):
                column[position] = value
            position += 1
            if position == last or (end >= earliest_end and position >= wanted) or (deadline and end >= deadline):
                newest.wait()
                return Block(iterations=position - first, wall_ns=end - block_start)


class _Flight:
    """One batch at a time on its way through the three streams.

    start: host time when its submission began.
    wait: returns when its download is done.
    """

    def __init__(self, backend: OnStream) -> None:
        inward, stream, outward = _streams(backend)
        marks = Marks([inward, inward, stream, stream, outward, outward])
        self._calls = backend.upload, backend.infer, backend.download
        self._records = marks.record
        self._waits = marks.stream_wait(1, stream), marks.stream_wait(3, outward)
        self._between_ns, self.wait = marks.between_ns, marks.wait
        self.start = self._submitted = 0

    def submit(self) -> None:
        """Enqueue the selected batch: upload, pass, download, each between its events."""
        upload, infer, download = self._calls
        begin, uploaded, begin_pass, computed, begin_download, end = self._records
        await_upload, await_pass = self._waits
        self.start = clock.now_ns()
        begin()
        upload()
        uploaded()
        await_upload()
        begin_pass()
        infer()
        computed()
        await_pass()
        begin_download()
        download()
        self._submitted = clock.now_ns()
        end()

    def times_ns(self) -> tuple[int, ...]:
        """Times of a batch that is done, in the order of DeviceOverlapped.fields."""
        between_ns = self._between_ns
        return between_ns(0, 5), self._submitted - self.start, between_ns(0, 1), between_ns(2, 3), between_ns(4, 5)


def _streams(backend: OnStream) -> tuple[Any, Any, Any]:
    """The streams of uploads, passes and downloads. CaseError where there is only one."""
    stream = required_stream(backend)
    if backend.copy_streams is None:
        raise CaseError(
            f"{type(backend).__name__} shows no streams for its copies, so they cannot run beside a pass.",
            "Leave `modes: [pipelined]` out at the transfer boundary, or set `copy_streams` in its load().",
        )
    inward, outward = backend.copy_streams
    return inward, stream, outward
