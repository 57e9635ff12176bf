"""Fixed shares from neighbouring batch sizes, by the device's clock."""

from __future__ import annotations

from typing import Any

import pytest

from harness.aggregation.roofline import fixed_shares
from harness.core.schemas import Clock, DeviceTimes, Row
from tests.synthetic_results import RESNET, Synthetic, case_of, voided

BASE = Synthetic(models=(RESNET,), cases=[case_of(RESNET, "torch-eager", "fp32", 1)]).summary().rows[0]


def row(batch: int, device: float, **changes: Any) -> Row:
    clock = Clock(name="events", resolution_ns=500.0, overhead_ns=1_500)
    parts = {name: changes.pop(name) for name in ("h2d", "compute", "d2h") if name in changes}
    times = DeviceTimes(clock=clock, device=device, device_ci95=None, enqueue=1.0, **parts)
    given = {"case_id": f"b{batch}", "batch_size": batch, "device_ns": times}
    return voided(BASE.model_copy(update={**given, **changes}))


def test_each_row_by_the_next_larger_batch_and_the_largest_by_the_one_before() -> None:
    # 600 + 100 a picture; at batch 16 each picture from the ninth on takes 200.
    results = fixed_shares([row(8, 1_400), row(1, 700), row(16, 3_000)])
    assert results == pytest.approx({"b1": 600 / 700, "b8": 1 - 8 * 200 / 1_400, "b16": 1 - 16 * 200 / 3_000})


def test_a_larger_batch_that_takes_less_is_all_fixed() -> None:
    assert fixed_shares([row(1, 600), row(8, 400)])["b1"] > 1


def test_copies_are_left_out() -> None:
    results = fixed_shares([row(1, 1_000, compute=500.0), row(2, 2_000, compute=500.0)])
    assert results == {"b1": 1, "b2": 1}


@pytest.mark.parametrize("change", [{"grade": "F"}, {"setting": "graph"}, {"device_ns": None}, {"mode": "offline"}])
def test_rows_that_are_no_neighbours(change: dict[str, Any]) -> None:
    assert fixed_shares([row(1, 600), row(8, 900, **change)]) == {}
