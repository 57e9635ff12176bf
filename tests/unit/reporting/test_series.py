"""Names of rows: one series over batches, and settings distinguished only where they must be."""

from __future__ import annotations

from typing import Any

from harness.core.schemas import Row
from harness.reporting.ranking import (
    drawable,
    line_numbers,
    row_name,
    series_labels,
    setting_columns,
)
from tests.synthetic_cuda import cuda_summary
from tests.synthetic_results import voided

ROWS = {row.case_id: row for row in cuda_summary().rows}
STATIC = ROWS["bert-base-tensorrt-cuda-fp16-b8-s128-static+graph"]
DYNAMIC = ROWS["bert-base-tensorrt-cuda-fp16-b8-s128-dynamic+graph"]
EAGER = ROWS["bert-base-torch-eager-cuda-fp16-b8-s128"]


def changed(row: Row, **changes: Any) -> Row:
    return voided(row.model_copy(update={"case_id": f"{row.case_id}-{changes}", **changes}))


def test_a_sentence_names_the_setting_that_is_not_the_usual() -> None:
    assert row_name(STATIC) == "tensorrt fp16 (static+graph)"
    assert row_name(EAGER) == "torch-eager fp16"
    assert list(setting_columns([EAGER])) == []
    assert [cell(STATIC) for cell in setting_columns([EAGER, STATIC]).values()] == ["static+graph"]


def test_a_series_may_change_its_setting_with_the_batch() -> None:
    larger = changed(DYNAMIC, batch_size=32)
    assert set(series_labels([STATIC, larger]).values()) == {"tensorrt fp16"}


def test_two_settings_of_one_shape_are_distinguished_at_every_batch() -> None:
    larger = changed(STATIC, batch_size=32)
    results = series_labels([STATIC, DYNAMIC, larger, EAGER])
    assert results[larger.case_id] == results[STATIC.case_id] == "tensorrt fp16 static+graph"
    assert results[DYNAMIC.case_id] == "tensorrt fp16 dynamic+graph"
    assert results[EAGER.case_id] == "torch-eager fp16"


def test_a_case_without_a_figure_is_drawn_unless_another_setting_has_one() -> None:
    void = changed(DYNAMIC, grade="F")
    failed = changed(DYNAMIC, latency_ns=None, status="failed")
    assert drawable([STATIC, void, failed]) == [STATIC]
    assert drawable([void, failed, EAGER]) == [void, failed, EAGER]
    elsewhere = changed(failed, batch_size=32)
    assert drawable([STATIC, elsewhere]) == [STATIC, elsewhere]


def test_lines_of_one_backend_and_precision_are_numbered_with_the_usual_setting_first() -> None:
    usual, other = changed(EAGER, setting="default"), changed(EAGER, setting="graph")
    numbers = {"torch-eager fp16 default": 0, "torch-eager fp16 graph": 1}
    assert line_numbers([other, usual]) == line_numbers([usual, other]) == numbers
    # A series that changes its setting with the batch is one line.
    assert line_numbers([STATIC, changed(DYNAMIC, batch_size=32)]) == {"tensorrt fp16": 0}
