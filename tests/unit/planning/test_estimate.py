"""How long a plan says that it takes."""

from __future__ import annotations

import pytest

from harness.core.schemas import Plan
from harness.planning.schedule import estimate, further_in_words
from tests.synthetic_results import RESNET, matrix, plan_of


def plan(**measurement: object) -> Plan:
    found = plan_of((RESNET,), matrix((RESNET,)))
    return found.model_copy(update={"measurement": found.measurement.model_copy(update=measurement)})


def test_further_rounds_lengthen_the_worst_case_alone() -> None:
    (low, high), (low_more, high_more) = estimate(plan()), estimate(plan(max_rounds=6))
    assert low_more == low
    assert high < high_more < 2.1 * high


def test_the_budget_bounds_further_rounds_and_never_the_planned_ones() -> None:
    _, planned = estimate(plan())
    _, everything = estimate(plan(max_rounds=20))
    assert estimate(plan(max_rounds=20, budget_s=1.0))[1] == planned
    assert planned < estimate(plan(max_rounds=20, budget_s=planned + 60))[1] < everything
    assert estimate(plan(max_rounds=20, budget_s=1e9))[1] == everything


@pytest.mark.parametrize(
    ("measurement", "words"),
    [
        ({}, None),
        ({"max_rounds": 3}, None),
        ({"max_rounds": 9}, "up to 9 rounds while the interval is wider than ±2%"),
        (
            {"max_rounds": 9, "target_interval": 0.005, "budget_s": 600.0},
            "up to 9 rounds while the interval is wider than ±0.5% and 10 min are not over",
        ),
    ],
)
def test_further_rounds_in_words(measurement: dict[str, object], words: str | None) -> None:
    assert further_in_words(plan(**measurement).measurement) == words
