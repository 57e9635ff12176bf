"""What a profile's grade says: its repetitions, the machine load while timing, and the conclusions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.core import store
from harness.core.schemas import GpuUsage, Usage
from harness.core.schemas.profile_record import OperatorRow, PartsProfile
from harness.profiling import profile_grades
from harness.profiling.profile_grades import (
    flags_of,
    grade_of,
    graded_profile,
    last_two_agree,
    reason_for_doubt,
    repeat_spread,
    until_steady,
)
from tests.synthetic_parts import profile
from tests.synthetic_results import environment, usage_of, usage_sample

ROOT = Path(__file__).parents[3]
TWO = environment(threads=2)
"""A machine with two CPUs."""
WHOLE = profile(100, 105, 100)


def repeated(sums: Sequence[int], seconds: float = 1.0) -> tuple[PartsProfile, list[int]]:
    """The profile that is kept of repeats with these sums, of a plain latency of 100; and which repeats were taken."""
    taken: list[int] = []

    def take(repeat: int) -> PartsProfile:
        taken.append(repeat)
        return profile(sums[repeat - 1], 105, 100)

    return until_steady(take, False, lambda: seconds * len(taken)), taken


@pytest.mark.parametrize(
    ("sums", "ratios", "steady"),
    [
        ((100, 103), (1.0, 1.03), True),
        ((104, 100), (1.04, 1.0), True),
        ((130, 101, 99), (1.3, 1.01, 0.99), True),
        # Two that agree must follow one another: what the first was like is no witness for the third.
        ((100, 120, 100, 120, 118), (1.0, 1.2, 1.0, 1.2, 1.18), True),
        ((100, 120, 100, 120, 100, 100), (1.0, 1.2, 1.0, 1.2, 1.0), False),
        # Steady says nothing about adding up.
        ((20, 20), (0.2, 0.2), True),
    ],
)
def test_it_is_repeated_until_two_in_a_row_agree(sums: Sequence[int], ratios: tuple[float, ...], steady: bool) -> None:
    result, taken = repeated(sums)
    assert (result.ratios, result.steady) == (ratios, steady)
    assert taken == list(range(1, len(ratios) + 1))
    # The last is kept, whatever it says.
    assert result.layers[0].self_ns == sums[len(ratios) - 1]


def test_a_time_limit_ends_the_repeats_and_two_are_always_taken() -> None:
    result, taken = repeated((100, 120, 140, 160, 180), seconds=50.0)
    assert (taken, result.steady) == ([1, 2, 3], False)
    result, taken = repeated((100, 120), seconds=1_000.0)
    assert (taken, result.steady) == ([1, 2], False)


def test_a_profile_without_parts_is_not_repeated() -> None:
    none = PartsProfile(layers=(), operators=(), traces=(), window_ns=1, plain_ns=1)
    assert until_steady(lambda _: none, False, lambda: 0.0) == none


def test_parts_that_took_no_time_agree_with_their_like_alone() -> None:
    assert repeated((0, 0))[0].steady
    assert not last_two_agree((0.0, 0.5))
    assert (repeat_spread((0.0, 0.5)), repeat_spread((1.0,)), repeat_spread(())) == (None, None, None)
    assert repeat_spread((1.0, 1.2, 0.96)) == pytest.approx(0.25)


def usage(seconds: float = 2.0, **changes: Any) -> Usage:
    every = int(seconds * 125_000_000)
    samples = [usage_sample(every * number, **changes) for number in range(1, 9)]
    return usage_of("a-case", 1, samples)


def test_one_that_was_watched_and_not_disturbed_has_grade_a() -> None:
    result = graded_profile(WHOLE.model_copy(update={"ratios": (1.0, 1.0), "steady": True}), usage(), 2, False, TWO)
    assert (result.grade, result.flags) == ("A", ())
    assert result.usage is not None
    assert result.usage.watched_ns == 2_000_000_000
    assert reason_for_doubt(result, False) is None


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"others_percent": 100.0}, "CPU_SHARED"),
        ({"steal_percent": 40.0}, "STEAL"),
        ({"throttled_periods": 3}, "CPU_QUOTA"),
        ({"thermal_events": 2}, "THERMAL"),
    ],
)
def test_one_beside_a_busy_machine_says_so_and_shows_nothing(changes: dict[str, Any], name: str) -> None:
    result = graded_profile(WHOLE, usage(**changes), 2, False, TWO)
    assert (result.grade, [flag.name for flag in result.flags]) == ("C", [name])
    assert reason_for_doubt(result, False) == f"its profile has grade C ({name})"
    assert "make run" not in result.flags[0].remedy


def test_others_count_where_they_take_the_cpus_of_the_profile() -> None:
    beside = usage(others_percent=100.0)
    assert graded_profile(WHOLE, beside, threads=1, on_gpu=False, environment=TWO).grade == "A"
    on_gpu = graded_profile(WHOLE, beside, threads=2, on_gpu=True, environment=TWO)
    assert "CPU_SHARED" not in {flag.name for flag in on_gpu.flags}  # there one thread submits
    assert graded_profile(WHOLE, usage(others_percent=150.0), threads=2, on_gpu=True, environment=TWO).grade == "C"


def test_other_users_of_the_gpu_count_on_a_gpu() -> None:
    fields: dict[str, Any] = dict.fromkeys(GpuUsage.model_fields)
    busy = GpuUsage(**{**fields, "reasons": {"hw_thermal": 0.5}, "other_processes_max": 1, "samples": 8})
    watched = profile_grades.timed_usage(usage())
    assert watched is not None
    of_the_card = watched.model_copy(update={"gpu": busy})
    result, unmade = profile_grades.flags_host.profile_findings(of_the_card, 2, True, TWO)
    assert [(entry.flag.name, entry.caps_at) for entry in result] == [("THERMAL", "C"), ("GPU_SHARED", "C")]
    assert unmade == {}
    assert profile_grades.flags_host.profile_findings(of_the_card, 2, False, TWO) == ([], {})


def test_missing_evidence_never_improves_a_grade() -> None:
    unwatched = graded_profile(WHOLE, None, 2, False, TWO)
    assert (unwatched.grade, [flag.name for flag in unwatched.flags]) == ("C", ["UNWATCHED"])
    nothing_timed = usage_of("a-case", 1, [usage_sample(250_000_000, "load")])
    assert graded_profile(WHOLE, nothing_timed, 2, False, TWO).flags == unwatched.flags


def test_one_too_short_to_be_judged_is_capped_and_names_the_checks() -> None:
    result = graded_profile(WHOLE, usage(0.2, others_percent=90.0), 2, False, TWO)
    assert (result.grade, [flag.name for flag in result.flags]) == ("B", ["UNCHECKED"])
    assert result.flags[0].detail.startswith("CPU_SHARED, STEAL not judged (")
    assert "PROFILE_RUNS=200" in result.flags[0].remedy
    assert reason_for_doubt(result, False) is None


def test_repeats_that_do_not_agree_show_nothing() -> None:
    result = graded_profile(repeated((100, 120, 100, 120, 100))[0], usage(), 2, False, TWO)
    assert (result.grade, [flag.name for flag in result.flags]) == ("C", ["NOT_WARMED_UP"])
    assert result.flags[0].detail == (
        "after 5 repeats the parts sum to 1.00 of the plain latency, in the repeat before to 1.20: more than 5% apart"
    )


def test_parts_that_do_not_explain_the_latency_show_nothing_at_any_grade() -> None:
    result = graded_profile(profile(20, 100, 100).model_copy(update={"steady": True}), usage(), 2, False, TWO)
    assert grade_of(result) == "A"
    assert reason_for_doubt(result, False) == (
        "its parts are 0.20 of the plain latency, and nothing measured covers the difference"
    )
    alone = PartsProfile(
        layers=(),
        operators=(OperatorRow(name="mm", shapes="", calls=1, self_cpu_ns=95, self_device_ns=None),),
        traces=(),
        window_ns=100,
        plain_ns=100,
        grade="A",
    )
    assert reason_for_doubt(alone, False) is None


def published() -> list[Path]:
    return sorted((ROOT / "results" / "published").glob("*/*/profiles/*/parts.json"))


@pytest.mark.parametrize("path", published(), ids=lambda path: path.parent.name)
def test_published_profiles_stay_readable_and_count_as_not_watched_where_they_were_not(path: Path) -> None:
    result = store.load(path, PartsProfile, "make profile")
    if "grade" in json.loads(path.read_bytes()):
        return
    assert (grade_of(result), [flag.name for flag in flags_of(result)]) == ("B", ["UNWATCHED"])
    assert (result.ratios, result.steady, result.usage, result.launch_gaps) == ((), None, None, None)
