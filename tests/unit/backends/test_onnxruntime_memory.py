"""The most that a pass of ONNX Runtime holds, from the memory figures of its profile."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("onnxruntime")

from harness.backends.base import BackendJob
from harness.backends.onnxruntime.profile_cpu import ProfiledRun, peak_beyond_start, peak_bytes
from harness.core.errors import UnavailableError


def run(*in_use: int, change: int) -> ProfiledRun:
    """A run whose nodes leave that much in use; change: of the first node."""
    nodes: list[Any] = [
        {"args": {"mem_bytes_requested_in_use": str(size), "mem_requested_in_use_delta": str(change if at == 0 else 0)}}
        for at, size in enumerate(in_use)
    ]
    return ProfiledRun(1, nodes)


def test_the_peak_is_that_of_the_last_run_less_the_memory_before_the_first() -> None:
    assert peak_beyond_start([run(1_100, 1_700, 1_400, change=100)]) == 700
    # The second run lies in one block, taken before its first node.
    assert peak_beyond_start([run(1_100, 1_700, 1_400, change=100), run(1_720, 1_720, change=0)]) == 720
    # What a first node frees was there before.
    assert peak_beyond_start([run(900, 1_200, change=-100)]) == 200


def test_an_unknown_peak_is_an_error_and_no_zero() -> None:
    with pytest.raises(UnavailableError, match="reports no memory"):
        peak_beyond_start([ProfiledRun(1, [{"args": {"op_name": "MatMul"}}])])


def test_a_gpu_is_refused() -> None:
    from tests.unit.backends.test_onnxruntime_cuda import case

    job = BackendJob(case("compute", "fp16"), None, None, (), 1, None)  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match="on a CPU only"):
        peak_bytes(job)


def test_the_worker_says_why_nothing_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.processes import profile_worker

    def refuse(_: BackendJob) -> tuple[int, str]:
        raise UnavailableError("unknown", "Nothing to do.")

    given = BackendJob(None, None, None, (), 1, None)  # type: ignore[arg-type]
    monkeypatch.setattr(profile_worker, "import_target", lambda _: refuse)
    assert profile_worker.measure_peak_memory("a:b", given) == (None, "not measured: unknown")
    monkeypatch.setattr(profile_worker, "import_target", lambda _: lambda _: (7, "counted"))
    assert profile_worker.measure_peak_memory("a:b", given) == (7, "counted")
