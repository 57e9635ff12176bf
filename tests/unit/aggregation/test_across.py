"""What only several rows together show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.aggregation.across_rows import measured_apart, nonmonotone
from harness.aggregation.flags import GroupKey
from harness.aggregation.grades import finding
from harness.aggregation.row import Context, Draft, build_row
from harness.core.schemas import Interval, Row
from tests.synthetic_results import EFFICIENTNET, Synthetic, matrix, voided

ROWS = Synthetic(models=(EFFICIENTNET,), cases=matrix((EFFICIENTNET,), backends=("noop", "openvino"))).summary().rows

DRAFT = Draft(ROWS[-1].model_copy(update={"grade": None, "flags": (), "checks": {}}))


def row(batch: int, low: float, high: float, backend: str = "openvino", **changes: Any) -> Row:
    """A row with a given interval in ms."""
    result = next(
        entry for entry in ROWS if (entry.backend, entry.precision, entry.batch_size) == (backend, "fp32", batch)
    )
    assert result.latency_ns is not None
    ends = Interval(low=low * 1e6, high=high * 1e6)
    latency = result.latency_ns.model_copy(update={"median": (low + high) / 2 * 1e6, "ci95": ends})
    return result.model_copy(update={"latency_ns": latency, **changes})


def flagged(*rows: Row) -> list[str]:
    return list(nonmonotone(rows))


def test_rows_that_grow_with_the_batch_are_left_alone() -> None:
    assert flagged(*ROWS) == []


def test_a_small_batch_that_is_slower_than_a_larger_one_is_flagged() -> None:
    rows = [row(1, 6.1, 6.2), row(4, 3.8, 3.9), row(16, 9.0, 9.1)]
    result = nonmonotone(rows)
    assert list(result) == [rows[0].case_id]
    flag = result[rows[0].case_id].flag
    assert (flag.name, flag.detail) == ("NONMONOTONE", "batch 1 takes 6.15 ms and batch 4 only 3.85 ms")
    assert build_row(DRAFT, Context(slower=result[rows[0].case_id])).grade == "B"


@pytest.mark.parametrize("larger", [(5.9, 6.15), (6.1, 6.2)])
def test_intervals_that_overlap_prove_nothing(larger: tuple[float, float]) -> None:
    assert flagged(row(1, 6.1, 6.2), row(4, *larger)) == []


def test_other_rows_are_not_compared() -> None:
    slow, fast = row(1, 6.1, 6.2), row(4, 3.8, 3.9)
    for change in ({"grade": "F"}, {"boundary": "e2e"}, {"mode": "offline"}, {"precision": "bf16"}, {"model": "x"}):
        assert flagged(slow, voided(fast.model_copy(update=change))) == []
    one_round = fast.latency_ns and fast.latency_ns.model_copy(update={"ci95": None})
    assert flagged(slow, fast.model_copy(update={"latency_ns": one_round})) == []
    assert flagged(row(1, 6.1, 6.2, "noop"), row(4, 3.8, 3.9, "noop")) == []


def test_a_worse_grade_stays() -> None:
    slower = nonmonotone([row(1, 6.1, 6.2), row(4, 3.8, 3.9)])[row(1, 6.1, 6.2).case_id]
    disturbed = replace(DRAFT, findings=(finding("C", "DRIFT", "", ""),))
    result = build_row(disturbed, Context(slower=slower))
    assert (result.grade, [flag.name for flag in result.flags]) == ("C", ["DRIFT", "NONMONOTONE"])


def at(case: Row, *times: str) -> Draft:
    return Draft(case, started=tuple(f"2026-11-{time}:00+00:00" for time in times))


@pytest.mark.parametrize(
    ("times", "apart"),
    [
        (("27T10:00", "27T11:00"), False),
        (("27T12:01", "27T12:30"), False),
        (("27T12:02", "27T12:30"), True),
        (("26T10:00", "26T11:00"), True),
        (("26T10:00", "27T11:00"), False),
    ],
)
def test_rows_that_were_not_measured_in_turn_are_less_certain(times: tuple[str, ...], apart: bool) -> None:
    base, other = row(1, 6, 7), row(1, 8, 9, case_id="other")
    drafts = [at(base, "27T10:00", "27T11:01"), at(other, *times)]
    key = GroupKey.of(base).without("backend", "precision", "setting")
    found = measured_apart(drafts, {key: base})
    assert list(found) == (["other"] if apart else [])
    if apart:
        ((only,),) = found.values()
        assert (only.flag.name, only.caps_at) == ("MEASURED_APART", "B")
        assert f"and {base.case_id} from 2026-11-27 10:00 UTC on" in only.flag.detail


def test_without_a_baseline_the_older_rows_are_less_certain() -> None:
    old, new = row(1, 6, 7), row(1, 8, 9, case_id="new")
    assert list(measured_apart([at(old, "20T10:00"), at(new, "27T10:00")], {})) == [old.case_id]
    assert measured_apart([at(old, "20T10:00"), at(row(4, 8, 9), "27T10:00")], {}) == {}, "another batch size"
