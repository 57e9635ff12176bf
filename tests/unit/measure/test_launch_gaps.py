"""Gaps between kernels, from the events of a trace as torch.profiler writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.layout import Results
from harness.core.schemas.profile_parts import OperatorRow, PartsProfile
from harness.measure.launch_gaps import launch_gaps_of
from harness.measure.profiled import Profiled
from harness.measure.traced import traced_gaps
from tests.synthetic_results import RESNET, case_of
from tests.unit.measure.test_profile_model_achieved import profile
from tests.unit.measure.test_roofline import BASE

Event = dict[str, Any]


def event(category: str, start_us: float, duration_us: float, correlation: int | None = None) -> Event:
    args = {} if correlation is None else {"correlation": correlation}
    return {"ph": "X", "cat": category, "name": "n", "ts": start_us, "dur": duration_us, "pid": 0, "args": args}


def test_overlapping_work_counts_once_and_copies_count_as_work() -> None:
    found = launch_gaps_of(
        [event("kernel", 100, 10), event("kernel", 105, 10), event("gpu_memcpy", 120, 5), event("gpu_memset", 140, 10)]
    )
    assert found is not None
    assert (found.window_ns, found.busy_ns, found.work_ns) == (50_000, 30_000, 35_000)
    assert found.idle == pytest.approx(0.4)


def test_work_inside_longer_work_on_another_stream_is_no_gap() -> None:
    found = launch_gaps_of([event("kernel", 0, 100), event("kernel", 10, 5), event("kernel", 100, 20)])
    assert found is not None
    assert found.idle == 0


def test_what_was_launched_in_time_is_no_waiting_for_the_host() -> None:
    found = launch_gaps_of(
        [
            *(event("cuda_runtime", 0, 5, 1), event("kernel", 10, 10, 1)),
            *(event("cuda_runtime", 6, 2, 2), event("kernel", 25, 5, 2)),  # launched before the gap of 5 began
            *(event("cuda_driver", 31, 7, 3), event("kernel", 40, 10, 3)),  # 8 of the gap's 10 until it was launched
        ]
    )
    assert found is not None
    assert (found.window_ns, found.busy_ns, found.waited_ns) == (40_000, 25_000, 8_000)
    assert found.waited == pytest.approx(0.2)


def test_a_kernel_that_starts_before_its_launch_returns_waited_until_it_started() -> None:
    found = launch_gaps_of(
        [
            *(event("cuda_runtime", 0, 1, 1), event("kernel", 0, 10, 1)),
            *(event("cuda_runtime", 12, 20, 2), event("kernel", 16, 4, 2)),
        ]
    )
    assert found is not None
    assert found.waited_ns == 6_000


def test_without_launches_nobody_tells_for_whom_it_waited() -> None:
    found = launch_gaps_of([event("kernel", 0, 10, 7), event("kernel", 20, 10, 8)])
    assert found is not None
    assert found.idle == pytest.approx(1 / 3)
    assert found.waited is None


def test_a_trace_of_a_cpu_has_no_gaps() -> None:
    assert launch_gaps_of([event("cpu_op", 0, 10), {"ph": "M", "name": "process_name", "args": {"name": "x"}}]) is None
    assert launch_gaps_of([]) is None


def test_work_that_took_no_time_tells_no_gaps() -> None:
    assert launch_gaps_of([event("kernel", 0, 0), event("kernel", 20, 0)]) is None
    assert launch_gaps_of([event("kernel", 0, 0)]) is None


def test_the_idle_share_of_a_plain_inference_leaves_out_what_the_profiler_adds() -> None:
    region = {**event("gpu_user_annotation", 0, 100), "name": "region"}
    found = launch_gaps_of([event("kernel", 0, 10), event("kernel", 5, 10), event("kernel", 85, 15), region])
    assert found is not None
    assert found.idle == pytest.approx(0.7)
    # 35 µs of work are 30 µs of a busy GPU; of a latency of 40 µs that leaves a quarter. A region is no work.
    told = [operator("n", 35_000), operator("region", 90_000)]
    assert found.idle_of(40_000, told) == pytest.approx(0.25)
    assert found.idle_of(20_000, told) == 0


def operator(name: str, device_ns: int) -> OperatorRow:
    return OperatorRow(name=name, shapes="", calls=1, self_cpu_ns=0, self_device_ns=device_ns)


def profiled(device: str, traces: tuple[str, ...]) -> Profiled:
    found = profile(case_of(RESNET, "torch-eager", "fp32", 1), BASE)
    kernel = operator("gemm", 10_000)
    parts = PartsProfile(layers=(), operators=(kernel,), traces=traces, window_ns=40_000, plain_ns=20_000)
    return Profiled(BASE.model_copy(update={"device": device}), found, parts)


def test_gaps_are_read_from_the_trace_that_has_kernels(tmp_path: Path) -> None:
    one, results = profiled("cuda", ("modules.trace.json", "operators.pt.trace.json")), Results(tmp_path)
    folder = results.profile(one.row.case_id)
    folder.mkdir(parents=True)
    (folder / "modules.trace.json").write_text(json.dumps({"traceEvents": [event("module", 0, 100)]}))
    events = [event("kernel", 0, 10), event("kernel", 30, 10)]
    (folder / "operators.pt.trace.json").write_text(json.dumps({"traceEvents": events, "schemaVersion": 1}))
    warnings: list[str] = []
    assert traced_gaps([one], results, warnings.append)[one.row.case_id].idle == pytest.approx(0.5)
    assert traced_gaps([profiled("cpu", one.parts.traces if one.parts else ())], results, warnings.append) == {}
    assert warnings == []


def test_a_trace_that_cannot_be_read_is_told_with_what_to_type(tmp_path: Path) -> None:
    one, results, warnings = profiled("cuda", ("cut-off.json", "absent.json")), Results(tmp_path), list[str]()
    folder = results.profile(one.row.case_id)
    folder.mkdir(parents=True)
    (folder / "cut-off.json").write_text('{"traceEvents": [')
    assert traced_gaps([one], results, warnings.append) == {}
    assert len(warnings) == 2
    assert all("is no trace that can be read" in text and "make profile FORCE=1" in text for text in warnings)
