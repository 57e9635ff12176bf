"""Right values of TTFT, ITL, TPOT, quarters, slope, rates and their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from harness.statistics.token_times import (
    RequestInstants,
    context_times,
    itls,
    per_sequence_rate,
    token_times,
    total_rate,
    tpots,
    ttfts,
)


def request(start: int, ttft: int, steps: list[int]) -> RequestInstants:
    return RequestInstants(start, tuple(int(entry) for entry in start + ttft + np.cumsum([0, *steps])))


def test_each_figure_is_the_median_of_the_processes() -> None:
    processes = [[request(0, ttft, [step] * 9) for ttft in (10, 20, 30)] for step in (4, 5, 9)]
    first, between = token_times(processes, ttfts), token_times(processes, itls)
    assert first is not None
    assert between is not None
    assert (first.median, first.n, first.requests, first.rounds) == (20, 9, 9, 3)
    assert (between.median, between.mean, between.max, between.n) == (5, 5, 9, 81)
    assert between.process_medians == (4, 5, 9)


def test_the_mean_itl_of_a_request_is_its_tpot() -> None:
    single = request(7, 100, [3, 8, 4])
    assert single.tpot == pytest.approx(single.itl.mean())
    assert single.ttft + single.itl.sum() == single.end_to_end


def test_a_stalled_token_shows_in_p99_and_not_in_the_median() -> None:
    rng = np.random.default_rng(0)
    requests = [request(0, 50, [100 + int(rng.integers(5)) for _ in range(99)]) for _ in range(8)]
    calm = token_times([requests], itls)
    stalled = [request(0, 50, [*[100] * 49, 10_000, *[100] * 48, 10_000]) for _ in range(8)]
    results = token_times([stalled], itls)
    assert calm is not None
    assert results is not None
    assert calm.p99 is not None
    assert results.p99 is not None
    assert calm.p99 < 110
    assert results.p99 == 10_000
    assert results.median == 100


def test_percentiles_need_enough_values() -> None:
    results = token_times([[request(0, 1, [5] * 100)]], itls)
    assert results is not None
    assert (results.p95, results.p99) == (None, None)


def test_one_token_outputs_have_no_itl() -> None:
    ones = [[request(0, 5, []), request(10, 6, [])]]
    assert token_times(ones, itls) is None
    assert token_times(ones, tpots) is None
    assert context_times(ones) is None
    assert per_sequence_rate(ones[0]) is None
    assert token_times(ones, ttfts) is not None


def test_quarters_and_slope_of_a_line() -> None:
    steps = [1_000 + 2 * place for place in range(100)]
    results = context_times([[request(0, 10, steps)] * 3] * 2)
    assert results is not None
    assert results.quarters is not None
    assert results.quarters == (1_024.0, 1_074.0, 1_124.0, 1_174.0)
    assert results.slope_ns_per_1000 == pytest.approx(2_000)


def test_a_stalled_token_does_not_turn_the_slope() -> None:
    line = [1_000] * 64
    stalled = [*line[:60], 10**6, *line[61:]]
    results = context_times([[request(0, 10, line), request(0, 10, line), request(0, 10, stalled)]])
    assert results is not None
    assert results.slope_ns_per_1000 == 0


def test_rates() -> None:
    requests = [request(0, 500_000_000, [100_000_000] * 5), request(1_000_000_000, 500_000_000, [100_000_000] * 5)]
    assert per_sequence_rate(requests) == pytest.approx(10)
    assert total_rate(requests, 4) == pytest.approx(4 * 12 / 2)


def test_the_time_between_two_requests_is_in_no_rate() -> None:
    tokens = [100_000_000] * 5
    apart = [request(0, 500_000_000, tokens), request(3_000_000_000, 500_000_000, tokens)]
    assert total_rate(apart, 4) == pytest.approx(4 * 12 / 2)


def test_the_interval_over_requests_holds_the_spread_between_them() -> None:
    # Within a request nothing varies: intervals over tokens would be far too narrow.
    requests = [request(0, 1, [step] * 50) for step in (90, 95, 100, 105, 110, 115)]
    results = token_times([requests], itls)
    assert results is not None
    interval = results.requests_ci95["p50"]
    assert interval.low <= 95
    assert interval.high >= 105
    assert token_times([requests[:4]], itls).requests_ci95 == {}  # type: ignore[union-attr]
