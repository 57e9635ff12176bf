"""The modes on a GPU: the host's clock as in modes.py, the GPU's clock, and transfers behind computing.

sync       host, device and enqueue time of every batch, one batch in flight
transfer   sync with the copies from and to pinned host memory inside the sample, each part with its own events
pipelined  two batches in flight on one stream; the device time of a batch excludes the wait for the other batch.
           At the transfer boundary: DeviceOverlapped
offline    device and enqueue time of a block

Enqueue time ends when the last submission of a sample returned; it includes recording the first event, about a
microsecond. Between samples, a mode only chooses the next input and reads passed events.

DeviceOverlapped: while batch i computes, batch i + 1 is copied to the device and the outputs of batch i - 1 are copied
back. Two rules keep them separate:

- within a batch, two events: its pass waits for its upload, its download for its pass;
- between batches, slots: each batch in flight has its own inputs and outputs, and pinned memory for its answer. A slot
  is filled again only when the host has seen the end of its last download, so neither an upload nor a pass can
  overwrite the previous batch.

Batches of one stage go through one stream, in order. The host waits only for the end of the oldest batch.
"""

from __future__ import annotations

from array import array
from typing import Any, ClassVar, Protocol

from harness.core.errors import CaseError
from harness.core.schemas import Block, DeviceSamples
from harness.timing import clock
from harness.timing.cuda_events import Marks, calibrate, required_stream
from harness.timing.modes import Inference, Mode, Offline


class OnStream(Inference, Protocol):
    """The part of a backend that is timed on a GPU (harness.backends.base.Backend has it)."""

    stream: Any
    copy_streams: tuple[Any, Any] | None

    def upload(self) -> None:
        """Enqueue the copy of the selected batch to the device."""

    def download(self) -> None:
        """Enqueue the copy of the outputs back."""


class DeviceMode(Mode):
    """A mode with a column beside the samples for each field of DeviceSamples that it fills."""

    fields: ClassVar[tuple[str, ...]] = ("device_ns", "enqueue_ns")

    def __init__(self, backend: OnStream, batches: int) -> None:
        super().__init__(backend, batches)
        self._queue = backend
        self._columns = [array("q") for _ in self.fields]

    def device_samples(self, used: int) -> DeviceSamples:
        """The GPU's times of the first `used` samples, and the overhead of its clock, measured now."""
        samples = {name: tuple(column[:used]) for name, column in zip(self.fields, self._columns, strict=True)}
        return DeviceSamples.model_validate({"clock": calibrate(required_stream(self._queue)), **samples})

    def _marks(self, count: int) -> Marks:
        return Marks([required_stream(self._queue)] * count)

    def _columns_for(self, length: int) -> list[array[int]]:
        # Allocated once for warm-up and once for measuring, with the first block of each.
        if len(self._columns[0]) != length:
            self._columns = [array("q", bytes(8 * length)) for _ in self.fields]
        return self._columns


class DeviceSync(DeviceMode):
    """One batch in flight."""

    def block(
        self, samples: array[int], first: int, block_ns: int, min_iterations: int, deadline: int | None = None
    ) -> Block:
        """Time each inference by both clocks."""
        backend, batches, now_ns = self._queue, self.batches, clock.now_ns
        select, infer, synchronize = backend.select, backend.infer, backend.synchronize
        marks = self._marks(2)
        mark_begin, mark_end = marks.record
        device, enqueue = self._columns_for(len(samples))
        last = len(samples)
        position = first
        block_start = now_ns()
        earliest_end = block_start + block_ns
        wanted = first + min_iterations
        while True:
            select(position % batches)
            start = now_ns()
            mark_begin()
            infer()
            submitted = now_ns()
            mark_end()
            synchronize()
            end = now_ns()
            samples[position] = end - start
            enqueue[position] = submitted - start
            device[position] = marks.between_ns(0, 1)
            position += 1
            if position == last or (end >= earliest_end and position >= wanted) or (deadline and end >= deadline):
                return Block(iterations=position - first, wall_ns=end - block_start)


