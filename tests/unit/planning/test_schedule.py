"""The order of a run."""

from __future__ import annotations

from itertools import groupby

from harness.core.schemas import Case
from harness.planning.schedule import paired_rounds, round_turns, schedule
from tests import synthetic_results as made

CASES = made.matrix(made.REALISTIC)


def group(case: Case) -> tuple[str, int, int | None]:
    return case.model, case.batch_size, case.sequence_length


def test_every_runnable_case_once_a_round() -> None:
    skipped = {case.case_id for case in CASES if case.skip_reason}
    turns = schedule(CASES, 3, seed=1)
    assert skipped
    for number in (1, 2, 3):
        ids = [case.case_id for entry, case in turns if entry == number]
        assert sorted(ids) == sorted(case.case_id for case in CASES if case.case_id not in skipped)
    assert [number for number, _ in turns] == sorted(number for number, _ in turns)


def test_compared_cases_run_side_by_side() -> None:
    turns = schedule(CASES, 2, seed=1)
    runs = [key for key, _ in groupby(turns, key=lambda turn: (turn[0], group(turn[1])))]
    assert len(runs) == len(set(runs)) == 2 * len({group(case) for case in CASES})


def test_the_same_seed_gives_the_same_order_and_another_seed_another() -> None:
    assert schedule(CASES, 3, seed=5) == schedule(CASES, 3, seed=5)
    assert schedule(CASES, 3, seed=5) != schedule(CASES, 3, seed=6)


def test_a_round_more_leaves_the_earlier_rounds_as_they_were() -> None:
    assert schedule(CASES, 4, seed=5)[: len(schedule(CASES, 3, seed=5))] == schedule(CASES, 3, seed=5)


def test_groups_and_cases_within_them_come_in_another_order_each_round() -> None:
    turns = schedule(CASES, 2, seed=3)
    first, second = ([case for number, case in turns if number == wanted] for wanted in (1, 2))
    assert [key for key, _ in groupby(first, key=group)] != [key for key, _ in groupby(second, key=group)]
    key = group(first[0])
    assert {c.case_id for c in first if group(c) == key} == {c.case_id for c in second if group(c) == key}
    assert [[c for c in first if group(c) == key] for key in sorted({group(c) for c in first}, key=repr)] != [
        [c for c in second if group(c) == key] for key in sorted({group(c) for c in first}, key=repr)
    ]


def test_no_case_is_always_first_of_its_group() -> None:
    turns = schedule(made.matrix([made.RESNET], batch_sizes=(1,)), 40, seed=9)
    first = {next(case.backend for number, case in turns if number == wanted) for wanted in range(1, 41)}
    assert len(first) >= 4


def test_nothing_to_run_is_no_turn() -> None:
    assert schedule([case for case in CASES if case.skip_reason], 3, seed=1) == []


def test_of_two_states_each_goes_first_as_often_and_which_is_drawn() -> None:
    rounds = paired_rounds(CASES, 10, seed=1)
    assert [[turn for turn, _ in pairs] for pairs in rounds] == [
        round_turns(CASES, number, 1) for number in range(1, 11)
    ]
    first: dict[str, list[bool]] = {}
    for pairs in rounds:
        for (_, case), goes_first in pairs:
            first.setdefault(case.case_id, []).append(goes_first)
    assert {sum(entry) for entry in first.values()} == {5}
    assert all(each != other for entry in first.values() for each, other in zip(entry[::2], entry[1::2], strict=True))
    assert len(set(map(tuple, first.values()))) > len(first) // 4
