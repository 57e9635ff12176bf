"""How long a run still takes, from what its finished turns took (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median

from harness.core.schemas import Case, Running
from harness.core.timestamps import seconds_between

Took = Mapping[tuple[str, int], float | None]
"""(case id, round) → seconds; None where nobody watched."""


def expected_s(cases: Sequence[Case], took: Took) -> dict[str, float]:
    """Seconds that a turn of each case takes, by case id; empty while no turn is known.

    What is nearest decides: turns of the case, of its model in its backend, of its backend, of the run.
    """
    known: dict[tuple[str, ...], list[float]] = {}
    by_id = {case.case_id: case for case in cases}
    for (name, _), seconds in took.items():
        if seconds is not None and name in by_id:
            for key in _keys(by_id[name]):
                known.setdefault(key, []).append(seconds)
    return {case.case_id: median(next(known[key] for key in _keys(case) if key in known)) for case in cases if known}


def left_s(run: Running, owed: Sequence[tuple[Case, int]], expected: Mapping[str, float], now: str) -> float | None:
    """Seconds until a run ends; None while no turn is known. Rounds that it may still ask for do not count.

    owed: turns without an answer. A run has others where it measures again what is there, or where tuning will drop
    some; they are taken to last as long as the average one.
    """
    if not expected:
        return None
    between = all((case.case_id, number) != (run.case_id, run.round) for case, number in owed)
    count = run.turns - run.done - between
    own = [expected[case.case_id] for case, _ in owed]
    total = sum(own) if count == len(own) else count * mean(expected.values())
    current = 0.0 if between else min(seconds_between(run.since, now), expected.get(run.case_id, 0.0))
    return max(0.0, total - max(0.0, current))


def _keys(case: Case) -> tuple[tuple[str, ...], ...]:
    return ((case.case_id,), (case.model, case.backend), ("", case.backend), ())
