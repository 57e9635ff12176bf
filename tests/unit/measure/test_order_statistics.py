"""Intervals of percentiles: ranks against the binomial, and how often they hold in simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats as scipy_stats

from harness.measure import order_statistics, stats
from harness.measure.order_statistics import binomial_ranks, effective_size, percentile_interval, percentile_intervals
from tests.unit.measure.test_stats import ar1

processes = st.lists(
    arrays.arrays(np.float64, st.integers(50, 200), elements=st.floats(1, 1e9)), min_size=1, max_size=4
)


@given(st.integers(1, 5_000), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_ranks_are_the_narrowest_that_the_binomial_admits(size: int, quantile: float) -> None:
    found = binomial_ranks(size, quantile)
    below = scipy_stats.binom(size, quantile).cdf
    if found is None:
        assert below(size - 1) < 0.975 or below(0) > 0.025
        return
    low, high = found
    assert 1 <= low < high <= size
    assert below(low - 1) <= 0.025 < below(low)
    assert 1 - below(high - 1) <= 0.025 + 1e-12
    assert 1 - below(high - 2) > 0.025


def test_ranks_of_the_median_of_a_hundred_are_the_tables() -> None:
    assert binomial_ranks(100, 0.5) == (40, 61)  # Conover, Practical Nonparametric Statistics, sign-test interval


@pytest.mark.parametrize(("quantile", "least"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368)])
def test_too_few_samples_to_bound_a_percentile(quantile: float, least: int) -> None:
    assert binomial_ranks(least - 1, quantile) is None
    assert binomial_ranks(least, quantile) is not None


@given(processes)
def test_an_interval_holds_its_percentile_and_lies_within_the_samples(found: list[np.ndarray]) -> None:
    pooled = np.concatenate(found)
    for name, interval in percentile_intervals(found).items():
        value = stats.percentile(pooled, order_statistics.QUANTILES[name])
        assert pooled.min() <= interval.low <= value * (1 + 1e-9)
        assert value * (1 - 1e-9) <= interval.high <= pooled.max()


@given(processes, st.floats(0.001, 1000))
def test_it_does_not_depend_on_the_unit(found: list[np.ndarray], factor: float) -> None:
    scaled = percentile_intervals([values * factor for values in found])
    for name, interval in percentile_intervals(found).items():
        assert scaled[name].low == pytest.approx(interval.low * factor, rel=1e-9)
        assert scaled[name].high == pytest.approx(interval.high * factor, rel=1e-9)


@given(processes, st.sampled_from([0.5, 0.9, 0.99]))
def test_samples_never_tell_more_than_independent_ones(found: list[np.ndarray], quantile: float) -> None:
    size = effective_size(found, quantile)
    assert size is not None
    assert 0 <= size <= sum(values.size for values in found)


def test_correlated_samples_tell_less() -> None:
    rng = np.random.default_rng(5)
    sizes = [effective_size([ar1(rng, rho, 5_000) + 10 for _ in range(4)], 0.5) for rho in (0.0, 0.9)]
    assert sizes[0] is not None
    assert sizes[1] is not None
    assert sizes[0] > 0.5 * 20_000
    assert sizes[1] < 0.2 * 20_000


def test_a_process_with_few_samples_tells_nothing_about_correlation() -> None:
    few = np.arange(1.0, 50.0)
    assert effective_size([few], 0.5) is None
    assert effective_size([], 0.5) is None
    assert percentile_interval([few], 0.5) is None


def test_withheld_percentiles_have_no_interval() -> None:
    rng = np.random.default_rng(3)
    assert set(percentile_intervals([rng.normal(10, 1, 60)])) == {"p50"}
    assert set(percentile_intervals([rng.normal(10, 1, 300)] * 2)) == {"p50", "p90", "p95"}


def test_equal_samples_have_an_interval_without_width() -> None:
    found = percentile_intervals([np.full(1_000, 7.0)])
    assert all((interval.low, interval.high) == (7, 7) for interval in found.values())


@pytest.mark.parametrize("rho", [0.0, 0.9])
@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 0.99])
def test_interval_covers_the_percentile_of_these_processes(rho: float, quantile: float) -> None:
    """Five processes with 700 samples each, as the quickstart has; order statistics err on the wide side."""
    rng = np.random.default_rng(20261127)
    truth = 100 + scipy_stats.norm.ppf(quantile)
    found = [percentile_interval([100 + ar1(rng, rho, 700) for _ in range(5)], quantile) for _ in range(400)]
    known = [interval for interval in found if interval is not None]
    held = sum(interval.low <= truth <= interval.high for interval in known)
    assert len(known) >= 0.9 * len(found)
    assert 0.91 <= held / len(known) <= 1.0