class DeviceTransfer(DeviceMode):
    """One batch in flight, copies included. A stream runs in order, so the parts add up to the whole."""

    fields = ("device_ns", "enqueue_ns", "h2d_ns", "compute_ns", "d2h_ns")

    def run_once(self) -> None:
        """Copy the chosen batch to the device, run it, copy the outputs back, and wait."""
        self._queue.upload()
        self._queue.infer()
        self._queue.download()
        self._queue.synchronize()

    def block(
        self, samples: array[int], first: int, block_ns: int, min_iterations: int, deadline: int | None = None
    ) -> Block:
        """Time each inference and its parts."""
        backend, batches, now_ns = self._queue, self.batches, clock.now_ns
        select, infer, synchronize = backend.select, backend.infer, backend.synchronize
        upload, download = backend.upload, backend.download
        marks = self._marks(4)
        mark_begin, mark_uploaded, mark_computed, mark_end = marks.record
        device, enqueue, h2d, compute, d2h = self._columns_for(len(samples))
        last = len(samples)
        position = first
        block_start = now_ns()
        earliest_end = block_start + block_ns
        wanted = first + min_iterations
        while True:
            select(position % batches)
            start = now_ns()
            mark_begin()
            upload()
            mark_uploaded()
            infer()
            mark_computed()
            download()
            submitted = now_ns()
            mark_end()
            synchronize()
            end = now_ns()
            samples[position] = end - start
            enqueue[position] = submitted - start
            # All from the same first event: differences of rounded sums add up, sums of rounded parts need not.
            uploaded, computed, whole = marks.between_ns(0, 1), marks.between_ns(0, 2), marks.between_ns(0, 3)
            h2d[position], compute[position], d2h[position] = uploaded, computed - uploaded, whole - computed
            device[position] = whole
            position += 1
            if position == last or (end >= earliest_end and position >= wanted) or (deadline and end >= deadline):
                return Block(iterations=position - first, wall_ns=end - block_start)


class DevicePipelined(DeviceMode):
    """Two batches in flight in turn, by the calls of every backend. As on a CPU (modes.Pipelined), the first batch of a
    block fills the pipeline and the last empties it: neither counts.
    """

    ahead = 1

    def block(
        self, samples: array[int], first: int, block_ns: int, min_iterations: int, deadline: int | None = None
    ) -> Block:
        """Time each inference from its submission until the GPU passed its last event."""
        backend, batches, now_ns = self._queue, self.batches, clock.now_ns
        select, infer, synchronize = backend.select, backend.infer, backend.synchronize
        older, newer = self._marks(2), self._marks(2)
        device, enqueue = self._columns_for(len(samples))
        last = len(samples)
        position = first
        select((first - 1) % batches)
        _submit(newer, infer)
        select(first % batches)
        older_start = now_ns()
        older_enqueue = _submit(older, infer) - older_start
        newer.wait()
        block_start = now_ns()
        earliest_end = block_start + block_ns
        wanted = first + min_iterations
        while True:
            select((position + 1) % batches)
            newer_start = now_ns()
            submitted = _submit(newer, infer)
            older.wait()
            end = now_ns()
            samples[position] = end - older_start
            enqueue[position] = older_enqueue
            device[position] = older.between_ns(0, 1)
            position += 1
            older_start, older_enqueue = newer_start, submitted - newer_start
            older, newer = newer, older
            if position == last or (end >= earliest_end and position >= wanted) or (deadline and end >= deadline):
                synchronize()
                return Block(iterations=position - first, wall_ns=end - block_start)


class DeviceOffline(DeviceMode, Offline):
    """Back to back, with events before the first and after the last inference of a block. Its columns stay empty."""

    def block(
        self, samples: array[int], first: int, block_ns: int, min_iterations: int, deadline: int | None = None
    ) -> Block:
        """Time the block as a whole."""
        backend, batches, now_ns = self._queue, self.batches, clock.now_ns
        select, infer = backend.select, backend.infer
        marks = self._marks(2)
        mark_begin, mark_end = marks.record
        iterations = self._planned(len(samples) - first, block_ns, min_iterations, deadline)
        start = now_ns()
        mark_begin()
        for position in range(first, first + iterations):
            select(position % batches)
            infer()
        submitted = now_ns()
        mark_end()
        backend.synchronize()
        wall_ns = now_ns() - start
        self._learn(iterations, wall_ns)
        return Block(
            iterations=iterations, wall_ns=wall_ns, device_ns=marks.between_ns(0, 1), enqueue_ns=submitted - start
        )


def _submit(marks: Marks, infer: Any) -> int:
    """Enqueue one inference between its events; returns the host time at the end of its submission."""
    mark_begin, mark_end = marks.record
    mark_begin()
    infer()
    submitted = clock.now_ns()
    mark_end()
    return submitted


IN_FLIGHT = 3
"""Batches in flight, and so slots: one for each stage."""


class DeviceOverlapped(DeviceMode):
    """The transfer boundary, pipelined. As in DevicePipelined, the first batch of a block fills the pipeline and the
    last two empty it: none of them counts.
    """

    fields = ("device_ns", "enqueue_ns", "h2d_ns", "compute_ns", "d2h_ns")
    ahead = IN_FLIGHT - 1

    def run_once(self) -> None:
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
