"""Limits of a rate by a count, beside those of SciPy."""

from __future__ import annotations

import pytest
from scipy.stats import beta, binom

from harness.statistics.binomial import lower_limit, probability_at_most, upper_limit, widened


@pytest.mark.parametrize(
    ("count", "trials", "rate"), [(0, 1, 0.5), (0, 116, 0.04), (3, 10, 0.3), (700, 2_000, 0.3), (50_000, 99_999, 0.5)]
)
def test_probabilities_and_limits_are_those_of_scipy(count: int, trials: int, rate: float) -> None:
    assert probability_at_most(count, trials, rate) == pytest.approx(binom.cdf(count, trials, rate))
    assert upper_limit(count, trials, 0.99) == pytest.approx(beta.ppf(0.99, count + 1, trials - count))
    if count:
        assert lower_limit(count, trials, 0.99) == pytest.approx(beta.ppf(0.01, count, trials - count + 1))


def test_at_the_ends_a_limit_is_the_end() -> None:
    assert (lower_limit(0, 5, 0.99), upper_limit(5, 5, 0.99)) == (0.0, 1.0)
    assert (probability_at_most(5, 5, 0.1), probability_at_most(0, 5, 0.0), probability_at_most(4, 5, 1.0)) == (1, 1, 0)


def test_an_interval_is_never_narrower_than_that_of_its_count() -> None:
    narrow, wide = widened(0.05, 0.05, 5, 100, 0.99), (0.01, 0.2)
    assert narrow == (lower_limit(5, 100, 0.99), upper_limit(5, 100, 0.99))
    assert widened(*wide, 5, 100, 0.99) == wide
