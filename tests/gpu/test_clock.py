"""The event clock on a real card, through the stages: kernels of known duration, and a backend that does nothing.

`BACKEND_PYTHONS=spin=/path/to/python python -m pytest tests/gpu/test_clock.py -rs -s` measures in another interpreter.
"""

from __future__ import annotations

import sys

import pytest

from harness.core.schemas import Measured, Row, Summary
from harness.zoo.families.known_duration import duration_ns
from tests.gpu.conftest import Gpu

DURATIONS = ("spin:50us", "spin:1ms", "spin:20ms")
MODES = ["sync", "pipelined", "offline"]
LAUNCH_NS = 2_500
"""What starting and ending one kernel takes the card itself: 1.5 to 2.5 µs a dependent kernel, an estimate."""


@pytest.fixture
def spun(gpu: Gpu) -> Summary:
    measurement = {"rounds": 3, "warmup_min_s": 0.1, "max_s": 1.0, "min_samples": 50}
    return gpu.bench({"backends": ["spin"], "modes": MODES}, models=DURATIONS, **measurement)


def measured(summary: Summary, rows: int) -> list[Row]:
    assert [(row.case_id, row.reason) for row in summary.rows if row.status != "measured"] == []
    assert len(summary.rows) == rows
    return list(summary.rows)


def test_known_durations_are_measured_and_never_above_the_hosts(
    spun: Summary, gpu: Gpu, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    for row in measured(spun, len(DURATIONS) * len(MODES)):
        assert row.device_ns is not None
        assert row.latency_ns is not None
        clock = row.device_ns.clock
        nominal = duration_ns(row.model)
        allowed = 0.01 * nominal + 2 * clock.overhead_ns
        # Alone on an idle card, the first event is passed at once and the kernel arrives when it was submitted.
        arrival = row.device_ns.enqueue if row.mode == "sync" else 0.0
        error = row.device_ns.device - nominal
        with capsys.disabled():
            sys.stdout.write(
                f"\n{row.model} {row.mode}: device {error:+,.0f} ns ({error / nominal:+.2%}), host "
                f"{row.latency_ns.median - nominal:+,.0f} ns, enqueue {row.device_ns.enqueue:,.0f} ns, event clock "
                f"{clock.overhead_ns} ns"
            )
        if not -allowed <= error <= allowed + LAUNCH_NS + arrival:
            wrong.append((row.case_id, error))
    assert wrong == []
    for record in gpu.records().values():
        assert isinstance(record, Measured)
        assert record.device is not None
        assert record.placement.device == "cuda"
        for device, host in zip(record.device.device_ns, record.latency_ns, strict=True):
            assert device <= host + record.device.clock.resolution_ns
        if not record.latency_ns:
            assert all(b.device_ns is not None and b.device_ns <= 1.001 * b.wall_ns for b in record.blocks)


def test_the_harness_overhead(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = measured(gpu.bench({"backends": ["noop"]}, models=("spin:1ms",), rounds=3, min_samples=500, max_s=1.0), 1)
    assert row.device_ns is not None
    assert row.latency_ns is not None
    assert 0 < row.device_ns.device <= row.latency_ns.median
    assert [flag.name for flag in row.flags] == ["CALIBRATION"]
    with capsys.disabled():
        sys.stdout.write(
            f"\nnoop: host {row.latency_ns.median:,.0f} ns, device {row.device_ns.device:,.0f} ns, enqueue "
            f"{row.device_ns.enqueue:,.0f} ns"
        )
