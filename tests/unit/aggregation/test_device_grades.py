"""Each finding of both clocks at its threshold: one side passes, the other is flagged, and the grade follows."""

from __future__ import annotations

from typing import Any

import pytest

from harness.aggregation import row
from harness.aggregation.flags_gpu import device_findings
from harness.aggregation.grades import Finding, grade
from harness.core.schemas import Clock, DeviceTimes, GpuUsage, Latency
from tests import synthetic_results as made

CASE = made.case_of(made.RESNET, "torch-eager", "fp32", 1).model_copy(update={"device": "cuda"})
MS = 1_000_000


def latency(median_ns: int) -> Latency:
    return row.latency_of([made.measured(CASE, made.RESNET, n, latency_ns=(median_ns,) * 9) for n in (1, 2, 3)])


def times(device: float, enqueue: float, **more: Any) -> DeviceTimes:
    clock = Clock(name="CUDA events", resolution_ns=500.0, overhead_ns=1_000)
    return DeviceTimes(clock=clock, device=device, device_ci95=None, enqueue=enqueue, **more)


def flags_by_name(host: int, device: float, enqueue: float, mode: str = "sync", **more: Any) -> dict[str, Finding]:
    case = CASE.model_copy(update={"mode": mode})
    findings = device_findings(case, latency(host), times(device, enqueue, **more))
    assert all(finding.flag.detail and finding.flag.remedy.endswith(".") for finding in findings)
    return {finding.flag.name: finding for finding in findings}


@pytest.mark.parametrize(("hidden", "flagged"), [(0.99, False), (0.6, False), (0.3, True)])
def test_copies_behind_computing_bound_a_row_by_their_visible_part(hidden: float, flagged: bool) -> None:
    copying = {"h2d": MS, "compute": MS, "d2h": MS, "overlap": hidden}
    flags = flags_by_name(4 * MS, 3.9 * MS, 0.1 * MS, mode="pipelined", **copying)
    assert ("TRANSFER_BOUND" in flags) is flagged
    if flagged:
        detail = flags["TRANSFER_BOUND"].flag.detail
        assert detail == "copies that are not hidden take 1,400.0 µs of 2,400.0 µs on the device"


def test_a_row_that_the_gpu_bounds_has_no_flags() -> None:
    assert flags_by_name(2 * MS, 1.99 * MS, 0.01 * MS) == {}


def test_a_row_without_a_gpu_has_none() -> None:
    assert device_findings(CASE, latency(2 * MS), None) == []


@pytest.mark.parametrize(("enqueue", "flagged"), [(0.8, False), (0.81, True), (1.1, True)])
def test_a_host_that_submits_too_slowly_is_named_and_costs_no_grade(enqueue: float, flagged: bool) -> None:
    flags = flags_by_name(2 * MS, 1.9 * MS, enqueue * 1.9 * MS)
    assert ("ENQUEUE_BOUND" in flags) is flagged
    assert grade(flags.values()) == "A"
    assert not flagged or "CUDA graph" in flags["ENQUEUE_BOUND"].flag.remedy


def test_back_to_back_submitting_waits_for_the_gpu_and_not_the_other_way_round() -> None:
    assert flags_by_name(2 * MS, 1.99 * MS, 1.95 * MS, mode="offline") == {}


@pytest.mark.parametrize(("copies", "flagged"), [((0.4, 0.1), False), ((0.4, 0.11), True)])
def test_copies_that_take_more_than_half_are_named(copies: tuple[float, float], flagged: bool) -> None:
    h2d, d2h = (share * MS for share in copies)
    flags = flags_by_name(int(1.01 * MS), MS, 0.1 * MS, h2d=h2d, compute=MS - h2d - d2h, d2h=d2h)
    assert ("TRANSFER_BOUND" in flags) is flagged
    assert grade(flags.values()) == "A"


@pytest.mark.parametrize(("beyond_ns", "void"), [(0, False), (2_400, False), (2_600, True)])
def test_a_device_that_is_busy_longer_than_the_host_waited_is_void(beyond_ns: int, void: bool) -> None:
    # 0.1% of 2 ms between two quartz clocks and 0.5 µs of the event clock's resolution are no contradiction.
    flags = flags_by_name(2 * MS, 2 * MS + beyond_ns, 0.01 * MS)
    assert ("DEVICE_OVER_HOST" in flags) is void
    assert (grade(flags.values()) == "F") is void


@pytest.mark.parametrize(
    ("host", "device", "enqueue", "mode", "void"),
    [
        (2 * MS, 1.91 * MS, 0.05 * MS, "sync", False),
        (2 * MS, 1.89 * MS, 0.05 * MS, "sync", True),  # half of the time need not be missing
        (2 * MS, 1.0 * MS, 0.9 * MS, "sync", True),  # submitting lies between the events: it is no time besides
        (2 * MS, 0.3 * MS, 1.95 * MS, "sync", False),  # the host worked
        (10 * MS, 9.81 * MS, 0.05 * MS, "sync", False),
        (10 * MS, 9.79 * MS, 0.05 * MS, "sync", True),
        (63_351_900, 63_293_700, 8_048_300, "sync", False),  # a published row of an H200: 58 µs
        (209_400, 200_500, 10_600, "sync", False),  # another: 4% of a short batch
        (2 * MS, 0.3 * MS, 0.1 * MS, "offline", True),
        (2 * MS, 0.9 * MS, 0.05 * MS, "pipelined", False),  # the rest is the batch before
        (60_000, 6_000, 5_000, "sync", False),  # too short to distinguish from waking up
    ],
)
def test_work_that_the_stream_did_not_show_is_void(
    host: int, device: float, enqueue: float, mode: str, void: bool
) -> None:
    flags = flags_by_name(host, device, enqueue, mode)
    assert ("OFF_STREAM" in flags) is void


@pytest.mark.parametrize(
    ("other_processes", "memory_before", "grade_of_it"),
    [(0, 2 << 30, "F"), (0, None, "F"), (3, 0, "C"), (None, 2 << 30, "C"), (None, 4 << 20, "F")],
)
def test_time_that_other_programs_may_have_had_does_not_void_a_row(
    other_processes: int | None, memory_before: int | None, grade_of_it: str
) -> None:
    # A small network in torch.compile beside three other tests on one H200, 2026-12-01.
    unknown: dict[str, Any] = dict.fromkeys(GpuUsage.model_fields)
    seen = {"reasons": {}, "samples": 8, "other_processes_max": other_processes, "memory_before_bytes": memory_before}
    usage = GpuUsage(**{**unknown, **seen})
    findings = device_findings(CASE, latency(2_414_742), times(41_840, 303_914), [usage])
    (finding,) = [finding for finding in findings if finding.flag.name == "OFF_STREAM"]
    assert finding.caps_at == grade_of_it
    assert ("other programs" in finding.flag.detail) is (grade_of_it == "C")


@pytest.mark.parametrize(("device", "flagged"), [(100_000, False), (99_000, True)])
def test_device_times_near_the_event_clocks_own_are_named(device: int, flagged: bool) -> None:
    flags = flags_by_name(110_000, device, 10_000)
    assert ("DEVICE_BELOW_TIMER" in flags) is flagged
    assert grade(flags.values()) == "A"
