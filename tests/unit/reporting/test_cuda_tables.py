"""Every table of a GPU run against golden files, and where its columns and sections must be absent."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import PurePath

import pytest

from benchmarks.publish import headline_block
from harness.aggregation.flags import GroupKey
from harness.core.host.environment import ALLOCATOR, VARIABLES
from harness.core.schemas import DeviceTimes, Row, Summary
from harness.core.units import MILLISECOND
from harness.reporting import ranking
from harness.reporting.details import document
from harness.reporting.figures import DEVICE
from harness.reporting.first_page import answer
from harness.reporting.prose import boundaries, recommendations
from harness.reporting.prose.conditions import (
    conditions,
    environment_table,
    run_conditions,
    shared_conditions,
    short_conditions,
)
from harness.reporting.tables import cold_start_table as cold
from harness.reporting.tables.cold_start_table import cold_table, engine_of, engines_table
from harness.reporting.tables.latency_table import (
    TERMINAL_COLUMNS,
    figure_columns,
    guide_lines,
    latency_table,
    terminal_table,
)
from harness.reporting.tables.roofline_table import roofline_table
from harness.reporting.tables.summary_table import COLUMNS
from harness.reporting.tables.tried_settings_table import tried_table
from harness.reporting.writers.csv import summary_text
from harness.reporting.writers.markdown import blocks_text, table_text
from tests.synthetic_cuda import LOST, VOID, cuda_summary

Golden = Callable[[str, str], None]
SUMMARY = cuda_summary()
BY_ID = {row.case_id: row for row in SUMMARY.rows}
TABLES = dict(ranking.by_table(SUMMARY.rows))
RESNET = GroupKey("resnet50", "seeded", "cuda", "compute", "sync")
BERT = GroupKey("bert-base", "seeded", "cuda", "compute", "sync")
COPIED = GroupKey("resnet50", "seeded", "cuda", "transfer", "sync")


def header_of(text: str) -> list[str]:
    return [cell.strip() for cell in next(line for line in text.splitlines() if line.startswith("|")).split("|")[1:-1]]


def column(text: str, name: str) -> list[str]:
    place = header_of(text).index(name) + 1
    return [line.split("|")[place].strip() for line in text.splitlines() if line.startswith("|")][2:]


def latency(key: ranking.TableKey) -> str:
    return table_text(latency_table(TABLES[key], SUMMARY.exports[key[0]], SUMMARY.engines))


@pytest.mark.parametrize(("name", "key"), [("bert-base", BERT), ("resnet50-transfer", COPIED)])
def test_latency_table(golden: Golden, name: str, key: ranking.TableKey) -> None:
    golden(f"cuda-latency-{name}.md", latency(key) + "\n")


def test_tables_besides(golden: Golden) -> None:
    export = SUMMARY.exports["bert-base"]
    parts = [
        table_text(cold_table(TABLES[BERT], BY_ID, export, SUMMARY.engines)),
        table_text(engines_table([row for row in SUMMARY.rows if row.model == "bert-base"], export, SUMMARY.engines)),
        table_text(roofline_table(TABLES[BERT], SUMMARY.roof)),
        table_text(tried_table(ranking.every_by_table(SUMMARY.rows)[BERT])),
        blocks_text([environment_table(SUMMARY.environments)]),
        "\n".join(guide_lines(SUMMARY.rows)),
    ]
    golden("cuda-besides.md", "\n\n".join(parts) + "\n")


def test_sentences(golden: Golden) -> None:
    parts = [
        answer(SUMMARY),
        run_conditions(SUMMARY),
        conditions(SUMMARY, TABLES[BERT], shared_conditions(SUMMARY)),
        recommendations.recommendations_text(SUMMARY),
    ]
    golden("cuda-sentences.md", "\n\n".join(parts) + "\n")


def test_headline_block(golden: Golden) -> None:
    golden("cuda-headline-block.md", headline_block(SUMMARY, PurePath("h100/2026-11-27")) + "\n")


def test_terminal_table(golden: Golden) -> None:
    golden("cuda-terminal.txt", terminal_table(SUMMARY) + "\n")


# --- device columns -----------------------------------------------------------------------------------------------


def test_the_parts_of_a_transfer_are_only_where_there_are_any() -> None:
    assert not {"H2D ms", "compute ms", "D2H ms"} & set(header_of(latency(BERT)))
    assert {"device ms", "enqueue ms"} <= set(header_of(latency(BERT)))
    assert {"device ms", "H2D ms", "compute ms", "D2H ms", "enqueue ms"} <= set(header_of(latency(COPIED)))


def test_void_rows_show_no_time_of_the_device_either() -> None:
    places = [place for place, row in enumerate(TABLES[BERT]) if row.case_id == VOID]
    assert [column(latency(BERT), "device ms")[place] for place in places] == ["void"]


def test_hidden_copies_are_a_share() -> None:
    row = TABLES[COPIED][0]
    assert row.device_ns is not None
    times: DeviceTimes = row.device_ns.model_copy(update={"overlap": 0.625})
    columns = figure_columns(DEVICE, [row.model_copy(update={"device_ns": times})], MILLISECOND)
    (hidden,) = [entry for entry in columns if entry.header == "copies hidden"]
    assert hidden.cell(row.model_copy(update={"device_ns": times})) == "62%"
    assert hidden.cell(row.model_copy(update={"device_ns": None})) == "–"


def test_overlapped_transfers_say_how_many_are_in_flight() -> None:
    sync, pipelined = (TABLES[COPIED][0].model_copy(update={"mode": mode}) for mode in ("sync", "pipelined"))
    assert "three batches in flight (mode pipelined), one in each stage" in boundaries.mode_condition(pipelined)
    assert boundaries.mode_condition(sync).endswith("one request at a time")
    (line,) = boundaries.guide_lines([sync, pipelined])
    assert line.startswith("**transfer pipelined**: three batches in flight")
    assert boundaries.guide_lines([sync]) == []
    compute = pipelined.model_copy(update={"boundary": "compute"})
    assert "two batches in flight" in boundaries.mode_condition(compute)


def test_a_run_without_a_gpu_has_none_of_it(summary: Summary) -> None:
    rows = next(rows for _, rows in ranking.by_table(summary.rows))
    assert figure_columns(DEVICE, rows, MILLISECOND) == []
    assert guide_lines(summary.rows) == []
    assert table_text(roofline_table(rows, None)) == ""
    assert table_text(tried_table(ranking.every_by_table(summary.rows)[ranking.table_key(rows[0])])) == ""
    assert table_text(engines_table(rows, summary.exports[rows[0].model], summary.engines)) == ""
    assert "clocks" not in short_conditions(summary, rows)
    assert "GPU" not in document(summary, {})


# --- settings that were tried -------------------------------------------------------------------------------------


def test_tried_rows_are_in_their_own_section_alone() -> None:
    tried = {row.case_id: row for row in SUMMARY.rows if row.tried}
    assert tried
    assert not tried.keys() & {row.case_id for rows in TABLES.values() for row in rows}
    assert not tried.keys() & {case_id for entry in recommendations.recommend(SUMMARY) for case_id in entry.case_ids}
    text = table_text(tried_table(ranking.every_by_table(SUMMARY.rows)[BERT]))
    count = sum(row.model == "bert-base" for row in tried.values())
    assert sum(cell.startswith("+") for cell in column(text, "against the chosen one")) == count
    assert document(SUMMARY, {}).count("### Settings that were tried") == 3


def test_a_tried_setting_is_held_against_round_1_of_the_chosen_one() -> None:
    def first_ns(row: Row, value: float) -> Row:
        assert row.latency_ns is not None
        medians = (value, *row.latency_ns.process_medians[1:])
        return row.model_copy(update={"latency_ns": row.latency_ns.model_copy(update={"process_medians": medians})})

    chosen = first_ns(BY_ID["bert-base-tensorrt-cuda-fp16-b8-s128-static+graph"], 1e6)
    behind = first_ns(BY_ID["bert-base-tensorrt-cuda-fp16-b8-s128-dynamic+graph"], 1.25e6)
    text = table_text(tried_table([behind, chosen]))
    assert column(text, "setting") == ["static+graph", "dynamic+graph"]
    assert column(text, "against the chosen one") == ["chosen", "+25.0%"]


# --- engines ------------------------------------------------------------------------------------------------------


def test_the_build_of_an_engine_is_repaid_like_an_export() -> None:
    row = BY_ID["bert-base-tensorrt-cuda-fp16-b1-s128-static+graph"]
    base = BY_ID["bert-base-torch-eager-cuda-fp32-b1-s128"]
    engine = engine_of(row, SUMMARY.exports["bert-base"], SUMMARY.engines)
    assert engine is not None
    without = cold.break_even(row, base, None)
    assert cold.export_ns(row, SUMMARY.exports["bert-base"]) is None
    assert cold.export_ns(row, SUMMARY.exports["bert-base"], engine) == pytest.approx(9.8e9)  # fp32 ONNX, then fp16
    repaid = cold.break_even(row, base, None, engine)
    assert repaid is not None
    assert without is not None
    assert repaid.requests is not None
    assert repaid.requests > 10_000
    assert (without.outcome, without.requests) == ("at once", 0)
    assert engine_of(base, SUMMARY.exports["bert-base"], SUMMARY.engines) is None
    assert engine_of(row, None, SUMMARY.engines) is None


def test_file_sizes_are_those_of_the_engine_and_of_the_variant() -> None:
    sizes = dict(zip((row.case_id for row in TABLES[BERT]), column(latency(BERT), "file MiB"), strict=True))
    assert sizes["bert-base-tensorrt-cuda-fp16-b1-s128-static+graph"] == "170"
    assert sizes["bert-base-onnxruntime-cuda-fp16-b1-s128-fused+graph"] == "162"
    assert sizes["bert-base-torch-eager-cuda-fp16-b1-s128"] == "90.0"


# --- terminal, CSV ------------------------------------------------------------------------------------------------


def test_the_terminal_shows_the_device_where_it_fits() -> None:
    rows = [row for row in SUMMARY.rows if row.backend == "torch-eager" and row.model == "resnet50"]
    narrow = terminal_table(SUMMARY.model_copy(update={"rows": tuple(rows)}))
    assert "device ms" in narrow.splitlines()[0]
    assert "Left out" not in narrow
    assert max(len(line) for line in narrow.splitlines() if line.endswith("A")) <= TERMINAL_COLUMNS
    assert "setting" not in narrow
    wide = terminal_table(SUMMARY)
    assert "device ms" not in wide.splitlines()[0]
    assert wide.endswith("\n\nLeft out for the width of a line: device ms; see summary.csv or report.md.")
    assert "setting" in wide


def test_csv_has_settings_device_limits_and_gpu() -> None:
    lines = {line["case_id"]: line for line in csv.DictReader(io.StringIO(summary_text(SUMMARY)))}
    line = lines["bert-base-onnxruntime-cuda-fp16-b8-s128-fused+graph"]
    assert (line["setting"], line["tried"], line["roofline_limit"]) == ("fused+graph", "False", "launch")
    assert float(line["device_device_ns"]) == pytest.approx(1.07e6, rel=0.02)
    assert (line["device_enqueue_ns"], line["gpu_sm_mhz_min"], line["gpu_clock_held_back"]) == ("9000.0", "1980", "")
    assert lines["bert-base-onnxruntime-cuda-fp16-b8-s128-graph"]["tried"] == "True"
    assert lines[LOST]["device_device_ns"] == ""
    assert not any("gpu" in name and "{" in value for line in lines.values() for name, value in line.items())
    assert "gpu" not in COLUMNS


def test_settings_from_outside_are_among_the_conditions() -> None:
    def with_build(build: dict[str, str]) -> Summary:
        results = {
            name: environment.model_copy(update={"software": environment.software.model_copy(update={"build": build})})
            for name, environment in SUMMARY.environments.items()
        }
        return SUMMARY.model_copy(update={"environments": results})

    rows = TABLES[BERT]
    tuned = with_build({ALLOCATOR: "MALLOC_TRIM_THRESHOLD_=1", VARIABLES: "OMP_WAIT_POLICY=passive"})
    for text in (run_conditions(tuned), short_conditions(tuned, rows)):
        assert " · memory allocator MALLOC_TRIM_THRESHOLD_=1 · runtime variables OMP_WAIT_POLICY=passive · " in text
    assert "memory allocator" not in run_conditions(with_build({}))
    assert "runtime variables" not in run_conditions(with_build({}))
