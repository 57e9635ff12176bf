"""Samples of a round → what happened while it was timed."""

from __future__ import annotations

from typing import Any

import pytest

from harness.aggregation import usage
from harness.core.schemas import UsageSummary
from tests.synthetic_results import usage_of, usage_sample

MS = 1_000_000


def window(*samples: Any, **changes: Any) -> UsageSummary:
    result = usage.timed_usage(usage_of("a-case", 1, samples, **changes))
    assert result is not None
    return result


def test_only_the_warm_up_and_the_timed_phase_count() -> None:
    result = window(
        usage_sample(1_000 * MS, "load", cpu_percent=30.0, major_faults=900, rss_bytes=9 << 30),
        usage_sample(1_250 * MS, "warm-up", cpu_percent=190.0, major_faults=2),
        usage_sample(1_500 * MS, cpu_percent=200.0, major_faults=3),
        usage_sample(1_700 * MS, "outputs check", cpu_percent=100.0, major_faults=900),
    )
    assert result.watched_ns == 500 * MS
    assert (result.cpu_percent_mean, result.cpu_percent_peak) == (195, 200)
    assert (result.major_faults, result.rss_peak_bytes) == (5, 400 << 20)


def test_means_are_weighted_by_time_and_short_samples_are_no_peaks() -> None:
    result = window(usage_sample(300 * MS, others_percent=10.0), usage_sample(301 * MS, others_percent=1_000.0))
    assert result.others_percent_mean == pytest.approx((300 * 10 + 1 * 1_000) / 301)
    assert result.others_percent_peak == 10
    assert window(usage_sample(5 * MS)).cpu_percent_peak is None


def test_a_value_that_no_sample_reports_is_unknown_and_has_its_reason() -> None:
    result = window(usage_sample(250 * MS, steal_percent=None, read_bytes=None))
    figures = (result.steal_percent_mean, result.read_bytes, result.frequency_mhz_mean, result.temperature_c_max)
    assert figures == (None,) * 4
    assert result.unavailable["frequency_mhz"]


def test_a_total_of_some_samples_is_no_total() -> None:
    assert window(usage_sample(250 * MS, read_bytes=5), usage_sample(500 * MS, read_bytes=None)).read_bytes is None


def test_nothing_timed_is_no_window() -> None:
    assert usage.timed_usage(usage_of("a-case", 1, [usage_sample(250 * MS, "load")])) is None
    assert usage.merged_usage([]) is None


ALLOWED = {"allowed_cpus": 2, "allowed_cores": 1, "siblings_percent": 0.0}


def test_the_cpus_that_the_process_may_use_have_figures_of_their_own() -> None:
    result = window(
        usage_sample(250 * MS, allowed_others_percent=10.0, **ALLOWED),
        usage_sample(1_000 * MS, allowed_others_percent=50.0, **ALLOWED),
    )
    assert (result.allowed_cpus, result.allowed_cores, result.allowed_others_percent_mean) == (2, 1, 40)
    merged = usage.merged_usage([result, result])
    assert merged is not None
    assert merged.allowed_others_percent_mean == 40


def test_a_mean_over_some_samples_is_not_one_over_the_window() -> None:
    result = window(usage_sample(250 * MS, allowed_others_percent=10.0, **ALLOWED), usage_sample(500 * MS))
    assert (result.allowed_cpus, result.allowed_others_percent_mean) == (None, None)


def test_rounds_are_merged_by_their_length() -> None:
    short = window(usage_sample(250 * MS, cpu_percent=100.0, frequency_mhz=3_000.0, throttled_periods=2))
    long = window(usage_sample(750 * MS, cpu_percent=200.0, frequency_mhz=2_000.0), monitor_cpu_ns=25_000_000)
    result = usage.merged_usage([short, long])
    assert result is not None
    assert (result.rounds, result.watched_ns, result.cpu_percent_mean) == (2, 1_000 * MS, 175)
    assert (result.frequency_mhz_min, result.frequency_mhz_max, result.throttled_periods) == (2_000, 3_000, 2)
    assert result.frequency_mhz_mean == 2_250
    assert result.monitor_share == 0.01  # the larger of the two
