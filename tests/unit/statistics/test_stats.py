"""Estimators against published values, brute force and simulation."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import ArrayLike
from scipy import stats as scipy_stats

from harness.core.schemas import Block, Interval
from harness.statistics import estimators

positive = st.floats(1.0, 1e9)
samples = arrays.arrays(np.float64, st.integers(1, 300), elements=positive)


@pytest.mark.parametrize(
    ("quantile", "least"),
    [(0.90, estimators.P90_MIN_SAMPLES), (0.95, estimators.P95_MIN_SAMPLES), (0.99, estimators.P99_MIN_SAMPLES)],
)
def test_constants_follow_from_loadgens_rule(quantile: float, least: int) -> None:
    # The chance that at most one of n lies above, for n and for one less.
    assert scipy_stats.binom.cdf(1, least, 1 - quantile) < 0.01 <= scipy_stats.binom.cdf(1, least - 1, 1 - quantile)


def test_loadgens_own_constants() -> None:
    assert (estimators.P90_MIN_SAMPLES, estimators.P99_MIN_SAMPLES) == (64, 662)


@given(samples, st.floats(0, 1))
def test_percentile_is_numpys_median_unbiased(values: np.ndarray, quantile: float) -> None:
    expected = np.quantile(values, quantile, method="median_unbiased")
    assert estimators.percentile(values, quantile) == pytest.approx(expected, rel=1e-9)


@given(samples)
def test_percentiles_rise_and_stay_within_the_samples(values: np.ndarray) -> None:
    results = [estimators.percentile(values, quantile) for quantile in (0, 0.25, 0.5, 0.9, 0.99, 1)]
    assert results == sorted(results)
    assert values.min() <= results[0]
    assert results[-1] <= values.max()


@given(samples)
def test_median_is_numpys(values: np.ndarray) -> None:
    assert estimators.median(values) == pytest.approx(np.median(values), rel=1e-12)
    assert estimators.percentile(values, 0.5) == pytest.approx(estimators.median(values), rel=1e-9)


def lag1(samples: ArrayLike) -> float | None:
    """The autocorrelation of one process alone."""
    return estimators.process_figures([samples])[0].lag1_autocorrelation


@given(st.lists(st.lists(st.integers(0, 10**12), min_size=1, max_size=60), min_size=1, max_size=4), st.booleans())
def test_all_figures_of_a_process_are_those_of_each_estimator(processes: list[list[int]], alike: bool) -> None:
    if alike:  # as many samples in each: then they are computed together
        processes = [processes[0][at:] + processes[0][:at] for at in range(len(processes))]
    for process_figure, values in zip(estimators.process_figures(processes), processes, strict=True):
        assert (process_figure.size, process_figure.largest) == (len(values), max(values))
        assert process_figure.percentiles == {
            quantile: estimators.percentile(values, quantile) for quantile in (0.90, 0.95, 0.99)
        }
        assert process_figure.median == estimators.median(values)
        assert process_figure.mean == np.mean(values)
        assert process_figure.iqr == estimators.percentile(values, 0.75) - estimators.percentile(values, 0.25)
        assert process_figure.lag1_autocorrelation == lag1(values)
        known = len(values) > 1 and process_figure.mean > 0
        expected = pytest.approx(np.std(values, ddof=1) / np.mean(values), rel=1e-12) if known else None
        assert process_figure.variation == expected


@pytest.mark.parametrize(
    ("samples", "quantile", "expected"),
    [([1, math.inf, math.inf, math.inf], 0.5, math.inf), ([1, 2, math.inf], 0.5, 2), ([1, 2, 3, math.inf], 0.5, 2.5)],
)
def test_infinite_samples_give_a_percentile_and_never_nan(
    samples: list[float], quantile: float, expected: float
) -> None:
    assert estimators.percentile(samples, quantile) == expected


@pytest.mark.parametrize(("count", "known"), [(63, 0), (64, 1), (129, 1), (130, 2), (661, 2), (662, 3)])
def test_percentiles_are_withheld_below_their_minimum(count: int, known: int) -> None:
    results = [estimators.process_percentiles([np.arange(1, count + 1)], quantile) for quantile in (0.90, 0.95, 0.99)]
    assert [value is not None for value in results] == [place < known for place in range(3)]


def test_the_median_is_never_withheld() -> None:
    assert estimators.process_percentiles([[7]], 0.5) == (7,)


def test_a_process_that_saw_too_little_of_its_tail_withholds_a_percentile() -> None:
    rng = np.random.default_rng(1)
    enough, few = (rng.normal(100, 1, size) for size in (300, 220))
    assert estimators.least_in_process(0.99) == 221
    assert estimators.process_percentiles([enough] * 3, 0.99) is not None
    assert estimators.process_percentiles([enough, enough, few], 0.99) is None
    assert estimators.process_percentiles([enough, enough, few], 0.95) is not None


@given(st.lists(samples, min_size=1, max_size=5))
def test_percentiles_over_processes_rise_and_never_lie_below_the_headline(processes: list[np.ndarray]) -> None:
    results = [estimators.process_percentiles(processes, quantile) for quantile in (0.90, 0.95, 0.99)]
    known = [estimators.median([estimators.median(values) for values in processes])]
    known += [estimators.median(values) for values in results if values is not None]
    known += [max(values.max() for values in processes)]
    assert known == sorted(known)


def test_a_percentile_counts_each_process_once_however_many_samples_it_has() -> None:
    fast, slow = np.full(10_000, 10.0), np.full(300, 12.0)
    assert estimators.process_percentiles([fast, slow, slow], 0.90) == (10, 12, 12)


def test_half_width_against_scipys_interval() -> None:
    medians = [100.0, 103.0, 99.0, 101.0, 104.0]
    low, high = scipy_stats.t.interval(0.95, 4, np.mean(medians), scipy_stats.sem(medians))
    assert estimators.relative_half_width(medians) == pytest.approx((high - low) / 2 / 101.0)


@pytest.mark.parametrize("medians", [[], [1.0], [1.0, 1.0], [0.0, 0.0, 0.0]])
def test_no_half_width_where_it_would_mean_nothing(medians: list[float]) -> None:
    assert estimators.relative_half_width(medians) is None


@given(st.lists(positive, min_size=3, max_size=50), st.floats(0.01, 1000))
def test_half_width_does_not_depend_on_the_unit(medians: list[float], factor: float) -> None:
    scaled = estimators.relative_half_width([value * factor for value in medians])
    assert scaled == pytest.approx(estimators.relative_half_width(medians), rel=1e-6, abs=1e-9)


def test_block_medians_follow_the_blocks() -> None:
    blocks = [Block(iterations=3, wall_ns=6), Block(iterations=2, wall_ns=9)]
    assert estimators.block_medians([1, 2, 3, 10, 20, 999], blocks) == [2, 15]


def test_block_medians_of_fewer_samples_than_blocks_say() -> None:
    assert estimators.block_medians([5], [Block(iterations=1, wall_ns=5), Block(iterations=4, wall_ns=9)]) == [5]


def test_autocorrelation_of_known_series() -> None:
    assert lag1([1, -1] * 500) == pytest.approx(-1, abs=0.01)
    assert lag1(np.arange(1000)) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_autocorrelation_of_a_simulated_series(rho: float) -> None:
    assert lag1(ar1(np.random.default_rng(7), rho, 20_000)) == pytest.approx(rho, abs=0.03)


@pytest.mark.parametrize("values", [[1, 2], [0.1] * 100, [1e9 + 0.1] * 7])
def test_no_autocorrelation_where_nothing_varies(values: list[float]) -> None:
    assert lag1(values) is None


@pytest.mark.parametrize("values", [[], [3.0], [1.0, 0.0]])
def test_no_interval_over_processes(values: list[float]) -> None:
    assert estimators.log_t_interval(values) is None


def test_interval_too_wide_for_a_float_is_none() -> None:
    assert estimators.log_t_interval([1e-100, 1e100]) is None


def test_interval_against_scipys() -> None:
    values = [10.0, 11.0, 12.5]
    logs = np.log(values)
    low, high = np.exp(scipy_stats.t.interval(0.95, 2, logs.mean(), scipy_stats.sem(logs)))
    log_t_interval = estimators.log_t_interval(values)
    assert log_t_interval is not None
    assert (log_t_interval.low, log_t_interval.high) == (pytest.approx(low), pytest.approx(high))


@given(st.lists(st.floats(10, 11), min_size=2, max_size=5))
def test_interval_holds_the_median_of_few_processes(values: list[float]) -> None:
    log_t_interval = estimators.log_t_interval(values)
    assert log_t_interval is not None
    assert log_t_interval.low <= estimators.median(values) * (1 + 1e-9)
    assert estimators.median(values) <= log_t_interval.high * (1 + 1e-9)


# --- the median's interval ----------------------------------------------------------------------------------------

process_medians = st.lists(st.floats(1e-3, 1e9), min_size=2, max_size=25)


@given(process_medians)
def test_the_median_always_lies_inside_its_interval(values: list[float]) -> None:
    median_interval = estimators.median_interval(values)
    if median_interval is not None:
        assert median_interval.low <= estimators.median(values) <= median_interval.high


@pytest.mark.parametrize("values", [[], [3.0], [1.0, 0.0], [0.0] * 6, [1e-100, 1e100]])
def test_no_interval_of_the_median(values: list[float]) -> None:
    assert estimators.median_interval(values) is None


@pytest.mark.parametrize("count", [2, 3, 4])
def test_few_processes_have_t_on_logarithms(count: int) -> None:
    values = [10.0, 11.0, 12.5, 10.5][:count]
    median_interval, expected = estimators.median_interval(values), estimators.log_t_interval(values)
    assert median_interval is not None
    assert expected is not None
    assert (median_interval.low, median_interval.high) == (expected.low, expected.high)


def test_five_processes_have_their_extremes() -> None:
    median_interval = estimators.median_interval([10.0, 14.0, 11.0, 12.0, 13.0])
    assert median_interval is not None
    assert (median_interval.low, median_interval.high) == (pytest.approx(10), pytest.approx(14))


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [
        # The pairs enclose 96.9% and 78.1%: a share of 0.1 between them, 5 x 0.1 / (1 + 4 x 0.1) of the way inwards.
        (6, 1 + 0.5 / 1.4, 6 - 0.5 / 1.4),
        # 97.9% and 89.1% at depths 2 and 3.
        (10, 2.657, 8.343),
    ],
)
def test_more_processes_have_hettmansperger_and_sheathers_interpolation(count: int, low: float, high: float) -> None:
    median_interval = estimators.median_interval([math.exp(place) for place in range(1, count + 1)])
    assert median_interval is not None
    assert (math.log(median_interval.low), math.log(median_interval.high)) == (
        pytest.approx(low, abs=1e-3),
        pytest.approx(high, abs=1e-3),
    )


def test_an_end_stays_at_its_group_where_processes_come_at_two_speeds() -> None:
    """One fast process of six: interpolation alone would put the lower end into the empty gap."""
    median_interval = estimators.median_interval([55.0, 76.0, 76.1, 76.2, 76.3, 76.4])
    assert median_interval is not None
    assert 55 <= median_interval.low < 55.5


@given(st.lists(st.floats(1, 100), min_size=5, max_size=25).filter(lambda values: len(values) % 2 == 1))
def test_the_interval_of_a_rate_is_the_inverse_of_that_of_its_time(values: list[float]) -> None:
    there, back = estimators.median_interval(values), estimators.median_interval([1 / value for value in values])
    assert there is not None
    assert back is not None
    assert (back.low, back.high) == (pytest.approx(1 / there.high), pytest.approx(1 / there.low))


def two_speeds_of(rng: np.random.Generator, slow: float, shape: tuple[int, int]) -> np.ndarray:
    return np.where(rng.random(shape) < slow, 1.38, 1.0) * np.exp(rng.normal(0, 0.003, shape))


KINDS = {
    "normal": (lambda rng, shape: np.exp(rng.normal(0, 0.01, shape)), (1.0,)),
    "log-normal": (lambda rng, shape: np.exp(rng.normal(0, 0.15, shape)), (1.0,)),
    "skewed": (lambda rng, shape: 1 + 0.02 * rng.exponential(1, shape), (1 + 0.02 * math.log(2),)),
    "50:50": (lambda rng, shape: two_speeds_of(rng, 0.5, shape), (1.009, 1.2, 1.369)),
    "70:30": (lambda rng, shape: two_speeds_of(rng, 0.3, shape), (math.exp(0.003 * scipy_stats.norm.ppf(0.5 / 0.7)),)),
    "90:10": (lambda rng, shape: two_speeds_of(rng, 0.1, shape), (math.exp(0.003 * scipy_stats.norm.ppf(0.5 / 0.9)),)),
}
"""How process medians scatter, and values that are the true median of it."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [5, 6, 7, 8, 10, 20])
def test_from_five_rounds_on_the_interval_holds_the_median_at_any_scatter(kind: str, rounds: int) -> None:
    draw, truths = KINDS[kind]
    results = [
        estimators.median_interval(values) for values in draw(np.random.default_rng(5), (1_000, rounds)).tolist()
    ]
    for truth in truths:
        # 92.5% wanted; a thousand trials of 93.75% scatter by 0.8%.
        assert sum(entry is not None and entry.low <= truth <= entry.high for entry in results) >= 917


