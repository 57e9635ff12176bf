"""What further rounds would make surer: how many rows are wide, the command, and about how long it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from harness.aggregation.row import latency_of
from harness.core.schemas import Row, Summary
from harness.reporting.prose.recommendations import further_rounds_text
from tests.synthetic_results import RESNET, Synthetic, case_of, measured, usage_of, voided

CASES = [case_of(RESNET, backend, "fp32", 1) for backend in ("torch-eager", "onnxruntime", "openvino")]
SUMMARY = Synthetic((RESNET,), CASES, samples=100).summary()
LIFE_NS = 4_000_000_000


def row(index: int, medians: Sequence[float], **changes: Any) -> Row:
    """A row whose processes had these medians, and took 4 s each."""
    result = SUMMARY.rows[index]
    records = [measured(CASES[index], RESNET, number, 100) for number in range(1, len(medians) + 1)]
    same = [
        record.model_copy(update={"latency_ns": (round(value * 1e6),) * 100})
        for record, value in zip(records, medians, strict=True)
    ]
    assert result.usage is not None
    usage = result.usage.model_copy(update={"process_ns": LIFE_NS})
    return voided(result.model_copy(update={"latency_ns": latency_of(same), "usage": usage, **changes}))


def summary(*rows: Row) -> Summary:
    return SUMMARY.model_copy(update={"rows": rows})


NARROW, WIDE = (10.0, 10.1, 10.2), (10.0, 10.5, 11.0)
TWO_SPEEDS = (10.0, 10.1, 13.8, 13.9, 10.0)


def test_nothing_is_said_where_every_row_is_narrow() -> None:
    assert further_rounds_text(summary(row(0, NARROW), row(1, NARROW))) == ""


def test_the_command_its_time_and_the_number_of_wide_rows() -> None:
    said = further_rounds_text(summary(row(0, NARROW), row(1, WIDE), row(2, WIDE)))
    # Scatter of 4.8% takes nine rounds (3.1 x 4.8 / sqrt(9) = 4.9): two rows x 6 x 4 s, and what lies around.
    assert said == ("2 of 3 rows are wider than ±5%. To be surer: `make bench INTERVAL=5% BUDGET=2m`, about 2 min.")


def test_rows_that_no_number_of_rounds_narrows_are_distinguished() -> None:
    said = further_rounds_text(summary(row(0, WIDE), row(1, TWO_SPEEDS)))
    assert said.startswith("2 of 2 rows are wider than ±5%.")
    assert said.endswith("For 1 of them 20 rounds would not be enough.")
    assert "`" not in further_rounds_text(summary(row(1, TWO_SPEEDS)))


def test_a_row_that_met_its_limit_of_rounds_needs_a_higher_one() -> None:
    assert "MAX_ROUNDS=20`" in further_rounds_text(summary(row(0, WIDE, stopped="round limit")))


def test_no_time_is_guessed_without_records_of_the_monitor() -> None:
    said = further_rounds_text(summary(row(0, WIDE, usage=None)))
    assert said.endswith("`make bench INTERVAL=5%`.")


def test_void_rows_and_those_that_compute_nothing_are_not_counted() -> None:
    assert further_rounds_text(summary(row(0, WIDE, grade="F"))) == ""
    assert further_rounds_text(summary(row(0, WIDE, tried=True))) == ""


def test_the_life_of_a_process_is_the_monitors() -> None:
    usage = SUMMARY.rows[0].usage
    assert usage is not None
    assert usage.process_ns == usage_of(CASES[0].case_id, 1).watched_ns
    assert math.isfinite(usage.process_ns or math.inf)


def test_a_row_of_one_process_has_no_width() -> None:
    assert further_rounds_text(summary(row(0, (10.0,)))).startswith("1 of 1 row has no interval.")
    both = further_rounds_text(summary(row(0, (10.0,)), row(1, WIDE)))
    assert both.startswith("2 of 2 rows are wider than ±5% or have no interval.")
