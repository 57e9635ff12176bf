"""The modes on a GPU: what is called in which order, and what both clocks say about work that is known."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import CaseError
from harness.core.schemas import Case
from harness.timing import cuda_events
from harness.timing.cuda_modes import (
    DeviceMode,
    DeviceOffline,
    DeviceOverlapped,
    DevicePipelined,
    DeviceSync,
    DeviceTransfer,
)
from harness.timing.loop import measure, warm_up
from harness.timing.modes import Offline, Pipelined, Sync
from harness.timing.session import mode_for
from tests.fixtures.gpu import RECORD_NS, SELECT_NS, SUBMIT_NS, US, WORK_NS, OnGpu, calls, install, on_clock
from tests.fixtures.loops import room, settings
from tests.synthetic_results import RESNET, case_of

MS = 1_000 * US
KINDS = [DeviceSync, DeviceTransfer, DevicePipelined, DeviceOffline]
WITH_SAMPLES = KINDS[:3]
WORK = st.lists(st.integers(0, 2 * MS), min_size=1, max_size=7)

Make = Callable[..., OnGpu]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Make:
    def make(*found: Any, **more: Any) -> OnGpu:
        install(monkeypatch)
        return on_clock(monkeypatch, OnGpu(*found, **more))

    return make


# --- sync ---------------------------------------------------------------------------------------------------------


def test_sync_does_nothing_else_between_start_and_end(gpu: Make) -> None:
    backend = gpu()
    block = DeviceSync(backend, 8).block(room(), 0, 0, 5)
    sample = "select clock mark infer clock mark synchronize clock elapsed "
    assert block.iterations == 5
    assert calls(backend) == "clock " + sample * 5
    assert backend.selected == [0, 1, 2, 3, 4]


def test_sync_distinguishes_host_device_and_enqueue(gpu: Make) -> None:
    mode = DeviceSync(gpu(), 8)
    samples = room()
    mode.block(samples, 0, 0, 5)
    device = mode.device_samples(5)
    assert set(samples[:5]) == {RECORD_NS + SUBMIT_NS + WORK_NS}
    # The GPU passes the first event at once, and waits for the first kernel to be submitted.
    assert set(device.device_ns) == {SUBMIT_NS + WORK_NS}
    assert set(device.enqueue_ns) == {RECORD_NS + SUBMIT_NS}
    assert device.h2d_ns == device.compute_ns == device.d2h_ns == ()


# --- transfer -----------------------------------------------------------------------------------------------------


def test_the_copies_surround_the_pass_and_each_part_has_its_events(gpu: Make) -> None:
    backend = gpu(copy=(40 * US, 20 * US))
    mode = DeviceTransfer(backend, 8)
    samples = room()
    mode.block(samples, 0, 0, 4)
    sample = "select clock mark upload mark infer mark download clock mark synchronize clock elapsed elapsed elapsed "
    assert calls(backend) == "clock " + sample * 4
    device = mode.device_samples(4)
    assert set(device.h2d_ns) == {40 * US + SUBMIT_NS}
    assert set(device.compute_ns) == {WORK_NS}  # submitted while the copy went on
    assert set(device.d2h_ns) == {20 * US}


@given(WORK, st.tuples(st.integers(0, MS), st.integers(0, MS)))
def test_the_parts_are_the_whole(work: list[int], copy: tuple[int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        mode = DeviceTransfer(on_clock(patch, OnGpu(lambda n: work[n % len(work)], copy)), 8)
        mode.block(room(), 0, 0, 10)
        device = mode.device_samples(10)
    parts = [device.h2d_ns, device.compute_ns, device.d2h_ns]
    assert [sum(sample) for sample in zip(*parts, strict=True)] == list(device.device_ns)
    assert min(map(min, parts)) >= 0


def test_one_alone_at_the_transfer_boundary_is_copied_as_well(gpu: Make) -> None:
    backend = gpu()
    DeviceTransfer(backend, 8).run_once()
    assert calls(backend) == "upload infer download synchronize "


# --- pipelined ----------------------------------------------------------------------------------------------------


def test_two_are_in_flight_and_never_three(gpu: Make) -> None:
    backend = gpu()
    block = DevicePipelined(backend, 8).block(room(), 0, 0, 20)
    in_flight = most = 0
    for call in backend.stream.calls:
        in_flight += {"infer": 1, "wait": -1}.get(call, 0)
        most = max(most, in_flight)
    assert most == 2
    assert backend.stream.calls[-1] == "synchronize"  # nothing runs on into what follows a block
    assert backend.passes == block.iterations + 2  # one fills the pipeline, one empties it
    assert backend.selected == [(number - 1) % 8 for number in range(22)]


def test_the_newer_is_enqueued_before_the_older_is_waited_for(gpu: Make) -> None:
    backend = gpu()
    DevicePipelined(backend, 8).block(room(), 0, 0, 5)
    submission = "select clock mark infer clock mark "
    first = "select mark infer clock mark " + submission + "wait clock "
    assert calls(backend) == first + (submission + "wait clock elapsed ") * 5 + "synchronize "


def test_a_pipelined_batch_has_its_own_device_time_and_the_host_waits_for_two(gpu: Make) -> None:
    works = [WORK_NS * (1 + number % 3) for number in range(40)]
    mode = DevicePipelined(gpu(lambda n: works[n]), 8)
    samples = room()
    mode.block(samples, 0, 0, 20)
    device = mode.device_samples(20)
    # Number n + 1 counts as sample n: number 0 fills the pipeline.
    assert list(device.device_ns) == works[1:21]
    assert set(device.enqueue_ns) == {RECORD_NS + SUBMIT_NS}
    for n in range(20):
        waited = works[n] + works[n + 1]
        assert waited - 20 * US < samples[n] <= waited + RECORD_NS


# --- offline ------------------------------------------------------------------------------------------------------


def test_an_offline_block_is_between_two_events_and_nothing_is_waited_for_inside(gpu: Make) -> None:
    backend = gpu()
    mode = DeviceOffline(backend, 8)
    mode.block(room(), 0, 0, 1)
    backend.stream.calls.clear()
    block = mode.block(room(), 0, 0, 20)
    assert calls(backend) == "clock mark " + "select infer " * 20 + "clock mark synchronize clock elapsed "
    assert block.device_ns == 20 * WORK_NS + SELECT_NS + SUBMIT_NS
    assert block.enqueue_ns == RECORD_NS + 20 * (SELECT_NS + SUBMIT_NS)
    assert block.wall_ns == block.device_ns + RECORD_NS


def test_offline_samples_are_its_blocks(gpu: Make) -> None:
    mode = DeviceOffline(gpu(), 8)
    timed = measure(mode, settings(), lambda index: None)
    device = mode.device_samples(len(timed.samples_ns))
    assert (device.device_ns, device.enqueue_ns) == ((), ())
    assert device.clock.name == "CUDA events"
    assert all(block.device_ns and block.enqueue_ns for block in timed.blocks)


# --- all ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WITH_SAMPLES)
@given(work=WORK)
def test_device_and_enqueue_are_never_longer_than_the_host_waited(kind: type[DeviceMode], work: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        mode = kind(on_clock(patch, OnGpu(lambda n: work[n % len(work)], (7 * US, 5 * US))), 3)
        samples = room(50)
        block = mode.block(samples, 10, 3 * MS, 12)
        device = mode.device_samples(10 + block.iterations)
    for n in range(10, 10 + block.iterations):
        assert 0 <= device.device_ns[n] <= samples[n]
        assert 0 < device.enqueue_ns[n] <= samples[n]


@pytest.mark.parametrize("kind", WITH_SAMPLES)
def test_durations_of_warm_up_are_not_among_the_samples(gpu: Make, kind: type[DeviceMode]) -> None:
    backend = gpu(lambda n: WORK_NS)
    mode = kind(backend, 8)
    assert warm_up(mode, settings()).steady
    warmed = backend.passes
    backend.work = lambda n: 2 * WORK_NS if n > warmed else WORK_NS
    timed = measure(mode, settings(), lambda index: None)
    device = mode.device_samples(len(timed.samples_ns))
    assert len(device.device_ns) == len(device.enqueue_ns) == len(timed.samples_ns) > 100
    assert min(device.device_ns[2:]) >= 2 * WORK_NS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 19])
def test_a_full_buffer_ends_the_block(gpu: Make, kind: type[DeviceMode], size: int) -> None:
    mode = kind(gpu(), 8)
    mode.block(room(size), 0, 0, 1)
    assert mode.block(room(size), 0, 500 * MS, 20).iterations == size


@pytest.mark.parametrize("kind", KINDS)
def test_a_steady_gpu_converges_in_every_mode(gpu: Make, kind: type[DeviceMode]) -> None:
    backend = gpu()
    mode = kind(backend, 8)
    last: list[tuple[int, int]] = []
    result = measure(mode, settings(), lambda index: last.append((index, backend.selected[-1])))
    assert result.stop == "converged"
    assert all(index == ran for index, ran in last)


@pytest.mark.parametrize("kind", KINDS)
def test_a_backend_without_a_stream_cannot_be_timed(gpu: Make, kind: type[DeviceMode]) -> None:
    backend = gpu()
    mode = kind(backend, 8)
    backend.stream = None
    with pytest.raises(CaseError, match="OnGpu shows no stream") as caught:
        mode.block(room(), 0, 0, 1)
    assert "load()" in caught.value.hint


def test_the_event_clock_knows_its_own_cost(gpu: Make) -> None:
    backend = gpu()
    result = cuda_events.calibrate(backend.stream)
    assert (result.name, result.overhead_ns, result.resolution_ns) == ("CUDA events", RECORD_NS, 500.0)
    assert re.fullmatch(r"(mark mark wait elapsed ){50,}", calls(backend))


# --- which mode ---------------------------------------------------------------------------------------------------


def case(**changes: Any) -> Case:
    return case_of(RESNET, "torch-eager", "fp32", 1).model_copy(update=changes)


@pytest.mark.parametrize(
    ("boundary", "mode", "kind"),
    [
        ("compute", "sync", DeviceSync),
        ("compute", "pipelined", DevicePipelined),
        ("compute", "offline", DeviceOffline),
        ("transfer", "sync", DeviceTransfer),
        ("transfer", "pipelined", DeviceOverlapped),
    ],
)
def test_a_gpu_has_modes_of_its_own(gpu: Make, boundary: str, mode: str, kind: type[DeviceMode]) -> None:
    result = mode_for(case(device="cuda", boundary=boundary, mode=mode), gpu(), 5)
    assert (type(result), result.batches) == (kind, 5)


def test_unmeasured_combinations_are_refused(gpu: Make) -> None:
    with pytest.raises(CaseError, match="transfer boundary is not measured in offline mode"):
        mode_for(case(device="cuda", boundary="transfer", mode="offline"), gpu(), 5)


@pytest.mark.parametrize(("mode", "kind"), [("sync", Sync), ("pipelined", Pipelined), ("offline", Offline)])
def test_modes_on_a_cpu_are_the_plain_ones_and_need_no_pycuda(
    gpu: Make, monkeypatch: pytest.MonkeyPatch, mode: str, kind: type
) -> None:
    backend = gpu()
    monkeypatch.setitem(sys.modules, "pycuda", None)
    backend.submit = backend.infer  # type: ignore[method-assign]
    backend.wait = backend.synchronize  # type: ignore[method-assign]
    result = mode_for(case(mode=mode), backend, 5)
    assert type(result) is kind
    block = result.block(room(), 0, 0, 5)
    assert (block.device_ns, block.enqueue_ns, result.device_samples(block.iterations)) == (None, None, None)
    assert not {"mark", "elapsed"} & set(backend.stream.calls)
