"""Gaps between kernels, from the events of a trace as torch.profiler writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.core.schemas.profile_record import LaunchGaps, OperatorRow, PartsProfile
from harness.profiling import launch_gaps
from harness.profiling.launch_gaps import (
    host_wait_fraction,
    idle_fraction,
    idle_share,
    kernel_busy_ns,
    no_kernel_ns,
    work_overlap,
)
from harness.profiling.read_profiles import with_launch_gaps
from tests.fixtures.traces import Event, event


def launch_gaps_of(events: list[Event], *operators: OperatorRow) -> LaunchGaps | None:
    return launch_gaps.launch_gaps_of(events, operators)


def test_a_cpu_has_time_without_an_operator() -> None:
    # The second operator is inside the first; 30 us of Python follow, then one more operator.
    events = [
        event("cpu_op", 100, 20),
        event("cpu_op", 105, 5),
        event("cpu_op", 150, 10),
        event("python_function", 0, 9),
    ]
    result = launch_gaps.operator_gaps_of(events)
    assert result is not None
    assert (result.window_ns, result.busy_ns) == (60_000, 30_000)
    assert launch_gaps.fraction_without_operator(result) == 0.5
    assert launch_gaps.operator_gaps_of([event("kernel", 0, 5)]) is None


def test_overlapping_work_counts_once_and_copies_count_as_work() -> None:
    result = launch_gaps_of(
        [event("kernel", 100, 10), event("kernel", 105, 10), event("gpu_memcpy", 120, 5), event("gpu_memset", 140, 10)]
    )
    assert result is not None
    assert (result.window_ns, result.busy_ns, result.work_ns) == (50_000, 30_000, 35_000)
    assert idle_fraction(result) == pytest.approx(0.4)


def test_work_inside_longer_work_on_another_stream_is_no_gap() -> None:
    result = launch_gaps_of([event("kernel", 0, 100), event("kernel", 10, 5), event("kernel", 100, 20)])
    assert result is not None
    assert idle_fraction(result) == 0


def test_a_kernel_launched_in_time_is_no_waiting_for_the_host() -> None:
    result = launch_gaps_of(
        [
            *(event("cuda_runtime", 0, 5, 1), event("kernel", 10, 10, 1)),
            *(event("cuda_runtime", 6, 2, 2), event("kernel", 25, 5, 2)),  # launched before the gap of 5 began
            *(event("cuda_driver", 31, 7, 3), event("kernel", 40, 10, 3)),  # 8 of the gap's 10 until it was launched
        ]
    )
    assert result is not None
    assert (result.window_ns, result.busy_ns, result.waited_ns) == (40_000, 25_000, 8_000)
    assert host_wait_fraction(result) == pytest.approx(0.2)


def test_a_kernel_that_starts_before_its_launch_returns_waited_until_it_started() -> None:
    result = launch_gaps_of(
        [
            *(event("cuda_runtime", 0, 1, 1), event("kernel", 0, 10, 1)),
            *(event("cuda_runtime", 12, 20, 2), event("kernel", 16, 4, 2)),
        ]
    )
    assert result is not None
    assert result.waited_ns == 6_000


def test_without_launches_the_cause_of_waiting_is_unknown() -> None:
    result = launch_gaps_of([event("kernel", 0, 10, 7), event("kernel", 20, 10, 8)])
    assert result is not None
    assert idle_fraction(result) == pytest.approx(1 / 3)
    assert host_wait_fraction(result) is None


def test_a_trace_of_a_cpu_has_no_gaps() -> None:
    assert launch_gaps_of([event("cpu_op", 0, 10), {"ph": "M", "name": "process_name", "args": {"name": "x"}}]) is None
    assert launch_gaps_of([]) is None


def test_work_that_took_no_time_has_no_gaps() -> None:
    assert launch_gaps_of([event("kernel", 0, 0), event("kernel", 20, 0)]) is None
    assert launch_gaps_of([event("kernel", 0, 0)]) is None


def test_the_idle_share_of_a_latency_leaves_out_the_time_of_the_profiler() -> None:
    region = {**event("gpu_user_annotation", 0, 100), "name": "region"}
    # 35 µs of work are 30 µs of a busy GPU. A region is no work.
    shown = (operator("n", 35_000), operator("region", 90_000))
    events = [event("kernel", 0, 10), event("kernel", 5, 10), event("kernel", 85, 15), region]
    result = launch_gaps_of(events, *shown)
    assert result is not None
    assert idle_fraction(result) == pytest.approx(0.7)
    assert (result.kernels_ns, work_overlap(result)) == (35_000, pytest.approx(35 / 30))
    parts = of(*shown).model_copy(update={"launch_gaps": result, "plain_ns": 40_000})
    assert kernel_busy_ns(parts) == pytest.approx(30_000)
    assert no_kernel_ns(result) == pytest.approx(70_000)
    # Of the measured latency where there is one, else of the plain one; and it says of which.
    shares = [idle_share(parts, measured_ns) for measured_ns in (None, 60_000, 20_000)]
    assert [(share.share, share.of) for share in shares if share] == [
        (pytest.approx(0.25), "plain latency"),
        (pytest.approx(0.5), "measured latency"),
        (0, "measured latency"),
    ]
    assert idle_share(of(), 20_000) is None


def test_idle_time_of_a_pass_does_not_depend_on_how_many_were_traced() -> None:
    results = [event("kernel", 0, 10), event("kernel", 30, 10)]
    two = [*results, event("kernel", 60, 10), event("kernel", 90, 10)]
    kernel = operator("n", 20_000)  # of one inference
    result, more = launch_gaps_of(results, kernel), launch_gaps_of(two, kernel)
    assert result is not None
    assert more is not None
    assert no_kernel_ns(result) == pytest.approx(20_000)
    assert no_kernel_ns(more) == pytest.approx(30_000)  # half of three gaps


def operator(name: str, device_ns: int) -> OperatorRow:
    return OperatorRow(name=name, shapes="", calls=1, self_cpu_ns=0, self_device_ns=device_ns)


def of(*operators: OperatorRow, traces: tuple[str, ...] = ()) -> PartsProfile:
    return PartsProfile(layers=(), operators=operators, traces=traces, window_ns=40_000, plain_ns=20_000)


def test_gaps_are_read_from_the_trace_that_has_kernels_and_kept(tmp_path: Path) -> None:
    parts = of(operator("n", 20_000), traces=("modules.trace.json", "operators.pt.trace.json"))
    (tmp_path / "modules.trace.json").write_text(json.dumps({"traceEvents": [event("module", 0, 100)]}))
    trace = tmp_path / "operators.pt.trace.json"
    events = [event("kernel", 0, 10), event("kernel", 30, 10)]
    trace.write_text(json.dumps({"traceEvents": events, "schemaVersion": 1}))
    warnings: list[str] = []
    result = with_launch_gaps(parts, tmp_path, warnings.append)
    assert result.launch_gaps is not None
    assert idle_fraction(result.launch_gaps) == pytest.approx(0.5)
    trace.unlink()
    assert with_launch_gaps(result, tmp_path, warnings.append) == result
    on_a_cpu = of(OperatorRow(name="n", shapes="", calls=1, self_cpu_ns=5, self_device_ns=None), traces=parts.traces)
    assert with_launch_gaps(on_a_cpu, tmp_path, warnings.append) == on_a_cpu
    assert warnings == []


def test_an_unreadable_trace_is_reported_with_the_next_command(tmp_path: Path) -> None:
    parts, warnings = of(operator("n", 20_000), traces=("cut-off.json", "absent.json")), list[str]()
    (tmp_path / "cut-off.json").write_text('{"traceEvents": [')
    assert with_launch_gaps(parts, tmp_path, warnings.append) == parts
    assert len(warnings) == 2
    assert all("is no trace that can be read" in text and "make profile FORCE=1" in text for text in warnings)
