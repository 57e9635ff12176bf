"""Rows of different boundary or mode: own tables, own charts, own winners, own conditions; nothing across."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from harness.core.schemas import Case, Measured, Row, SplitSamples, Summary
from harness.reporting import ranking
from harness.reporting.charts import selection
from harness.reporting.charts.latency_charts import overview
from harness.reporting.charts.rows import TableRows
from harness.reporting.charts.spec import Spec
from harness.reporting.details import document
from harness.reporting.first_page import answer_table
from harness.reporting.prose import recommendations
from harness.reporting.prose.boundaries import BOUNDARIES, BRIEF, MODES, boundary_and_mode
from harness.reporting.tables.latency_table import latency_table, terminal_table
from harness.reporting.writers.csv import summary_text
from harness.reporting.writers.markdown import blocks_text, table_text
from tests import synthetic_results as made

FACTOR = {"compute sync": 1.0, "e2e sync": 1.6, "compute pipelined": 1.9, "compute offline": 0.5}
"""Offline times are the smallest by far: mixed with others, they would win everything."""


def ways(case: Case) -> list[Case]:
    kinds = [name.split() for name in FACTOR]
    return [
        case.model_copy(
            update={"case_id": f"{case.case_id}-{boundary}-{mode}", "boundary": boundary, "mode": mode},
        )
        for boundary, mode in kinds
        if mode != "pipelined" or case.backend == "openvino"
    ]


def as_measured(case: Case, record: Measured) -> Measured:
    factor = FACTOR[f"{case.boundary} {case.mode}"]
    # Two in flight take longer each, and no longer together.
    slowed = made.slowed(record, factor)
    record, times = record if case.mode == "pipelined" else slowed, slowed.latency_ns
    update: dict[str, Any] = {"latency_ns": times}
    if case.boundary == "e2e":
        parts = (tuple(value // 5 for value in times), tuple(value // 100 for value in times))
        between = tuple(whole - b - a for whole, b, a in zip(times, *parts, strict=True))
        update["split_ns"] = SplitSamples(preprocess=parts[0], inference=between, postprocess=parts[1])
    if case.mode == "offline":
        update |= {"latency_ns": (), "warmup_ns": ()}
    return record.model_copy(update=update)


@pytest.fixture(scope="module")
def mixed() -> Summary:
    models = (made.EFFICIENTNET, made.RESNET)
    backends = ("torch-eager", "onnxruntime", "openvino")
    cases = made.matrix(models, backends, (1, 4), bf16=())
    # By way first, as blocks of a configuration are: the tables of a model must come together all the same.
    ordered = sorted((way for case in cases for way in ways(case)), key=lambda case: (case.boundary, case.mode))
    return made.Synthetic(models=models, cases=ordered, change=as_measured).summary()


def tables(summary: Summary) -> dict[str, list[Row]]:
    return {" ".join((key.model, *boundary_and_mode(key))): rows for key, rows in ranking.by_table(summary.rows)}


def test_tables_are_by_boundary_and_mode_and_together_by_model(mixed: Summary) -> None:
    results = [(key.model, boundary_and_mode(key)) for key, _ in ranking.by_table(mixed.rows)]
    assert [model for model, _ in results] == ["efficientnet-lite0"] * 4 + ["resnet50"] * 4
    assert len(set(results)) == 8
    for rows in tables(mixed).values():
        assert len({(row.model, row.boundary, row.mode) for row in rows}) == 1


def test_speedups_are_within_one_boundary_and_mode(mixed: Summary) -> None:
    by_id = {row.case_id: row for row in mixed.rows}
    for row in mixed.rows:
        if row.mode == "pipelined":
            assert row.speedup is None  # torch-eager has no such row: another mode's must not replace it
        else:
            assert row.speedup is not None
            baseline = by_id[row.speedup.baseline]
            assert (baseline.boundary, baseline.mode) == (row.boundary, row.mode)


def test_every_table_that_has_rivals_has_its_own_winner(mixed: Summary) -> None:
    bold = {
        name: len(re.findall(r"\*\*", table_text(latency_table(rows)))) // 2 for name, rows in tables(mixed).items()
    }
    assert bold == {name: 0 if "pipelined" in name else 2 for name in bold}


def test_offline_has_no_percentiles_and_explains_its_time(mixed: Summary) -> None:
    text = table_text(latency_table(tables(mixed)["resnet50 compute offline"]))
    header = text.splitlines()[0]
    assert "time per batch (throughput mode) ms" in header
    assert not re.search(r"median|p9\d", header)
    assert "needs" not in text
    assert "images/s" in header


def test_e2e_has_its_three_parts(mixed: Summary) -> None:
    text = table_text(latency_table(tables(mixed)["resnet50 e2e sync"]))
    header, _, first = text.splitlines()[:3]
    cells = dict(zip(*([cell.strip() for cell in line.split("|")] for line in (header, first)), strict=True))
    assert re.fullmatch(r"[\d.]+ \(20\.0%\)", cells["preprocess ms (share)"])
    assert re.fullmatch(r"[\d.]+ \(79\.0%\)", cells["inference ms (share)"])
    assert re.fullmatch(r"[\d.]+ \(1\.0%\)", cells["postprocess µs (share)"])
    assert "preprocess" not in table_text(latency_table(tables(mixed)["resnet50 compute sync"]))


def test_the_report_has_a_section_for_each_with_its_own_conditions(mixed: Summary) -> None:
    text = document(mixed, {})
    for boundary, mode in (name.split() for name in FACTOR):
        section = text.split(f"## resnet50 ({BRIEF[boundary]}, {BRIEF[mode]})")[1].split("\n## ")[0]
        conditions = section.strip().splitlines()[0]
        assert BOUNDARIES[boundary] in conditions
        assert MODES[mode] in conditions
    for word in ("**preprocess, inference, postprocess**", "**pipelined**", "**time per batch (throughput mode)**"):
        assert word in text


def test_a_report_of_the_usual_alone_explains_nothing_else(summary: Summary) -> None:
    text = document(summary, {})
    assert not re.search(r"throughput mode|postprocess|\*\*pipelined", text)


def test_the_answers_are_of_one_table_a_model(mixed: Summary) -> None:
    text = blocks_text([answer_table(mixed)])
    assert text.count("resnet50") == text.count("efficientnet-lite0") == 2, "batch 1 and 4 of one table"
    only = mixed.model_copy(update={"rows": tuple(row for row in mixed.rows if row.mode == "offline")})
    assert "resnet50 (random weights, offline), batch 1" in blocks_text([answer_table(only)])


def test_the_terminal_names_unusual_boundaries_and_modes(mixed: Summary) -> None:
    lines = terminal_table(mixed).splitlines()
    for word in ("resnet50 e2e ", "resnet50 offline ", "resnet50 pipelined ", "resnet50  "):
        assert any(line.startswith(word) for line in lines), word


def test_no_chart_mixes_boundaries_or_modes(mixed: Summary, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[str, set[tuple[str, str]]]] = []

    def seen(spec: Spec, rows: Iterable[Row]) -> Spec:
        drawn.append((spec.title, {(row.boundary, row.mode) for row in rows}))
        return spec

    def of_table(chart: Callable[[TableRows], Spec | None]) -> Callable[[TableRows], Spec | None]:
        return lambda table: seen(spec, table.rows) if (spec := chart(table)) else None

    def of_overview(groups: Sequence[tuple[str, Sequence[Row]]], *more: str) -> Spec:
        return seen(overview(groups, *more), [row for _, rows in groups for row in rows])

    monkeypatch.setattr(selection, "CHARTS", {name: of_table(chart) for name, chart in selection.CHARTS.items()})
    monkeypatch.setattr(selection, "overview", of_overview)
    result = selection.select(mixed)
    assert len(drawn) == len(result.charts) > 20
    assert [title for title, kinds in drawn if len(kinds) != 1] == []
    assert len({chart.name for chart in result.charts}) == len(result.charts)
    assert "resnet50 (offline): time per batch by backend" in dict(drawn)
    assert "resnet50 (e2e): latency by backend" in dict(drawn)


def test_recommendations_are_based_on_rows_of_one_boundary_and_mode(mixed: Summary) -> None:
    by_id = {row.case_id: row for row in mixed.rows}
    result = recommendations.recommend(mixed)
    assert result
    for entry in result:
        assert len({(by_id[name].boundary, by_id[name].mode) for name in entry.case_ids}) <= 1, entry


def test_csv_has_the_parts_and_leaves_figures_empty_that_offline_lacks(mixed: Summary) -> None:
    rows = {row["case_id"]: row for row in csv.DictReader(io.StringIO(summary_text(mixed)))}
    offline = rows["resnet50-openvino-cpu-fp32-b1-compute-offline"]
    assert (offline["latency_p50_ns"], offline["latency_p99_ns"], offline["latency_max_ns"]) == ("", "", "")
    assert float(offline["latency_median_ns"]) > 0
    e2e = rows["resnet50-openvino-cpu-fp32-b1-e2e-sync"]
    assert float(e2e["preprocess_share"]) == pytest.approx(0.2, rel=1e-3)
    assert float(e2e["inference_median_ns"]) > float(e2e["postprocess_median_ns"]) > 0
    assert offline["preprocess_share"] == ""
