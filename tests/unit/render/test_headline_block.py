"""The README's block: single cells of the GPU's table, and that of a run at batch 1."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.schemas import Interval, Row, Summary
from harness.render.headline_block import batch_1_table, gpu_table, headline_block
from tests.synthetic_cuda import cuda_summary
from tests.synthetic_results import voided

SUMMARY = cuda_summary()
ROWS = [row for row in SUMMARY.rows if row.model == "bert-base" and row.latency_ns and not row.tried]
TENSORRT = [row for row in ROWS if row.backend == "tensorrt" and row.grade == "A"]


def lines(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()][2:]


def one(rows: list[Row], place: int, **changes: Any) -> list[Row]:
    return [voided(row.model_copy(update=changes)) if index == place else row for index, row in enumerate(rows)]


def test_every_batch_is_a_column_and_a_setting_that_holds_for_all_stands_once() -> None:
    (line,) = lines(gpu_table(TENSORRT))
    assert line[:4] == ["bert-base (seeded weights), sequence 128", "tensorrt", "fp16", "static+graph"]
    assert line[4:] == ["0.626", "1.02", "2.39", "7.84", "16,200", "A"]  # nobody to win against


def test_settings_that_differ_name_their_batches() -> None:
    rows = one(one(TENSORRT, 2, setting="dynamic+graph"), 3, setting="dynamic+graph")
    (line,) = lines(gpu_table(rows))
    assert line[3] == "static+graph (1, 8), dynamic+graph (32, 128)"


def test_grades_that_differ_stand_in_order_and_void_rows_show_no_figure() -> None:
    rows = one(one(TENSORRT, 1, grade="C"), 3, grade="F")
    (line,) = lines(gpu_table(rows))
    assert line[4:] == ["0.626", "*1.02*", "2.39", "void", "–", "A C A F"]


def test_bold_is_the_clear_winner_of_a_batch_alone() -> None:
    wide = [
        row.model_copy(update={"latency_ns": row.latency_ns.model_copy(update={"ci95": Interval(low=1, high=1e9)})})
        for row in ROWS
        if row.latency_ns
    ]
    assert gpu_table(ROWS).count("**") == 2 * 4
    assert "**" not in gpu_table(wide)


def test_a_batch_that_was_not_measured_is_a_dash() -> None:
    first = lines(gpu_table([*TENSORRT[:1], *(row for row in ROWS if row.backend == "torch-compile")]))
    assert next(line for line in first if line[1] == "tensorrt")[5:] == ["–", "–", "–", "–", "A"]


def test_copies_and_tried_settings_stand_in_the_report_alone() -> None:
    text = headline_block(SUMMARY, "x")
    models = [line[0] for line in lines("\n".join(row for row in text.splitlines() if row.startswith("|")))]
    assert len(models) == 3 * 6
    for part in ("NVIDIA H100", "driver 570", "tensorrt 8.6.0", "CUDA events", "3 rounds", "(x/charts/overview.png)"):
        assert part in text


def test_a_cpu_run_shows_its_rows_at_batch_1(summary: Summary) -> None:
    text = headline_block(summary, "x")
    found = lines("\n".join(row for row in text.splitlines() if row.startswith("|")))
    measured = [row for row in summary.rows if row.batch_size == 1 and row.latency_ns and row.backend != "noop"]
    assert len(found) == len(measured)
    assert "Batch 1, sequence 32, sequence 128." in text


@pytest.mark.parametrize(("grade", "figure"), [("A", "0.626"), ("F", "void")])
def test_void_rows_show_no_figure_at_batch_1(grade: str, figure: str) -> None:
    (line,) = lines(batch_1_table([voided(TENSORRT[0].model_copy(update={"grade": grade}))]))
    assert line[3] == figure
