"""Readings of the monitor, as a test makes them up."""

from __future__ import annotations

from typing import Any

from harness.aggregation import usage as utilisation
from harness.core.schemas import (
    GpuSample,
    UsageSummary,
)
from tests.synthetic_results import EFFICIENTNET, case_of, usage_of, usage_sample


def look(**changes: Any) -> GpuSample:
    usual = {
        "sm_mhz": 1_980,
        "memory_mhz": 2_619,
        "temperature_c": 50,
        "power_w": 300.0,
        "utilisation_percent": 90,
        "memory_used_bytes": 3 << 30,
        "reasons": (),
        "other_processes": 0,
    }
    return GpuSample(**{**usual, **changes})


CASE = case_of(EFFICIENTNET, "onnxruntime", "fp32", 1)


def usage(**changes: Any) -> UsageSummary:
    """Two seconds of a round, all samples alike but for the changes."""
    result = utilisation.timed_usage(
        usage_of(CASE.case_id, 1, [usage_sample(at * 250_000_000, **changes) for at in range(1, 9)])
    )
    assert result is not None
    return result