def test_log_t_would_not() -> None:
    draw, truths = KINDS["50:50"]
    results = [estimators.log_t_interval(values) for values in draw(np.random.default_rng(5), (1_000, 10)).tolist()]
    assert sum(entry is not None and entry.low <= truths[0] <= entry.high for entry in results) < 600


# --- two speeds ---------------------------------------------------------------------------------------------------


def test_two_speeds_are_named_with_how_many_processes_have_each() -> None:
    two_speeds = estimators.two_speeds([16.59, 23.11, 16.79, 23.67, 16.88])
    assert two_speeds == estimators.TwoSpeeds(16.79, pytest.approx(23.39), 3, 2)


@pytest.mark.parametrize(
    "values",
    [
        [10.0, 10.1, 13.8, 13.9],  # too few processes
        [10.0, 10.1, 10.2, 10.1, 13.8],  # one disturbed process is no speed of its own
        [10.0, 10.01, 10.02, 10.4, 10.41],  # less than 5% apart
        [10.0, 11.0, 12.0, 13.5, 14.5],  # scatter
        [10.0] * 6,
        [0.0, 0.0, 0.0, 1.0, 1.0],
    ],
)
def test_no_two_speeds(values: list[float]) -> None:
    assert estimators.two_speeds(values) is None


@pytest.mark.parametrize(("rounds", "most"), [(5, 0.06), (6, 0.04), (10, 0.01)])
@pytest.mark.parametrize("scatter", [0.01, 0.05, 0.15])
def test_one_speed_is_rarely_called_two(rounds: int, most: float, scatter: float) -> None:
    rng = np.random.default_rng(5)
    results = [estimators.two_speeds(values) for values in np.exp(rng.normal(0, scatter, (2_000, rounds))).tolist()]
    assert sum(entry is not None for entry in results) <= most * 2_000


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_interval_covers_the_truth_in_95_of_100_simulations(rho: float) -> None:
    """Five processes, 1% apart, with 1% autocorrelated noise inside: 92% to 98% are right."""
    rng = np.random.default_rng(20261127)
    trials, held = 1_000, 0
    for _ in range(trials):
        offsets = np.exp(rng.normal(0, 0.01, 5))
        medians = [estimators.median(offset * (1 + 0.01 * ar1(rng, rho, 200))) for offset in offsets]
        median_interval = estimators.median_interval(medians)
        held += median_interval is not None and median_interval.low <= 1.0 <= median_interval.high
    assert 0.92 <= held / trials <= 0.98


