"""Transfers behind computing: what is called in which order, and what both clocks say of work that is known.

That no batch meets another one's memory is shown on real buffers (tests/fixtures/overlapped.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.aggregation.row import hidden_share
from harness.core.errors import CaseError
from harness.core.schemas import Block, DeviceSamples
from harness.statistics.estimators import median
from harness.timing.cuda_modes import IN_FLIGHT, DeviceOverlapped
from harness.timing.loop import measure
from tests.fixtures.gpu import US, WORK_NS, OnGpu, Stream, calls, install, on_clock
from tests.fixtures.loops import room, settings

Make = Callable[..., OnGpu]
TIMES = st.integers(0, 2_000 * US)


def overlapping(patch: pytest.MonkeyPatch, *found: Any) -> OnGpu:
    install(patch)
    backend = on_clock(patch, OnGpu(*found))
    backend.copy_streams = Stream(backend.stream.host), Stream(backend.stream.host)
    return backend


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Make:
    return lambda *found: overlapping(monkeypatch, *found)


def run(backend: OnGpu, iterations: int = 40) -> tuple[Block, array[int], DeviceSamples]:
    mode, samples = DeviceOverlapped(backend, 8), room()
    block = mode.block(samples, 0, 0, iterations)
    return block, samples, mode.device_samples(block.iterations)


SUBMISSION = "select clock mark upload mark gate mark infer mark gate mark download clock mark "


def test_a_batch_is_submitted_before_the_oldest_is_waited_for(gpu: Make) -> None:
    backend = gpu()
    DeviceOverlapped(backend, 8).block(room(), 0, 0, 5)
    sample = SUBMISSION + "wait clock " + "elapsed " * 4
    assert calls(backend) == SUBMISSION * 3 + "wait clock " + sample * 5 + "wait "
    assert backend.selected == [7, 0, 1, 2, 3, 4, 5, 6]


def test_as_many_are_in_flight_as_there_are_slots_and_never_more(gpu: Make) -> None:
    backend = gpu()
    block, _, _ = run(backend)
    in_flight = most = 0
    for call in backend.stream.calls:
        in_flight += {"upload": 1, "wait": -1}.get(call, 0)
        most = max(most, in_flight)
    assert most == IN_FLIGHT
    assert backend.passes == block.iterations + IN_FLIGHT  # one fills the pipeline, two empty it
    assert max(stream.free_ns for stream in (backend.stream, *backend.copy_streams)) <= backend.stream.now_ns


def test_one_alone_is_copied_as_well_and_waited_for(gpu: Make) -> None:
    backend = gpu(lambda n: WORK_NS, (40 * US, 20 * US))
    DeviceOverlapped(backend, 8).run_once()
    assert calls(backend) == SUBMISSION.removeprefix("select ") + "wait "
    assert backend.stream.now_ns >= 40 * US + WORK_NS + 20 * US


@pytest.mark.parametrize(
    ("copy", "batch", "share"),
    [
        ((200 * US, 100 * US), WORK_NS, 1.0),
        ((800 * US, 100 * US), 800 * US, 1 - 300 / 900),
        ((100 * US, 800 * US), 800 * US, 1 - 300 / 900),
    ],
    ids=["the pass is the limit", "the upload is the limit", "the download is the limit"],
)
def test_a_batch_takes_as_long_as_its_longest_stage_and_each_stage_is_timed_alone(
    gpu: Make, copy: tuple[int, int], batch: int, share: float
) -> None:
    block, _, result = run(gpu(lambda n: WORK_NS, copy))
    h2d, compute, d2h = (median(part) for part in (result.h2d_ns, result.compute_ns, result.d2h_ns))
    assert (h2d, d2h) == pytest.approx(copy, abs=20 * US)
    assert compute == pytest.approx(WORK_NS, abs=20 * US)
    each = block.wall_ns / block.iterations
    assert each == pytest.approx(batch, rel=0.05)
    assert hidden_share(each, compute, h2d + d2h) == pytest.approx(share, abs=0.05)


def test_on_one_stream_nothing_is_hidden(gpu: Make) -> None:
    """The same calls where all three queues are one: the share shows it."""
    backend = gpu(lambda n: WORK_NS, (200 * US, 100 * US))
    backend.copy_streams = backend.stream, backend.stream
    block, _, result = run(backend)
    parts = [median(part) for part in (result.h2d_ns, result.compute_ns, result.d2h_ns)]
    assert hidden_share(block.wall_ns / block.iterations, parts[1], parts[0] + parts[2]) == pytest.approx(0, abs=0.05)


@given(st.lists(TIMES, min_size=1, max_size=7), st.tuples(TIMES, TIMES))
def test_parts_lie_within_the_device_time_and_that_within_the_hosts(work: list[int], copy: tuple[int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        block, samples, result = run(overlapping(patch, lambda n: work[n % len(work)], copy))
    for n in range(block.iterations):
        parts = result.h2d_ns[n], result.compute_ns[n], result.d2h_ns[n]
        assert min(parts) >= 0
        assert sum(parts) <= result.device_ns[n] <= samples[n]
        assert 0 < result.enqueue_ns[n] <= samples[n]


def test_the_check_gets_the_last_batch_that_ran(gpu: Make) -> None:
    backend = gpu()
    last: list[tuple[int, int]] = []
    mode = DeviceOverlapped(backend, 8)
    result = measure(mode, settings(), lambda index: last.append((index, backend.selected[-1])))
    assert result.stop == "converged"
    assert all(index == ran for index, ran in last)


@pytest.mark.parametrize("size", [1, 2, 19])
def test_a_full_buffer_ends_the_block(gpu: Make, size: int) -> None:
    assert DeviceOverlapped(gpu(), 8).block(room(size), 0, 500_000 * US, 20).iterations == size


def test_a_backend_without_streams_for_its_copies_is_refused(gpu: Make) -> None:
    backend = gpu()
    backend.copy_streams = None
    with pytest.raises(CaseError, match="OnGpu shows no streams for its copies") as caught:
        DeviceOverlapped(backend, 8).block(room(), 0, 0, 1)
    assert "pipelined" in caught.value.hint
    assert not {"upload", "infer"} & set(backend.stream.calls)
