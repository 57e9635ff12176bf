"""Significance tests and corrections against SciPy and the published steps."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from harness.statistics.significance import benjamini_hochberg, correlated_t_p, holm, rank_p, signed_rank_p, welch_p

positive = st.floats(1e3, 1e9)
medians = st.lists(positive, min_size=2, max_size=8)
log_ratios = st.lists(st.floats(-1, 1).filter(lambda value: abs(value) > 1e-6), min_size=2, max_size=10)


@given(medians, medians)
def test_welch_is_scipys_on_logarithms(baseline: list[float], current: list[float]) -> None:
    logs = [np.log(current), np.log(baseline)]
    assume(min(float(np.std(values)) for values in logs) > 1e-6)  # below, both compute with rounding alone
    assert welch_p(baseline, current) == pytest.approx(
        scipy_stats.ttest_ind(*logs, equal_var=False).pvalue, rel=1e-6, abs=1e-12
    )


@given(st.lists(positive, min_size=2, max_size=8, unique=True), st.integers(1, 6))
def test_the_rank_test_is_scipys_exact_one(values: list[float], first: int) -> None:
    baseline, current = values[:first], values[first:]
    assume(baseline and current)
    expected = scipy_stats.mannwhitneyu(baseline, current, method="exact").pvalue
    assert rank_p(baseline, current) == pytest.approx(expected, rel=1e-9)


def test_ties_of_the_rank_test_count_half_and_never_towards_a_difference() -> None:
    assert rank_p([1, 1, 1], [1, 1, 1]) == 1
    assert rank_p([1, 2, 3], [3, 4, 5]) == rank_p([1, 2, 4], [3, 5, 6])


def test_five_a_side_that_lie_apart_are_the_rarest_of_252_orders_and_their_mirror() -> None:
    assert rank_p([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)


def test_holm_against_the_published_steps() -> None:
    # Sorted: 4 x 0.005, 3 x 0.01, 2 x 0.03, 1 x 0.04 raised to the one before (Holm 1979; R: p.adjust).
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_between_the_raw_p_and_bonferroni(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for raw, entry in zip(p_values, adjusted, strict=True):
        assert raw <= entry <= min(1.0, len(p_values) * max(p_values))
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    assert [adjusted[place] for place in order] == sorted(adjusted)


def test_holm_does_not_depend_on_the_order() -> None:
    expected = dict(zip((0.01, 0.04, 0.03), holm([0.01, 0.04, 0.03]), strict=True))
    for order in permutations(expected):
        assert holm(order) == [expected[p] for p in order]


@given(log_ratios)
def test_without_correlation_the_t_test_is_scipys(values: list[float]) -> None:
    assume(float(np.std(values)) > 1e-6)
    expected = scipy_stats.ttest_1samp(values, 0).pvalue
    assert correlated_t_p(values, correlation=0) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@given(log_ratios)
def test_with_correlation_it_is_generalised_least_squares(values: list[float]) -> None:
    assume(float(np.std(values)) > 1e-6)
    count = len(values)
    inverse = np.linalg.inv(scipy_stats_toeplitz(0.5 ** np.arange(count)))
    ones = np.ones(count)
    power = ones @ inverse @ ones
    mean = ones @ inverse @ values / power
    left = np.asarray(values) - mean
    t = mean / math.sqrt(left @ inverse @ left / (count - 1) / power)
    assert correlated_t_p(values, 0.5) == pytest.approx(2 * scipy_stats.t.sf(abs(t), count - 1), rel=1e-6, abs=1e-9)


def scipy_stats_toeplitz(first: np.ndarray) -> np.ndarray:
    places = np.arange(len(first))
    return first[np.abs(places[:, None] - places[None, :])]


@given(st.lists(st.floats(-1, 1).filter(bool), min_size=1, max_size=9, unique_by=abs))
def test_the_signed_ranks_are_scipys_exact_ones(values: list[float]) -> None:
    expected = scipy_stats.wilcoxon(values, method="exact").pvalue
    assert signed_rank_p(values) == pytest.approx(expected, rel=1e-9)


def test_ties_and_zeros_of_signed_ranks_are_never_towards_a_difference() -> None:
    assert signed_rank_p([0.0, 0.0]) == 1
    assert signed_rank_p([0.1, -0.1]) == 1
    assert signed_rank_p([0.1] * 6) == pytest.approx(2 / 64)


def test_benjamini_and_hochberg_reject_together() -> None:
    # Their rule at 5% of four: 0.0125, 0.025, 0.0375, 0.05; the third passes, so the first three do.
    assert benjamini_hochberg([0.03, 0.9, 0.02, 0.026], 0.05) == [True, False, True, True]
    assert benjamini_hochberg([0.03, 0.04], 0.05) == [True, True]
    assert benjamini_hochberg([0.06, 0.2], 0.05) == [False, False]
    assert benjamini_hochberg([], 0.05) == []
