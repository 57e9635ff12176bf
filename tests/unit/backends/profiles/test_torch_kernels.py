"""Kernels find the module that launched them, in a trace with torch.profiler's fields."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from harness.backends.profile_timing import ROOT
from harness.backends.torch.profile_operators import kernels_by_module, with_kernels
from harness.core.schemas.profile_record import LayerRow


def module(path: str, start: float, length: float, thread: int = 1) -> dict[str, Any]:
    return {"cat": "user_annotation", "name": f"module:{path}", "ts": start, "dur": length, "tid": thread}


def launched(
    correlation: int, at: float, kernel_us: float, kind: str = "kernel", thread: int = 1
) -> list[dict[str, Any]]:
    about = {"correlation": correlation}
    return [
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "dur": 0.5, "tid": thread, "args": about},
        {"cat": kind, "name": "some_kernel", "ts": at + 900, "dur": kernel_us, "tid": 13, "args": about},
    ]


TRACE = [
    {"ph": "M", "name": "process_name", "args": {}},
    module(ROOT, 0, 100),
    module("encoder", 10, 50),
    module("encoder.linear", 20, 10),
    *launched(1, 5, 2.0),
    *launched(2, 12, 3.0),
    *launched(3, 21, 7.0),
    *launched(4, 29.6, 1.0, kind="gpu_memcpy"),
    *launched(5, 30, 4.0),
    *launched(6, 70, 0.25),
    *launched(7, 200, 0.5),
    *launched(8, 21, 11.0, thread=2),
    {"cat": "gpu_user_annotation", "name": "module:encoder", "ts": 900, "dur": 500.0, "tid": 13, "args": {}},
    {"cat": "cuda_runtime", "name": "cudaStreamSynchronize", "ts": 80, "dur": 9, "tid": 1, "args": {"correlation": 9}},
]


def test_a_kernel_counts_for_the_innermost_module_that_was_open_in_its_thread() -> None:
    assert kernels_by_module(TRACE) == {
        ROOT: pytest.approx(2000 + 250 + 500 + 11000),
        "encoder": pytest.approx(3000 + 4000),
        "encoder.linear": pytest.approx(7000 + 1000),
    }


def test_nothing_on_the_device_is_lost_or_counted_twice() -> None:
    device = sum(event["dur"] for event in TRACE if event.get("cat") in ("kernel", "gpu_memcpy"))
    assert sum(kernels_by_module(TRACE).values()) == pytest.approx(device * 1e3)


def test_rows_get_means_of_a_run_that_add_up_and_keep_the_streams_time() -> None:
    names = (ROOT, "encoder", "encoder.linear", "encoder.linear_two")
    rows = with_kernels([LayerRow(name=name, kind="Linear", self_ns=9, total_ns=9) for name in names], TRACE, 2)
    assert [row.self_ns for row in rows] == [6875, 3500, 4000, 0]
    assert [row.total_ns for row in rows] == [6875 + 3500 + 4000, 3500 + 4000, 4000, 0]
    assert {row.stream_ns for row in rows} == {9}
