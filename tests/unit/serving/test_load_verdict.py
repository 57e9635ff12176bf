"""Early stopping, bounds and verdicts: LoadGen's table, and error rates by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta

from benchmarks.load_verdicts import verdicts
from harness.core.errors import UsageError
from harness.core.schemas import LatencyBound
from harness.serving import load_verdict
from harness.serving.load_verdict import Control, decide, parse_bound, verified_peak

P99 = LatencyBound(quantile=0.99, limit_ns=50_000_000)


@pytest.mark.parametrize(
    ("quantile", "over", "requests"),
    [
        *[(0.90, over, entry) for over, entry in ((0, 44), (1, 64), (2, 81), (5, 127), (10, 197))],
        *[(0.95, over, entry) for over, entry in ((0, 90), (1, 130))],
        (0.97, 1, 219),
        *[(0.99, over, entry) for over, entry in ((0, 459), (1, 662), (2, 838), (5, 1307), (10, 2010), (20, 3304))],
        (0.999, 1, 6636),
    ],
)
def test_early_stopping_is_loadgens_table(quantile: float, over: int, requests: int) -> None:
    assert load_verdict.least_requests(over, quantile) == requests
    assert load_verdict.most_over(requests, quantile) == over
    assert load_verdict.most_over(requests - 1, quantile) == (over - 1 if over else None)


def test_loadgens_percentile_and_upper_estimate() -> None:
    latency = np.arange(1, 101)
    assert load_verdict.loadgen_percentile(latency[::-1], 0.9) == 91
    assert load_verdict.loadgen_upper_estimate(latency, 0.9) == 98  # 3 of 100 may be over: index 97
    assert load_verdict.loadgen_upper_estimate(latency[:63], 0.9) is None


@pytest.mark.parametrize(
    ("text", "quantile", "limit_ns", "shown"),
    [
        ("p99<50ms", 0.99, 50e6, "p99<50ms"),
        (" p99.9 <= 1.5 s", 0.999, 1.5e9, "p99.9<1.5s"),
        ("p50<800us", 0.5, 8e5, "p50<800us"),
    ],
)
def test_a_bound_is_a_percentile_and_a_time(text: str, quantile: float, limit_ns: float, shown: str) -> None:
    bound = parse_bound(text)
    assert (bound.quantile, bound.limit_ns) == (pytest.approx(quantile), pytest.approx(limit_ns))
    assert bound.text == shown
    assert parse_bound(bound.text) == bound


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("p99<50", "has no unit", "p99<50ms"),
        ("p99>50ms", "is not a bound", "p99<50ms"),
        ("p99<50 weeks", "is not a bound", "p99<50ms"),
        ("p99<0ms", "No load meets", "above 0"),
        ("p0<5ms", "No load meets", "above 0"),
    ],
)
def test_a_bound_that_is_none_is_refused(text: str, problem: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_bound(text)
    assert problem in error.value.problem
    assert hint in error.value.hint


def test_failures_are_infinite() -> None:
    scheduled, done = np.array([0, 10, 20]), np.array([5, 0, 26])
    latency = load_verdict.scheduled_latencies(scheduled, done, np.array([False, True, False]))
    assert latency.tolist() == [5, math.inf, 6]


@pytest.mark.parametrize(
    ("over", "scheduled", "on_time", "verdict"),
    [
        ([2, 3, 1, 2], [2_000] * 4, True, "PASS"),
        ([40, 45, 38, 41], [2_000] * 4, True, "FAIL"),
        ([15, 22, 18, 20], [2_000] * 4, True, "UNDECIDED"),
        ([0, 0, 0], [2_000] * 3, False, "LOAD NOT REACHED"),
        ([0], [100_000], True, "UNDECIDED"),  # one run: its scatter is unknown
        ([0] * 10, [5] * 10, True, "UNDECIDED"),  # no scatter, and 50 requests show nothing about p99
        ([1] * 2, [50] * 2, True, "UNDECIDED"),
        ([100] * 3, [300] * 3, True, "FAIL"),  # a stall of 0.5 s at 200 requests a second, in each run
    ],
)
def test_verdicts(over: list[int], scheduled: list[int], on_time: bool, verdict: str) -> None:
    assert decide(over, scheduled, P99, on_time).verdict == verdict


def test_ends_of_the_share_are_one_sided_students_t() -> None:
    result = decide([2, 4, 6], [100] * 3, P99)
    half = 6.964557 * 0.02 / math.sqrt(3)  # t with 2 degrees of freedom at 99% (published tables: 6.965)
    assert result.share == pytest.approx(0.04)
    assert (result.low, result.high) == (0.0, pytest.approx(0.04 + half))


@pytest.mark.parametrize(
    ("over", "scheduled", "low", "high"),
    [
        ([0] * 10, [12] * 8 + [10] * 2, 0.0, 1 - 0.01 ** (1 / 116)),  # 0.00% [0.00%, 0.00%] was printed
        ([12] * 10, [12] * 10, 0.01 ** (1 / 120), 1.0),
        ([3] * 10, [100] * 10, beta.ppf(0.01, 30, 971), beta.ppf(0.99, 31, 970)),
    ],
)
def test_runs_with_equal_shares_have_the_interval_of_all_their_requests(
    over: list[int], scheduled: list[int], low: float, high: float
) -> None:
    result = decide(over, scheduled, P99)
    assert (result.low, result.high) == (pytest.approx(low), pytest.approx(high))


def test_the_verdict_follows_from_the_ends_that_are_shown() -> None:
    random = np.random.default_rng(5)
    seen = set()
    for rate in (0.0, 0.002, 0.006, 0.01, 0.02, 0.2):
        for size in (20, 200, 2_000):
            over = random.binomial(size, rate, 10).tolist()
            result = decide(over, [size] * 10, P99)
            assert result.low is not None
            assert result.high is not None
            assert result.low <= result.share <= result.high
            assert (result.verdict == "PASS") == (result.high <= P99.allowed)
            assert (result.verdict == "FAIL") == (result.low > P99.allowed)
            seen.add(result.verdict)
    assert seen == {"PASS", "FAIL", "UNDECIDED"}


def test_late_dispatch_is_not_the_load() -> None:
    assert load_verdict.dispatched_on_time(np.full(100, 2.4e6), 50e6)
    assert not load_verdict.dispatched_on_time(np.full(100, 2.6e6), 50e6)
    assert load_verdict.dispatched_on_time([], 50e6)


def test_the_bracket_ends_at_the_first_fail() -> None:
    assert verified_peak([(45, "PASS"), (50, "PASS"), (55, "UNDECIDED"), (60, "FAIL"), (70, "PASS")]) == (50, 60)
    assert verified_peak([(50, "UNDECIDED")]) == (None, None)


def test_error_rates_of_verdicts_by_simulation() -> None:
    """A quick version of benchmarks/load_verdicts.py, with its functions: false PASS at the bound at most 5%, PASS at
    0.90 of it at least 85%; with replay as control also at 0.95 with 30 replications."""
    peak = 55.0  # its true_peak
    at_the_bound, below = verdicts(2, peak, 10, 60), verdicts(3, 0.90 * peak, 10, 60)
    assert at_the_bound["PASS"] / 60 <= 0.05
    assert below["PASS"] / 60 >= 0.85
    assert at_the_bound["FAIL"] / 60 <= 0.05
    assert verdicts(4, 1.10 * peak, 30, 4) == {"FAIL": 4}
    assert verdicts(2, peak, 10, 40, controlled=True)["PASS"] / 40 <= 0.05
    assert verdicts(2, 0.95 * peak, 30, 20, controlled=True)["PASS"] / 20 >= 0.85


def test_a_control_takes_out_the_luck_of_the_schedules() -> None:
    """Shares that are twice those of replay, whose schedules were harder than on average: exact, without scatter."""
    shares = (0.004, 0.006, 0.008, 0.010, 0.012)
    over = [round(2 * share * 10_000) for share in shares]
    result = decide(over, [10_000] * 5, P99, control=Control(shares, expected=0.003, error=0.0))
    assert result.explained == pytest.approx(1)
    assert result.share == pytest.approx(0.006)  # 2 x 0.003, where the plain mean is 0.016
    assert result.high == pytest.approx(beta.ppf(0.99, 301, 50_000 - 300))  # no scatter: that of 300 in 50,000
    assert result.verdict == "PASS"
    assert decide(over, [10_000] * 5, P99).verdict == "UNDECIDED"
    unsure = decide(over, [10_000] * 5, P99, control=Control(shares, expected=0.003, error=0.001))
    assert unsure.high == pytest.approx(0.006 + 4.540703 * 2 * 0.001)  # t with 3 degrees of freedom at 99%
    # Replay that says nothing changes nothing, and too few replications have no slope.
    assert decide(over, [10_000] * 5, P99, control=Control((0.0,) * 5, 0.0, 0.0)) == decide(over, [10_000] * 5, P99)
    assert decide(over[:4], [10_000] * 4, P99, control=Control(shares[:4], 0.003, 0.0)).explained is None
