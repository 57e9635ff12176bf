"""The rule by which a published figure counts as reproduced, on cases made by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.comparison.claim_verdicts import (
    RATIO_TOLERANCE,
    VALUE_TOLERANCE,
    band,
    judge,
    judge_measured,
    judge_order,
)
from harness.core.schemas import Interval


def interval(low: float, high: float) -> Interval:
    return Interval(low=low, high=high)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        ((0.99, 1.01), "REPRODUCED"),
        ((1.05, 1.10), "REPRODUCED"),  # the ends touch: both belong
        ((0.90, 0.95), "REPRODUCED"),
        ((1.0501, 1.10), "NOT REPRODUCED"),
        ((0.90, 0.9499), "NOT REPRODUCED"),
        ((0.5, 0.6), "NOT REPRODUCED"),
        ((0.5, 2.0), "NOT COMPARABLE"),  # fits anything
        ((1.5, 9.0), "NOT REPRODUCED"),  # as wide, and clear all the same
    ],
)
def test_a_value_within_five_per_cent(measured: tuple[float, float], verdict: str) -> None:
    assert judge(interval(*measured), band(1.0, VALUE_TOLERANCE)).verdict == verdict


def test_a_band_of_the_same_width_decides() -> None:
    assert judge(interval(0.95, 1.05), interval(0.95, 1.05)).verdict == "REPRODUCED"
    assert judge(interval(0.95, 1.0501), interval(0.95, 1.05)).verdict == "NOT COMPARABLE"


@pytest.mark.parametrize(
    ("measured", "published", "verdict"),
    [
        # Two H200, the same code: 8.27 ms [8.18, 8.32] and 8.21 ms [8.14, 8.29]; the second is wider by a hair.
        ((8.14, 8.29), (8.18, 8.32), "REPRODUCED"),
        ((7.90, 8.60), (8.18, 8.32), "REPRODUCED"),  # ±4%
        ((7.70, 8.70), (8.18, 8.32), "NOT COMPARABLE"),  # ±6%
        ((8.33, 8.40), (8.18, 8.32), "NOT REPRODUCED"),  # 1% apart, and both know better
        ((5.0, 14.0), (4.0, 16.0), "REPRODUCED"),  # as vague as what was published
        ((3.0, 20.0), (4.0, 16.0), "NOT COMPARABLE"),
    ],
)
def test_a_published_interval_asks_for_five_per_cent_or_for_its_own_width(
    measured: tuple[float, float], published: tuple[float, float], verdict: str
) -> None:
    centre = (published[0] * published[1]) ** 0.5
    assert judge_measured(interval(*measured), centre, interval(*published)).verdict == verdict


def test_one_round_decides_nothing() -> None:
    judged = judge(None, band(1.0, VALUE_TOLERANCE))
    assert judged.verdict == "NOT COMPARABLE"
    assert "ROUNDS=" in str(judged.reason)


def test_the_tolerance_of_a_ratio_is_that_of_its_two_values_together() -> None:
    apart = (1 + VALUE_TOLERANCE) / (1 - VALUE_TOLERANCE) - 1
    assert pytest.approx(apart, abs=0.006) == RATIO_TOLERANCE


@given(st.floats(0.01, 1e5), st.floats(0.01, 0.09), st.floats(0.0, 0.09))
def test_a_value_measured_exactly_is_reproduced(published: float, tolerance: float, half: float) -> None:
    half = min(half, tolerance)
    assert judge(band(published, half), band(published, tolerance)).verdict == "REPRODUCED"


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(1.0, 1.5), st.floats(1.0, 1.5))
def test_turning_both_over_changes_no_verdict(one: float, other: float, first: float, second: float) -> None:
    measured, published = interval(one / first, one * first), interval(other / second, other * second)
    turned = [interval(1 / entry.high, 1 / entry.low) for entry in (measured, published)]
    verdicts = {judge(measured, published).verdict, judge(*turned).verdict}
    ends = (measured.high / published.low, published.high / measured.low, first / second)
    assert len(verdicts) == 1 or any(end == pytest.approx(1) for end in ends)


CLEAR, TURNED, EVEN, VAGUE = (1.2, 1.3), (0.7, 0.8), (0.98, 1.03), (0.5, 2.0)


@pytest.mark.parametrize(
    ("steps", "verdict", "said"),
    [
        ([CLEAR, CLEAR], "REPRODUCED", None),
        ([CLEAR, TURNED], "NOT REPRODUCED", "the other way round: b"),
        ([EVEN, CLEAR], "NOT REPRODUCED", "not significantly different: a"),
        ([CLEAR, VAGUE], "NOT COMPARABLE", "too uncertain to compare: b"),
        ([VAGUE, TURNED], "NOT REPRODUCED", "the other way round: b"),
        ([(1.0, 1.2), CLEAR], "NOT REPRODUCED", "not significantly different: a"),  # 1 is no step
        ([CLEAR, None], "NOT COMPARABLE", "one round"),
    ],
)
def test_an_order_is_judged_step_by_step(
    steps: list[tuple[float, float] | None], verdict: str, said: str | None
) -> None:
    named = [(name, step and interval(*step)) for name, step in zip("ab", steps, strict=True)]
    judged = judge_order(named)
    assert judged.verdict == verdict
    assert judged.reason is None if said is None else said in str(judged.reason)
