"""Runs of a store: ids, machine keys, boundaries, and the states of shifts."""

from __future__ import annotations

from typing import Any

import pytest

from harness.comparison.run_history import analyse, boundaries_of, run_of, series_of, with_decision
from harness.core.schemas import (
    Comparison,
    Decision,
    HistoryPoint,
    HistoryRun,
    Interval,
    Shift,
)
from harness.reporting.html import history_page
from harness.statistics import change_points
from tests import synthetic_results as made
from tests.synthetic_history import AT, ab, candidate, nights, run, summary


def test_the_same_run_has_the_same_id_and_another_commit_or_time_another() -> None:
    first, again = run_of(summary(), "a" * 40), run_of(summary(), "a" * 40)
    assert first is not None
    assert first == again
    assert first.commit == "a" * 40
    other, later = run_of(summary(), "b" * 40), run_of(summary().model_copy(update={"measured_from": AT}), "a" * 40)
    assert other is not None
    assert later is not None
    assert len({first.run_id, other.run_id, later.run_id}) == 3
    assert first.run_id.startswith("20261127T1")


def test_a_run_without_a_measured_row_is_none() -> None:
    assert run_of(summary().model_copy(update={"rows": ()}), None) is None


def test_another_processor_is_another_series_and_another_library_a_boundary() -> None:
    def of(**changes: Any) -> HistoryRun:
        result = summary()
        environment = {made.ENVIRONMENT_ID: made.environment(**changes)}
        record = run_of(result.model_copy(update={"environments": environment}), None)
        assert record is not None
        return record

    usual, other = of(), of(cpu="Another CPU")
    newer = of(libraries={"torch": "3.0", "onnxruntime": "1.31.1", "openvino": "2026.4.0", "numpy": "2.4.6"})
    assert usual.machine_key != other.machine_key
    assert usual.machine_key == newer.machine_key
    changed = newer.model_copy(update={"run_id": "z", "measured_from": AT})
    (boundary,) = boundaries_of([usual, changed])
    assert boundary.changes == ("library torch: 2.14.1 → 3.0",)
    assert boundary.after_run == "z"
    assert boundaries_of([usual, other]) == []


def test_a_step_is_a_candidate_with_its_commits() -> None:
    history = analyse(nights([1.0] * 15 + [1.1] * 10), [], AT)
    assert {shift.state for shift in history.shifts} == {"candidate"}
    assert len(history.shifts) == 3
    first = history.shifts[0]
    assert (first.before_run, first.after_run) == ("n14", "n15")
    assert first.commits == (f"{14:040x}", f"{15:040x}")
    assert first.ratio == pytest.approx(1.1, rel=0.002)
    assert history.series[0].stretch == 10
    assert history.series[0].smallest_visible is not None


def test_a_step_at_a_change_of_environment_is_no_candidate() -> None:
    runs = [
        night.model_copy(update={"conditions": {"driver": "1" if n < 15 else "2"}})
        for n, night in enumerate(nights([1.0] * 15 + [1.1] * 10))
    ]
    history = analyse(runs, [], AT)
    assert history.shifts == ()
    assert [boundary.changes for boundary in history.boundaries] == [("driver: 1 → 2",)]


def test_missing_nights_and_cases_do_not_move_a_series() -> None:
    runs = nights([1.0] * 12 + [1.1] * 12)
    name = next(iter(runs[0].points))
    without = {key: point for key, point in runs[12].points.items() if key != name}
    runs[12] = runs[12].model_copy(update={"points": without})
    kept = [entry for number, entry in enumerate(runs) if number not in (3, 4)]
    by_case = {shift.case_id: shift.after_run for shift in analyse(kept, [], AT).shifts}
    assert by_case.pop(name) == "n13"
    assert set(by_case.values()) == {"n12"}


def named(shift: Shift) -> Shift:
    return shift.model_copy(update={"commits": ("aaaaaaaaaabb", "bbbbbbbbbbcc")})


@pytest.mark.parametrize(
    ("verdict", "ratio", "state"),
    [("SLOWER", 1.09, "confirmed"), ("FASTER", 0.9, "refuted"), ("SAME", 1.001, "refuted")],
)
def test_an_ab_run_of_both_commits_decides(verdict: str, ratio: float, state: str) -> None:
    result = with_decision(
        named(candidate()), ab(verdict, ratio, "commit aaaaaaaaaa (HEAD~1)", "working folder at bbbbbbbbbb")
    )
    assert isinstance(result, Shift)
    assert (result.state, result.verdict, result.verdict_ratio) == (state, verdict, ratio)


@pytest.mark.parametrize(
    ("comparison", "reason"),
    [
        (ab("AMBIGUOUS", 1.02, "commit aaaaaaaaaa", "working folder at bbbbbbbbbb"), "AMBIGUOUS"),
        (ab("SLOWER", 1.1, "commit cccccccccc", "working folder at bbbbbbbbbb"), "it measured commit cccccccccc"),
        (ab("SLOWER", 1.1, "commit aaaaaaaaaa", "working folder at bbbbbbbbbb, changed"), "changed"),
        (ab("SLOWER", 1.1, "folder x", "working folder"), "it measured folder x"),
    ],
)
def test_another_ab_run_decides_nothing(comparison: Comparison, reason: str) -> None:
    result = with_decision(named(candidate()), comparison)
    assert isinstance(result, str)
    assert reason in result


def test_a_decided_shift_is_a_known_boundary_and_stays_in_the_table() -> None:
    runs = nights([1.0] * 15 + [1.1] * 10)
    shifts = [shift.model_copy(update={"state": "confirmed"}) for shift in analyse(runs, [], AT).shifts]
    decisions = [Decision(created_at=AT, shift=shift, against=None, here=None) for shift in shifts]
    history = analyse([*runs, run(25, 1.1)], decisions, AT)
    assert [shift.state for shift in history.shifts] == ["confirmed"] * 3
    series = series_of(runs, [], decisions)
    assert {entry.boundaries for entry in series} == {(15,)}


def test_the_interval_of_a_shift_is_around_it() -> None:
    result = candidate()
    assert isinstance(result.ci95, Interval)
    assert result.ci95.low < result.ratio < result.ci95.high


def test_a_history_of_many_series_has_lines_for_some_and_the_same_shifts(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = many_nights()
    expected = analyse(runs, [], AT)
    monkeypatch.setattr(change_points, "AT_ONCE", 2)  # by several processes
    monkeypatch.setattr(history_page, "MAX_SERIES", 2)
    history = analyse(runs, [], AT)
    assert history == expected
    assert [shift.case_id for shift in history.shifts] == ["case-4"]
    page = history_page.page_data(history, runs)
    assert [entry["name"] for entry in page["series"]] == ["case-0", "case-4"]
    assert "2 of 5 series have a line here" in history_page.history_page(history, runs)


def many_nights() -> list[HistoryRun]:
    """Five cases, of which the last becomes slower."""
    results = []
    for night, single in enumerate(nights([1.0] * 25)):
        point = next(iter(single.points.values()))
        factors = {f"case-{number}": 1.2 if number == 4 and night >= 15 else 1.0 for number in range(5)}
        points = {name: slower(point, factor) for name, factor in factors.items()}
        results.append(single.model_copy(update={"points": points}))
    return results


def slower(point: HistoryPoint, factor: float) -> HistoryPoint:
    return point.model_copy(
        update={"process_medians": tuple(process_median * factor for process_median in point.process_medians)}
    )
