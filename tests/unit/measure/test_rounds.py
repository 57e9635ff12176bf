"""Why a case has no more rounds."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.schemas import Measurement
from harness.measure.rounds import is_wide, why_stopped

NARROW = (100.0, 100.1, 100.2)
WIDE = (100.0, 110.0, 120.0)


def settings(**changes: Any) -> Measurement:
    return Measurement(**{"rounds": 3, "max_rounds": 5, "target_interval": 0.02, **changes})


@pytest.mark.parametrize(("medians", "wide"), [(NARROW, False), (WIDE, True), ((100.0,), True), ((), True)])
def test_wide_until_the_interval_is_known_and_narrow(medians: tuple[float, ...], wide: bool) -> None:
    assert is_wide(medians, settings()) == wide


@pytest.mark.parametrize(
    ("numbers", "medians", "changes", "failed", "reason"),
    [
        ((1, 2, 3), WIDE, {"max_rounds": None}, False, "planned rounds"),
        ((1, 2, 3), WIDE, {"max_rounds": 3}, False, "planned rounds"),
        ((1, 2, 3), NARROW, {}, False, "interval reached"),
        ((1, 2, 5), WIDE, {}, False, "round limit"),
        ((1, 2, 3), WIDE, {"budget_s": 60.0}, False, "time budget"),
        ((1, 2, 3), WIDE, {"budget_s": 60.0}, True, "failed round"),
        ((1, 2, 3), WIDE, {}, False, "interrupted"),
        ((), (), {}, False, None),
    ],
)
def test_the_reason_follows_from_what_is_there(
    numbers: tuple[int, ...], medians: tuple[float, ...], changes: dict[str, Any], failed: bool, reason: str | None
) -> None:
    assert why_stopped(numbers, medians, settings(**changes), failed) == reason
