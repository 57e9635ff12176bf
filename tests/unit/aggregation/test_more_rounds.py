"""Why a case has no more rounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from harness.aggregation.more_rounds import half_width, is_wide, rounds_for, why_stopped
from harness.core.schemas import Measurement

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
def test_the_reason_follows_from_the_records(
    numbers: tuple[int, ...], medians: tuple[float, ...], changes: dict[str, Any], failed: bool, reason: str | None
) -> None:
    assert why_stopped(numbers, medians, settings(**changes), failed) == reason


def test_one_process_has_no_interval_and_so_no_width() -> None:
    assert half_width((100.0,)) == half_width(()) == math.inf


@pytest.mark.parametrize(("medians", "rounds"), [((), 3), ((100.0,), 3), (NARROW, 4), (WIDE, 32)])
def test_rounds_that_a_row_is_likely_to_need(medians: tuple[float, ...], rounds: int) -> None:
    assert rounds_for(medians, 0.05) == rounds


@pytest.mark.parametrize("count", [4, 5, 8, 12, 20])
def test_the_guess_of_rounds_is_that_of_the_intervals_themselves(count: int) -> None:
    """Half of the rows with so many rounds are as narrow as the guess says."""
    generator, scatter = np.random.default_rng(7), 0.02
    widths = [half_width(np.exp(generator.normal(0, scatter, count)).tolist()) for _ in range(600)]
    exact = tuple(math.exp(scatter * sign / math.sqrt(2)) for sign in (1, -1))  # two of that standard deviation
    expected = rounds_for(exact, float(np.median(widths)))
    assert abs(expected / count - 1) < 0.35
