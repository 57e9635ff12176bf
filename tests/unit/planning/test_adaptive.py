"""Which further rounds a run takes."""

from __future__ import annotations

from typing import Any

from harness.core.schemas import Measurement
from harness.planning.schedule import Medians, further_turns
from tests.synthetic_results import RESNET, case_of

WIDE, NARROW = {1: 100.0, 2: 110.0, 3: 120.0}, {1: 100.0, 2: 100.1, 3: 100.2}
CASES = [case_of(RESNET, backend, "fp32", batch) for batch in (1, 4) for backend in ("torch-eager", "openvino")]
FIRST, SECOND, THIRD, FOURTH = (case.case_id for case in CASES)


def turns(medians: Medians, elapsed_s: float = 0.0, failed: Any = (), **changes: Any) -> list[tuple[int, str]]:
    settings = Measurement(**{"rounds": 3, "max_rounds": 6, **changes})
    return [(number, case.case_id) for number, case in further_turns(CASES, medians, settings, elapsed_s, failed)]


def test_one_more_round_for_each_case_that_is_still_wide() -> None:
    results = turns({FIRST: WIDE, SECOND: NARROW, THIRD: {**WIDE, 4: 90.0}})
    assert sorted(results) == [(4, FIRST), (5, THIRD)]


def test_none_unless_the_plan_allows_them() -> None:
    assert turns({FIRST: WIDE}, max_rounds=None) == []
    assert turns({FIRST: WIDE}, max_rounds=3) == []


def test_none_when_the_budget_is_spent() -> None:
    assert turns({FIRST: WIDE}, 59.9, budget_s=60.0) == [(4, FIRST)]
    assert turns({FIRST: WIDE}, 60.0, budget_s=60.0) == []


def test_cases_that_failed_are_not_extended() -> None:
    assert turns({FIRST: WIDE, SECOND: WIDE}, failed=[SECOND]) == [(4, FIRST)]


def test_cases_that_were_never_measured_are_not_extended() -> None:
    assert turns({}) == []


def test_one_process_has_no_interval_and_wants_another() -> None:
    assert turns({FIRST: {1: 100.0}}, rounds=1) == [(2, FIRST)]


def test_the_target_decides() -> None:
    assert turns({FIRST: NARROW}, target_interval=0.0001) == [(4, FIRST)]


def test_the_widest_come_first_at_any_place_in_the_plan() -> None:
    wider = {1: 100.0, 2: 150.0, 3: 200.0}
    medians: Medians = {FIRST: WIDE, SECOND: wider, THIRD: {1: 100.0}, FOURTH: {**wider, 4: 120.0}}
    results = turns(medians)
    # One process has no interval at all; four are narrower than three.
    assert results == [(2, THIRD), (4, SECOND), (5, FOURTH), (4, FIRST)]
    assert results == turns(dict(reversed(medians.items())))


def test_each_gets_one_round_before_any_gets_two() -> None:
    medians: dict[str, dict[int, float]] = {FIRST: dict(WIDE), SECOND: {1: 100.0, 2: 150.0, 3: 200.0}}
    given = []
    while results := turns(medians, max_rounds=5):
        given.append(sorted(case_id for _, case_id in results))
        for number, case_id in results:
            medians[case_id][number] = 200.0 if number == 4 else 100.0
    assert given == [sorted([FIRST, SECOND])] * 2


def test_it_comes_to_an_end() -> None:
    medians: dict[str, dict[int, float]] = {FIRST: dict(WIDE)}
    for _ in range(3):
        ((number, _case),) = turns(medians)
        medians[FIRST][number] = 100.0 * number
    assert max(medians[FIRST]) == 6
    assert turns(medians) == []