def test_two_processes_far_apart_make_a_wide_interval() -> None:
    log_t_interval = estimators.log_t_interval([1.0, 1.1])
    assert log_t_interval is not None
    assert log_t_interval.high / log_t_interval.low > math.e


def ar1(rng: np.random.Generator, rho: float, count: int) -> np.ndarray:
    """A series of variance 1 whose neighbours correlate by rho."""
    from scipy.signal import lfilter

    shocks = rng.normal(size=count) * math.sqrt(1 - rho**2)
    shocks[0] = rng.normal()
    return lfilter([1], [1, -rho], shocks)


@pytest.mark.parametrize("degrees", [*range(1, 40), 99, 100, 1_000, 9_999])
def test_critical_values_are_scipys(degrees: int) -> None:
    assert estimators.t_critical(degrees) == pytest.approx(scipy_stats.t.ppf(0.975, degrees), rel=1e-9)


def test_the_rules_that_stop_a_process_need_no_scipy() -> None:
    code = "import sys; sys.modules['scipy'] = None; from harness.timing import loop, session, end_to_end"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("rounds", [3, 4, 5, 10])
def test_a_trend_is_scipys_and_scatter_alone_seldom_has_one(rounds: int) -> None:
    chance, result = np.random.default_rng(rounds), 0
    for _ in range(2_000):
        values = np.exp(chance.normal(0, 0.2, rounds))
        fit = scipy_stats.linregress(range(rounds), np.log(values))
        shown = estimators.trend(values.tolist())
        assert (shown is not None) == (fit.pvalue < 0.05)
        if shown is not None:
            assert shown == pytest.approx(math.expm1(fit.slope * (rounds - 1)))
            result += 1
    assert 0.035 < result / 2_000 < 0.065


