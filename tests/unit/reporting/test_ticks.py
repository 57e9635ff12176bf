"""Ticks of logarithmic axes: round numbers, and always enough to show the scale."""

from __future__ import annotations

import pytest

from harness.reporting.charts.spec import decade_axis, doubling_axis, log_ticks


@pytest.mark.parametrize(
    ("low", "high", "base", "expected"),
    [
        (0.4, 20, 2, [0.5, 1, 2, 4, 8, 16]),
        (0.3, 12, 10, [0.5, 1, 2, 5, 10]),
        (0.87, 1.72, 2, [1, 1.2, 1.4, 1.6]),
        (0.15, 0.18, 10, [0.15, 0.16, 0.17, 0.18]),
        (0.9, 2.6, 2, [1, 1.5, 2, 2.5]),
        (110, 390, 10, [150, 200, 250, 300, 350]),
    ],
)
def test_ticks_between_the_ends(low: float, high: float, base: int, expected: list[float]) -> None:
    assert [tick for tick in log_ticks(low, high, base) if low <= tick <= high] == expected


def test_one_value_has_ticks_on_either_side() -> None:
    ticks = log_ticks(3, 3, 10)
    assert min(ticks) < 3 < max(ticks)


@pytest.mark.parametrize("ratio", [1.001, 1.1, 1.9, 3, 50, 1e4])
def test_there_are_always_some(ratio: float) -> None:
    for base in (2, 10):
        assert sum(1.3 <= tick <= 1.3 * ratio for tick in log_ticks(1.3, 1.3 * ratio, base)) >= 2


def test_of_more_powers_of_two_than_have_room_every_second_or_third_is_left_and_1_always() -> None:
    assert [tick for tick in log_ticks(0.2, 500, 2, most=7) if 0.2 <= tick <= 500] == [0.25, 1, 4, 16, 64, 256]
    assert [tick for tick in log_ticks(0.2, 500, 2, most=4) if 0.2 <= tick <= 500] == [1, 16, 256]
    assert log_ticks(0.4, 20, 2, most=7) == log_ticks(0.4, 20, 2)


def test_ticks_of_extreme_ratios_are_few_and_have_no_exponent() -> None:
    axis = doubling_axis("speed-up", 0.5, 2e8, most=10)
    assert [axis.text(tick) for tick in axis.shown] == ["1×", "100×", "10,000×", "1,000,000×", "100,000,000×"]
    assert doubling_axis("speed-up", 0.5, 5e4).shown[:3] == (0.5, 1.0, 2.0)


def test_a_wide_axis_has_more_than_one_label_within_it() -> None:
    assert len(decade_axis("", 1.2, 80).shown) > 1
    assert decade_axis("", 0.9, 110).shown == (1.0, 10.0, 100.0)


def test_of_long_labels_side_by_side_every_second_is_left() -> None:
    assert decade_axis("", 9, 8e6).shown == (100.0, 10_000.0, 1_000_000.0)
    assert decade_axis("", 45, 2.4e5).shown == (100.0, 1_000.0, 10_000.0, 100_000.0)
