"""Change points: right values, and rates on small simulated histories (benchmarks/change_points.py has more)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from harness.statistics import change_points
from harness.statistics.change_points import (
    LEAST_POOL,
    RunSeries,
    changes_of_a_night,
    largest_split,
    mean_inflation,
    noise_of,
    noises_of,
    segments,
    smallest_visible_shift,
)


def noise(count: int, seed: int, scatter: float = 0.005) -> list[float]:
    return list(np.exp(np.random.default_rng(seed).normal(0, scatter, count)))


def stepped(before: int, after: int, shift: float, seed: int = 0) -> list[float]:
    values = noise(before + after, seed)
    return [value * (1 + shift if place >= before else 1) for place, value in enumerate(values)]


def test_a_step_is_detected_at_its_place_with_its_size() -> None:
    result = largest_split(stepped(30, 10, 0.05), [0.0] * 40)
    assert result is not None
    assert result.at == 30
    assert result.shift == pytest.approx(1.05, abs=0.004)
    assert result.low < 1.05 < result.high
    assert result.p == pytest.approx(1 / (change_points.MOST_PERMUTATIONS + 1))
    assert not result.trend


def test_the_statistic_is_welchs_t_with_moderated_variances() -> None:
    logs = np.array([0.0, 1.0, 2.0, 10.0, 11.0, 13.0])
    scores = change_points.split_scores((logs - logs.mean())[None, :], np.ones((1, 6)))
    # Sums of squares 2 and 14/3; the common variance (2 + 14/3) / 4; each side moderated with 8 degrees of freedom.
    common = (2 + 14 / 3) / 4
    error = ((8 * common + 2) / 10 + (8 * common + 14 / 3) / 10) / 3
    assert scores.shape == (1, 1)
    assert scores[0, 0] == pytest.approx((34 / 3 - 1) / math.sqrt(error))


def test_noise_alone_raises_no_alarm_in_most_nights() -> None:
    alarms = 0
    for night in range(10):
        series = [RunSeries(noise(30, 1000 * night + number), [0.0] * 30) for number in range(10)]
        alarms += any(changes_of_a_night(series, seed=night))
    assert alarms <= 2  # at a rate of 5% more than two of ten have probability 1.2%; the seeds are fixed


def test_a_two_percent_step_among_many_series_is_detected_within_five_runs() -> None:
    count = 0
    for night in range(5):
        series = [RunSeries(noise(30, 77 + 1000 * night + number), [0.0] * 30) for number in range(19)]
        series.append(RunSeries(stepped(25, 5, 0.02, seed=night), [0.0] * 30))
        count += [split.at for split in changes_of_a_night(series, seed=night)[-1]] in ([24], [25], [26])
    assert count >= 4


def test_one_outlier_is_no_shift_wherever_it_is() -> None:
    for place in (0, 15, 28, 29):
        values = noise(30, 5)
        values[place] *= 1.3
        assert changes_of_a_night([RunSeries(values, [0.0] * 30)]) == [[]]


def test_a_drift_is_called_a_drift() -> None:
    values = [value * 1.002**place for place, value in enumerate(noise(40, 3))]
    result = largest_split(values, [0.0] * 40)
    assert result is not None
    assert result.trend


def test_no_split_is_looked_for_across_a_known_boundary() -> None:
    values = stepped(20, 20, 0.10)
    assert changes_of_a_night([RunSeries(values, [0.0] * 40, boundaries=(20,))]) == [[]]
    (splits,) = changes_of_a_night([RunSeries(values, [0.0] * 40)])
    assert [split.at for split in splits] == [20]


RUNS = [f"r{place}" for place in range(40)]


def machine(logs: np.ndarray) -> list[RunSeries]:
    """Series of one machine. logs: series × runs."""
    return [RunSeries(list(np.exp(own)), [0.0] * 40, machine="m", runs=RUNS) for own in logs]


def correlated(series: int, seed: int, correlation: float = 0.3) -> np.ndarray:
    logs = np.random.default_rng(seed).normal(0, 0.005, (series, 40))
    for place in range(1, 40):
        logs[:, place] = correlation * logs[:, place - 1] + math.sqrt(1 - correlation**2) * logs[:, place]
    return logs


def test_the_correlation_of_a_machine_is_that_of_all_its_series() -> None:
    independent = correlated(100, 1, 0.0)
    assert noise_of(machine(correlated(100, 1))).correlation == pytest.approx(0.3, abs=0.15)
    assert noise_of(machine(independent)).correlation == 0
    stepped_together = independent + 0.05 * (np.arange(40) >= 20)
    assert noise_of(machine(stepped_together)).correlation == 0
    assert noise_of(machine(correlated(LEAST_POOL - 1, 1, 0.9))).correlation == 0
    two = [*machine(correlated(100, 1)), *(replace(entry, machine="n") for entry in machine(independent))]
    noises = noises_of(two)
    assert (noises["m"].correlation > 0, noises["n"].correlation) == (True, 0)


def test_a_restless_run_is_one_in_which_all_series_scatter_more() -> None:
    logs = np.random.default_rng(2).normal(0, 0.005, (100, 40))
    assert noise_of(machine(logs)).scales == {}
    outliers = logs.copy()
    outliers[np.arange(100), np.arange(100) % 40] += 0.3
    assert noise_of(machine(outliers)).scales == {}
    assert noise_of(machine(logs + 0.05 * (np.arange(40) >= 20))).scales == {}
    logs[:, 30:] *= 3
    scales = noise_of(machine(logs)).scales
    assert set(scales) == set(RUNS[30:])
    assert np.median(list(scales.values())) == pytest.approx(3, rel=0.2)


def test_the_variance_of_a_mean_of_correlated_runs() -> None:
    assert mean_inflation(1, 0.3) == 1
    assert mean_inflation(3, 0.3) == pytest.approx(1 + 2 * (2 / 3 * 0.3 + 1 / 3 * 0.09))
    assert mean_inflation(1000, 0.3) == pytest.approx(1.3 / 0.7, rel=0.01)
    independent, dependent = (smallest_visible_shift(noise(25, 2), 1, entry) for entry in (0.0, 0.3))
    assert independent is not None
    assert dependent is not None
    assert dependent > 1.2 * independent


def test_a_change_on_a_noisy_or_correlated_machine_is_less_likely_a_shift() -> None:
    values = stepped(25, 5, 0.02)
    scales = [1.0] * 25 + [4.0] * 5
    plain = largest_split(values, [0.0] * 30)
    restless = largest_split(values, [0.0] * 30, scales=scales)
    wandering = largest_split(values, [0.0] * 30, correlation=0.6)
    assert plain is not None
    assert restless is not None
    assert wandering is not None
    assert plain.p < 0.001 < restless.p
    assert plain.p < wandering.p
    assert wandering.high - wandering.low > plain.high - plain.low


def test_several_steps_are_detected_by_segmentation() -> None:
    values = stepped(20, 40, 0.05)
    values = [value * (1.05 if place >= 40 else 1) for place, value in enumerate(values)]
    (splits,) = changes_of_a_night([RunSeries(values, [0.0] * 60)])
    assert [split.at for split in splits] == [20, 40]


def test_a_run_with_a_wide_interval_counts_less() -> None:
    values = noise(30, 9)
    values[10:13] = [1.2, 1.25, 1.3]
    wide = [0.02 if 10 <= place < 13 else 0.0 for place in range(30)]
    narrow = largest_split(values, [0.0] * 30)
    weighted = largest_split(values, wide)
    assert narrow is not None
    assert weighted is not None
    assert abs(weighted.shift - 1) < abs(narrow.shift - 1)


def test_too_few_or_equal_runs_have_no_split() -> None:
    assert largest_split([1.0, 1.1, 1.2, 1.3, 1.4], [0.0] * 5) is None
    assert largest_split([1.0] * 20, [0.0] * 20) is None
    assert changes_of_a_night([]) == []
    assert changes_of_a_night([RunSeries([1.0, 1.0], [0.0, 0.0])]) == [[]]


def test_stretches_between_boundaries() -> None:
    assert segments(10, (4, 4, 0, 10, 12)) == [(0, 4), (4, 10)]
    assert segments(0, ()) == []


def test_the_smallest_visible_shift_falls_with_runs_and_grows_with_scatter_and_series() -> None:
    few, many = smallest_visible_shift(noise(5, 1)), smallest_visible_shift(noise(100, 1))
    assert few is not None
    assert many is not None
    assert many < few
    restless = smallest_visible_shift(noise(100, 1, 0.05))
    assert restless is not None
    assert restless == pytest.approx(10 * many, rel=0.35)
    alone, crowd = smallest_visible_shift(noise(25, 2)), smallest_visible_shift(noise(25, 2), series=100)
    assert alone is not None
    assert crowd is not None
    assert alone < crowd < 0.02
    assert smallest_visible_shift([1.0, 1.1]) is None
    # Ten runs and five later ones have 3,003 orders: p is at least 1/1,502, and one of 100 series needs 1/3,333.
    assert smallest_visible_shift(noise(10, 1), series=100) is None
    assert smallest_visible_shift(noise(10, 1), series=10) is not None
