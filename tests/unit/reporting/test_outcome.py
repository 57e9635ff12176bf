"""The line of JSON at the end of `bench --json`."""

from __future__ import annotations

import json

from harness.core.schemas import Interval, Row, Summary
from harness.reporting.first_page import outcome
from tests.synthetic_results import voided


def with_rows(summary: Summary, rows: list[Row]) -> Summary:
    return summary.model_copy(update={"rows": tuple(rows)})


def timed(row: Row, median_ms: float, low_ms: float, high_ms: float, grade: str = "A") -> Row:
    assert row.latency_ns is not None
    interval = Interval(low=low_ms * 1e6, high=high_ms * 1e6)
    latency = row.latency_ns.model_copy(update={"median": median_ms * 1e6, "ci95": interval})
    return voided(row.model_copy(update={"latency_ns": latency, "grade": grade, "flags": (), "tried": False}))


def test_a_run_that_has_nothing_yet_says_so() -> None:
    nothing = {"exit_code": 2, "plan_id": None, "rows": None, "grades": None, "fastest": None}
    assert json.loads(outcome(2, None, None)) == nothing
    assert json.loads(outcome(6, "d351ae91c14e", None)) == {**nothing, "exit_code": 6, "plan_id": "d351ae91c14e"}


def test_it_is_one_line_and_counts_every_row(summary: Summary) -> None:
    text = outcome(10, summary.plan_id, summary)
    assert "\n" not in text
    said = json.loads(text)
    assert sum(said["rows"].values()) == len(summary.rows)
    assert sum(said["grades"].values()) == sum(row.grade is not None for row in summary.rows)
    assert said["rows"]["failed"] == sum(row.status == "failed" for row in summary.rows) > 0


def test_the_fastest_is_the_fastest_that_may_be_ranked(rows: dict[str, Row], summary: Summary) -> None:
    names = ["resnet50-openvino-cpu-fp32-b1", "resnet50-onnxruntime-cpu-fp32-b1", "resnet50-torch-eager-cpu-fp32-b1"]
    first, second, third = (rows[name] for name in names)
    results = [timed(first, 10, 9.9, 10.1), timed(second, 11, 10.8, 11.2), timed(third, 5, 4.9, 5.1, "F")]
    said = json.loads(outcome(0, summary.plan_id, with_rows(summary, results)))["fastest"]
    assert said == {"resnet50": {"case_id": names[0], "median_ms": 10.0, "grade": "A", "undecided": False}}


def test_where_another_may_be_as_fast_it_is_undecided(rows: dict[str, Row], summary: Summary) -> None:
    first, second = rows["resnet50-openvino-cpu-fp32-b1"], rows["resnet50-onnxruntime-cpu-fp32-b1"]
    clear = timed(first, 10, 9.9, 10.1)
    for rival in (timed(second, 11, 10.0, 12.0), timed(second, 9, 8.9, 9.1, "C")):
        said = json.loads(outcome(0, summary.plan_id, with_rows(summary, [clear, rival])))["fastest"]
        assert said["resnet50"]["undecided"] is True


def test_a_model_without_a_ranked_row_has_none(rows: dict[str, Row], summary: Summary) -> None:
    void = timed(rows["resnet50-openvino-cpu-fp32-b1"], 10, 9.9, 10.1, "F")
    assert json.loads(outcome(0, summary.plan_id, with_rows(summary, [void])))["fastest"] == {"resnet50": None}


def test_the_only_valid_row_is_not_undecided(rows: dict[str, Row], summary: Summary) -> None:
    alone = timed(rows["resnet50-openvino-cpu-fp32-b1"], 10, 9.9, 10.1, "B")
    void = timed(rows["resnet50-onnxruntime-cpu-fp32-b1"], 11, 10.8, 11.2, "F")
    said = json.loads(outcome(0, summary.plan_id, with_rows(summary, [alone, void])))["fastest"]
    assert said["resnet50"]["undecided"] is False
