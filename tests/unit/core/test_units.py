"""Numbers as they are printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import units
from harness.core.schemas import Interval


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (0, "0"), (1, "1.00"), (9.996, "10.0"), (99.95, "100"), (999.5, "1,000"), (0.012345, "0.0123"),
        (1234.5, "1,230"), (91826, "91,800"), (1e-4, "0.000100"), (3.4e-7, "3.40e-07"), (-12.34, "-12.3"),
        (999e6, "999,000,000"), (7.09e18, "7.09e+18"),
    ],
)  # fmt: skip
def test_three_significant_digits(value: float | None, text: str) -> None:
    assert units.significant(value) == text


@given(st.floats(1e-9, 1e12))
def test_a_printed_number_is_within_half_a_digit(value: float) -> None:
    assert float(units.significant(value).replace(",", "")) == pytest.approx(value, rel=0.00501)


@pytest.mark.parametrize(
    ("values_ns", "name"),
    [([2e6, 5e8], "ms"), ([999.0], "ns"), ([1e3], "µs"), ([5e4, 6e4, 9e8], "µs"), ([], "ms"), ([1e6], "ms")],
)
def test_the_unit_of_a_column(values_ns: list[float], name: str) -> None:
    assert units.time_unit(values_ns).name == name


@pytest.mark.parametrize(
    ("value_ns", "text"), [(180, "180 ns"), (4.2e3, "4.20 µs"), (1.5e6, "1.50 ms"), (26e9, "26.0 s")]
)
def test_durations_in_running_text(value_ns: float, text: str) -> None:
    assert units.duration(value_ns) == text


@pytest.mark.parametrize(
    ("share", "text"), [(1.0, "100%"), (0.99999, "99.9%"), (0.995, "99.5%"), (0.0, "0.0%"), (None, "–")]
)
def test_only_a_complete_share_is_100_per_cent(share: float | None, text: str) -> None:
    assert units.percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0000"),
        (0.999999999999, ">0.9999"),
        (0.99996, ">0.9999"),
        (0.9999, "0.9999"),
        (0.9824, "0.9824"),
        (0.0, "0.0000"),
        (1e-9, "0.0000"),
        (-0.00001, "-0.0001"),
        (None, "–"),
    ],
)
def test_only_a_cosine_of_1_is_printed_as_1(value: float | None, text: str) -> None:
    assert units.cosine(value) == text


def test_intervals_sizes_and_counts() -> None:
    assert units.interval(Interval(low=1.5e6, high=2e6), 1e6) == "[1.50, 2.00]"
    assert units.interval(None) == "–"
    assert units.interval(Interval(low=0.5, high=0.7), end=units.percent) == "[50.0%, 70.0%]"
    assert units.mib(3 << 30) == "3,072"
    assert units.mib(None) == "–"
    assert [units.whole(number) for number in (6, 999, 12345)] == ["6", "999", "12,300"]
    assert [units.scientific(value) for value in (3.41e-7, 0, None)] == ["3.4e-07", "0", "–"]
    assert [units.count(number, "case") for number in (1, 2)] == ["1 case", "2 cases"]


def test_different_numbers_of_one_thing_are_before_its_name_once() -> None:
    assert units.either([2, 2], "thread") == "2 threads"
    assert units.either([1], "thread") == "1 thread"
    assert units.either([4, 1, 2, 1], "thread") == "1 or 2 or 4 threads"
    assert units.either([], "thread") == ""


@pytest.mark.parametrize(
    ("low", "high", "printed"),
    [(2.0, 3.0, True), (2.0, 3.01, False), (5.95e-15, 4.34e16, False), (0.0, 1.0, False), (-1.0, 1.0, False)],
)
def test_an_interval_wider_than_1_5_has_no_digits_and_no_bar(low: float, high: float, printed: bool) -> None:
    interval = Interval(low=low, high=high)
    assert (units.interval(interval) == units.WIDE) != printed
    assert (units.drawable_interval(interval) is interval) == printed
    assert units.WIDE == "[wider than ×1.5]"
