"""Two states that were measured in turn: the verdicts, and how often they are wrong."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.paired_alarms import KINDS, changes, simulate, verdicts
from harness.comparison.paired import ENOUGH_ROUNDS, paired_change
from harness.comparison.verdicts import RULES, judge
from harness.statistics import estimators
from harness.statistics.significance import correlated_t_p


def test_a_slow_round_of_both_states_cancels() -> None:
    baseline = [10.0, 20.0, 11.0, 35.0, 10.5, 60.0]
    current = [value * factor for value, factor in zip(baseline, (1.05, 1.051, 1.049, 1.05, 1.052, 1.048), strict=True)]
    result = paired_change(baseline, current)
    assert result is not None
    assert result.value == pytest.approx(1.05, abs=1e-3)
    assert judge([result], 0.01, RULES["paired"])[0].verdict == "SLOWER"
    # Two separate runs could not distinguish it from their own scatter.
    assert estimators.median_interval(baseline).high > estimators.median(current)  # type: ignore[union-attr]


def test_fewer_rounds_give_no_verdict() -> None:
    baseline = [10.0 + 0.01 * number for number in range(ENOUGH_ROUNDS - 1)]
    result = paired_change(baseline, [1.3 * value + 0.001 * number for number, value in enumerate(baseline)])
    assert result is not None
    (judged,) = judge([result], 0.01, RULES["paired"])
    assert judged.verdict == "AMBIGUOUS"
    assert "make ab ROUNDS=10" in (judged.doubt or "")


def test_no_ratio_where_the_spread_is_unknown() -> None:
    assert paired_change([1.0], [2.0]) is None
    assert paired_change([1.0, 0.0], [1.0, 2.0]) is None
    assert paired_change([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]) is None


def test_the_other_way_round_it_is_the_inverse() -> None:
    rng = np.random.default_rng(3)
    first, other = (np.exp(rng.normal(0, 0.05, 7)).tolist() for _ in range(2))
    there, back = paired_change(first, other), paired_change(other, first)
    assert there is not None
    assert back is not None
    assert there.value * back.value == pytest.approx(1)
    assert (there.t_p, there.rank_p) == (pytest.approx(back.t_p), pytest.approx(back.rank_p))
    assert there.ci95.low * back.ci95.high == pytest.approx(1)


# --- how often it is wrong: a part of benchmarks/paired_alarms.py, whose tables docs/speed.md has ---------------------

TABLES = 200
BOUND = 0.09
"""Of TABLES tables that alarm in 5%, more than this share does in 1 of 200 (binomial); the seeds are fixed."""


@pytest.mark.parametrize("kind", ["rounds correlate by 0.5", "turns, rounds correlating by 0.5", "normal, 1%"])
def test_no_more_than_one_table_in_twenty_raises_a_false_alarm_also_where_rounds_correlate(kind: str) -> None:
    alarms, _, _ = simulate(KINDS[kind], TABLES, rows=10, rounds=10, seed=1)
    assert alarms <= BOUND


@pytest.mark.parametrize("kind", ["the second of a pair is 1% slower", "drift of 10% over the run"])
def test_the_drawn_order_cancels_the_cost_of_a_place_in_the_run(kind: str) -> None:
    alarms, _, _ = simulate(KINDS[kind], TABLES, rows=10, rounds=6, seed=2)
    assert alarms <= BOUND


def test_a_5_percent_slow_down_behind_slow_rounds_is_detected() -> None:
    _, hits, _ = simulate(KINDS["whole rounds, correlating by 0.5"], 50, rows=3, rounds=10, seed=3)
    assert hits >= 0.9


def test_the_t_test_without_its_allowance_would_cry_wolf() -> None:
    """So that the simulation can fail: the plain paired test on rounds that correlate."""
    rng = np.random.default_rng(4)
    alarms = 0
    for _ in range(TABLES):
        baseline, current = KINDS["rounds correlate by 0.5"](rng, 10, 10)
        plain = [correlated_t_p((after - before).tolist(), 0) for before, after in zip(baseline, current, strict=True)]
        alarms += min(p for p in plain if p is not None) * len(plain) < 0.05
    assert alarms / TABLES > 2 * BOUND
    assert verdicts(changes(baseline, current))  # the same tables, judged