def test_an_interval_is_as_wide_as_its_end_further_from_the_estimate() -> None:
    half = estimators.relative_interval_half_width
    assert half(Interval(low=95, high=105), 100) == pytest.approx(0.05)
    assert half(Interval(low=99, high=109), 100) == pytest.approx(0.09)
    assert half(Interval(low=90, high=101), 100) == pytest.approx(0.1)
    assert half(Interval(low=101, high=104), 100) == pytest.approx(0.04)


def test_the_interval_of_a_difference_adds_both_errors_as_squares() -> None:
    difference_interval = estimators.difference_interval(
        20, Interval(low=19.7, high=20.5), 18, Interval(low=17.0, high=18.4)
    )
    assert difference_interval.low == pytest.approx(2 - 0.5)  # 0.3 below the first, 0.4 above the second
    assert difference_interval.high == pytest.approx(2 + math.hypot(0.5, 1.0))
    outside = estimators.difference_interval(20, Interval(low=20.1, high=20.5), 18, Interval(low=18, high=18))
    assert outside.low == 2


def test_the_interval_of_a_difference_covers_it() -> None:
    generator, held = np.random.default_rng(7), 0
    for _ in range(2_000):
        sides = [generator.normal(mean, 1.0, 5) for mean in (100.0, 90.0)]
        means = [float(side.mean()) for side in sides]
        errors = [estimators.t_critical(4) * float(side.std(ddof=1)) / math.sqrt(5) for side in sides]
        ours = [Interval(low=mean - error, high=mean + error) for mean, error in zip(means, errors, strict=True)]
        difference_interval = estimators.difference_interval(means[0], ours[0], means[1], ours[1])
        held += difference_interval.low <= 10.0 <= difference_interval.high
    assert 0.94 < held / 2_000 < 0.99


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [1.0, 1.0, 1.0], [1.0, 0.0, 2.0]])
def test_series_that_have_no_trend(values: list[float]) -> None:
    assert estimators.trend(values) is None


def test_a_perfect_line_is_one() -> None:
    assert estimators.trend([1.0, 2.0, 4.0]) == pytest.approx(3.0)
