"""Tables against golden files, and the rules that decide single cells."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from harness.core.schemas import Check, ColdCosts, Flag, Grade, Interval, Row, Speedup, Summary
from harness.reporting import ranking
from harness.reporting.details import calibration_section, document
from harness.reporting.figures import MEMORY, Figure
from harness.reporting.first_page import answer_table, case_table, no_answer
from harness.reporting.html.page import page
from harness.reporting.prose.conditions import conditions, environment_table, run_conditions, shared_conditions
from harness.reporting.table import text_table
from harness.reporting.tables import cold_start_table as cold
from harness.reporting.tables import latency_table as latency
from harness.reporting.tables import validity_tables as flags
from harness.reporting.tables.cold_start_table import cold_table
from harness.reporting.tables.latency_table import latency_table, terminal_table
from harness.reporting.tables.validity_tables import checks_table, flags_table, unmeasured_table
from harness.reporting.writers.markdown import blocks_text, escape, table_text
from tests.synthetic_cuda import MODELS as CUDA_MODELS
from tests.synthetic_cuda import engines_of
from tests.synthetic_results import rows_of, with_baseline_grades

ROWS = dict[str, Row]

Golden = Callable[[str, str], None]
MODELS = ["minilm-l6", "efficientnet-lite0", "resnet50"]


def cells(text: str, first: str) -> list[list[str]]:
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    return [line for line in lines if line[0] == first]


@pytest.mark.parametrize("model", MODELS)
def test_latency_table(summary: Summary, golden: Golden, model: str) -> None:
    golden(f"latency-{model}.md", table_text(latency_table(rows_of(summary, model), summary.exports[model])) + "\n")


def test_int8_rows_say_how_their_files_were_quantised(summary: Summary, rows: ROWS) -> None:
    export, row = summary.exports[rows[NAME].model], rows[NAME]
    file = export.onnx["fp32"].model_copy(update={"path": "int8.onnx", "quantisation": "static | 64 inputs"})
    form = file.model_copy(update={"path": "int8-opset17.onnx", "quantisation": None, "exporter": "symmetric"})
    export = export.model_copy(update={"onnx": {**export.onnx, "int8": file}, "onnx_variants": {"int8-opset17": form}})
    engine = engines_of(CUDA_MODELS[0])[0]
    engine = engine.model_copy(update={"request": engine.request.model_copy(update={"onnx": form.path})})
    loaded = {"onnxruntime": file.path, "openvino": file.path, "tensorrt": engine.engine.path}
    quantised = [
        row.model_copy(update={"precision": "int8", "backend": backend, "artifacts": {path: "0" * 64}})
        for backend, path in loaded.items()
    ]
    notes = latency.table_notes([row, *quantised], export, {f"{export.slug}/{engine.engine.path}": engine})
    assert notes == ["int8 in onnxruntime, openvino: static | 64 inputs.", "int8 in tensorrt: symmetric."]
    assert table_text(latency_table(quantised[:1], export)).endswith("int8 in onnxruntime: static \\| 64 inputs.")
    assert "int8 in" not in table_text(latency_table([row], export))


def test_a_module_that_was_made_fp32_is_reported_below_its_rows(summary: Summary, rows: ROWS) -> None:
    export = summary.exports[rows[NAME].model].model_copy(update={"converted": ("bf16",)})
    said = "The module's bf16 weights were converted to fp32, for the export and the reference."
    assert latency.table_notes([rows[NAME]], export, {}) == [said]
    assert latency.table_notes([rows[NAME].model_copy(update={"artifacts": {}})], export, {}) == []


@pytest.mark.parametrize("model", MODELS)
def test_cold_table(summary: Summary, rows: ROWS, golden: Golden, model: str) -> None:
    text = table_text(cold_table(rows_of(summary, model), rows, summary.exports[model]))
    golden(f"cold-{model}.md", text + "\n")


def test_terminal_table(summary: Summary, golden: Golden) -> None:
    golden("terminal.txt", terminal_table(summary) + "\n")


def test_unmeasured_rows(summary: Summary, golden: Golden) -> None:
    golden("unmeasured.md", table_text(unmeasured_table(summary.rows)) + "\n")


def test_flag_notes(summary: Summary, golden: Golden) -> None:
    golden("flags.md", table_text(flags_table([row for row in summary.rows if row.backend != "noop"])) + "\n")


def test_conditions_and_environment(summary: Summary, golden: Golden) -> None:
    own = conditions(summary, rows_of(summary, "minilm-l6"), shared_conditions(summary))
    text = f"{run_conditions(summary)}\n\n{own}\n\n" + blocks_text([environment_table(summary.environments)])
    golden("conditions.md", text + "\n")


def test_a_report_looks_as_often_at_a_row_of_many_models_as_of_few(
    summary: Summary, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Row] = []
    key_of = ranking.table_key
    monkeypatch.setattr(ranking, "table_key", lambda row: (seen.append(row), key_of(row))[1])

    def looks(copies: int) -> float:
        rows = [
            row.model_copy(update={"model": f"{row.model}-{copy}", "case_id": f"{row.case_id}-{copy}"})
            for copy in range(copies)
            for row in summary.rows
        ]
        seen.clear()
        document(summary.model_copy(update={"rows": tuple(rows), "exports": {}}), {})
        page(summary.model_copy(update={"rows": tuple(rows), "exports": {}}), with_plots=False)
        return len(seen) / len(rows)

    assert looks(8) == looks(2)


@pytest.mark.parametrize(("shown", "faults", "column"), [("always", None, ["–"]), ("where known", 3, ["3"])])
def test_a_figure_of_a_row_is_one_entry(
    rows: ROWS,
    monkeypatch: pytest.MonkeyPatch,
    shown: Literal["always", "where known"],
    faults: int | None,
    column: list[str],
) -> None:
    figure = Figure[Row]("faults", "count", "Page faults.", lambda _: faults, label="faults", latency_table=shown)
    unknown = Figure[Row]("misses", "count", "Misses.", lambda _: None, label="misses", latency_table="where known")
    monkeypatch.setattr(latency, "MEMORY", (*MEMORY, figure, unknown, replace(unknown, key="x", latency_table="never")))
    row = next(iter(rows.values()))
    table = latency_table([row])
    assert table.headers[-3:] == ["peak MiB", "faults", "grade"]
    assert [line[-2] for line in table.cells()] == column


def test_void_rows_show_no_speed(summary: Summary) -> None:
    text = table_text(latency_table(rows_of(summary, "efficientnet-lite0")))
    void = next(line for line in cells(text, "torch-script") if line[-1].startswith("F"))
    top1 = header_of(text).index("top-1")
    assert void[3:top1] == ["void"] * (top1 - 3)
    assert void[top1 + 1 : top1 + 4] == ["void"] * 3
    assert void[-1] == "F PARITY_FAIL"


def test_few_samples_say_so_instead_of_a_number(summary: Summary) -> None:
    text = table_text(latency_table(rows_of(summary, "resnet50")))
    one_round = next(line for line in cells(text, "openvino") if "ROUNDS_MISSING" in line[-1])
    first = header_of(text).index("p90 ms")
    assert one_round[first : first + 3] == ["268", "needs 130 samples", "needs 662 samples"]


def test_speedup_and_accuracy_are_beside_the_median(summary: Summary) -> None:
    for model, accuracy in (("minilm-l6", "cosine"), ("efficientnet-lite0", "top-1")):
        names = header_of(table_text(latency_table(rows_of(summary, model))))
        after = names.index("95% CI") + 1
        assert names[after : after + 2] == ["speed-up", accuracy]
        assert names[after - 2].startswith("median")


def test_top1_of_random_weights_is_not_shown(summary: Summary) -> None:
    assert "top-1" not in header_of(table_text(latency_table(rows_of(summary, "resnet50"))))
    assert "100%" in table_text(latency_table(rows_of(summary, "efficientnet-lite0")))


def header_of(text: str) -> list[str]:
    return [cell.strip() for cell in text.splitlines()[0].split("|")[1:-1]]


def test_cosine_and_file_size_are_only_where_precisions_differ(summary: Summary) -> None:
    rows, export = rows_of(summary, "minilm-l6"), summary.exports["minilm-l6"]
    both = table_text(latency_table(rows, export))
    assert {"cosine", "file MiB"} <= set(header_of(both))
    column = header_of(both).index("file MiB")
    assert {line[column] for line in cells(both, "onnxruntime")} == {"91.0"}
    assert {line[column] for line in cells(both, "torch-eager")} == {"90.0"}
    fp32 = table_text(latency_table([row for row in rows if row.precision == "fp32"], export))
    assert not {"cosine", "file MiB"} & set(header_of(fp32))
    assert "file MiB" not in header_of(table_text(latency_table(rows)))


def test_a_trained_classifier_shows_top1_and_others_the_cosine(summary: Summary) -> None:
    assert "cosine" not in header_of(table_text(latency_table(rows_of(summary, "efficientnet-lite0"))))
    assert "cosine" in header_of(table_text(latency_table(rows_of(summary, "resnet50"))))  # random weights


def test_pipes_and_line_breaks_stay_in_their_cell() -> None:
    text = table_text(text_table([("case", "left"), ("reason", "left")], [["a|b", "first\nsecond | third"]]))
    assert len(text.splitlines()) == 3
    assert "first second \\| third" in text
    assert escape("a|b") == "a\\|b"


NAME, BASELINE = "resnet50-torch-script-cpu-fp32-b1", "resnet50-torch-eager-cpu-fp32-b1"


def with_cold(row: Row, load_s: float, ms: tuple[float, ...], *, cached: bool = False, grade: Grade = "A") -> Row:
    """ms: the median, then both ends of its interval where it has one."""
    assert row.latency_ns is not None
    costs = ColdCosts(load=int(load_s * 1e9), compile=None, compile_cached=cached, first_inference=0)
    interval = Interval(low=ms[1] * 1e6, high=ms[2] * 1e6) if ms[1:] else None
    latency = row.latency_ns.model_copy(update={"median": ms[0] * 1e6, "ci95": interval})
    speedup = Speedup(ratio=2, ci95=None, baseline=BASELINE, baseline_grade=grade)
    return row.model_copy(update={"cold_ns": costs, "latency_ns": latency, "speedup": speedup, "grade": "A"})


@pytest.mark.parametrize(
    ("load_s", "ms", "expected"),
    [
        (2.0, (10, 9.7, 10.3), "100 [96, 105]"),  # one second more, 10 ms saved a request
        (2.0, (18, 17.5, 18.4), "at most 667"),  # 2 ms saved, 1.5 ms at least: 0.3 and 0.4 add up as squares
        (2.0, (18, 17.0, 19.0), "at most 1,050"),
        (1.0, (10, 9.7, 10.3), "at once"),
        (2.0, (25, 24.0, 26.0), "never"),
        (2.0, (19.5, 19.0, 20.0), "not proven"),
        (2.0, (10,), "100 (no interval)"),
        (2.0, (25,), "never"),
    ],
)
def test_break_even(rows: ROWS, load_s: float, ms: tuple[float, ...], expected: str) -> None:
    baseline = with_cold(rows[BASELINE], 1.0, (20, 19.7, 20.3))
    break_even = cold.break_even(with_cold(rows[NAME], load_s, ms), baseline, None)
    assert str(break_even) == expected
    assert cold.break_even(baseline, baseline, None) is None


def test_break_even_names_its_basis(rows: ROWS) -> None:
    baseline, fast = with_cold(rows[BASELINE], 1.0, (20, 19.7, 20.3)), (10.0, 9.7, 10.3)
    warm = with_cold(rows[NAME], 2.0, fast, cached=True)
    assert str(cold.break_even(warm, baseline, None)) == "100 [96, 105] (cached)"
    assert str(cold.break_even(with_cold(rows[NAME], 2.0, fast, grade="C"), baseline, None)) == "~100 [96, 105]"
    by_id = {row.case_id: row for row in (warm, baseline)}
    text = table_text(cold_table([warm, baseline], by_id, None))
    assert "(cached): a compile cache was warm" in text
    assert ranking.DOUBT_MEANS not in text
    text = table_text(cold_table([with_cold(rows[NAME], 2.0, fast, grade="C")], by_id, None))
    assert text.endswith(ranking.DOUBT_MEANS)
    assert "(cached)" not in text


def test_export_counts_only_for_rows_that_loaded_onnx(summary: Summary, rows: ROWS) -> None:
    export = summary.exports["resnet50"]
    assert cold.export_ns(rows["resnet50-openvino-cpu-fp32-b1"], export) == 7.3e9
    assert cold.export_ns(rows[BASELINE], export) is None


def test_long_lists_of_flags_are_cut(summary: Summary) -> None:
    row = next(row for row in summary.rows if any(flag.name == "NOT_WARMED_UP" for flag in row.flags))
    text = table_text(
        flags_table([row.model_copy(update={"case_id": f"{row.case_id}-{number}"}) for number in range(50)])
    )
    listed = text.splitlines()
    assert sum(line.startswith("  - ") for line in listed) == flags.MAX_LISTED + 1
    assert "… and 30 more in summary.json" in text
    assert cells(text, "NOT_WARMED_UP")[0][1] == "50"


def test_flags_count_rows(rows: ROWS) -> None:
    same = (
        Flag(name="CPU_SHARED", detail="a CPU", remedy="Stop it."),
        Flag(name="CPU_SHARED", detail="GPU", remedy="Stop it."),
    )
    text = table_text(flags_table([row.model_copy(update={"flags": same}) for row in (rows[NAME], rows[BASELINE])]))
    assert cells(text, "CPU_SHARED") == [["CPU_SHARED", "2", flags.MEANINGS["CPU_SHARED"], "Stop it."]]
    assert text.count("  - ") == 4
    assert table_text(flags_table([])) == ""


def test_every_flag_has_a_meaning() -> None:
    layers = (Path(flags.__file__).parents[2] / name for name in ("aggregation", "profiling"))
    source = "".join(path.read_text() for layer in layers for path in layer.glob("*.py"))
    raised = re.findall(r'finding\(\s*(?:"[ABCF]"|\w+|[^"]*?),\s*"([A-Z_]{4,})"|_in_rounds\(\s*"([A-Z_]+)"', source)
    names = {name for pair in raised for name in pair if name}
    assert len(names) > 20
    assert names - {"CALIBRATION"} <= set(flags.MEANINGS)


def test_checks_say_in_how_many_rounds_they_were_made(rows: ROWS) -> None:
    whole, part = Check(rounds=3, of=3), Check(rounds=2, of=3, missing="one look in round 2")
    none = Check(rounds=0, of=3, missing="no monitor ran")
    first = rows[NAME].model_copy(update={"checks": {"STEAL": whole, "CPU_SHARED": whole}})
    second = rows[BASELINE].model_copy(update={"checks": {"STEAL": part, "CPU_SHARED": none}})
    text = table_text(checks_table([first, second]))
    assert cells(text, "STEAL") == [["STEAL", "2", "1", "1", "0", "5 of 6", "one look in round 2"]]
    assert cells(text, "CPU_SHARED") == [["CPU_SHARED", "2", "1", "0", "1", "3 of 6", "no monitor ran"]]
    assert table_text(checks_table([rows[NAME].model_copy(update={"checks": {}})])) == ""


def test_ratios_to_a_baseline_of_grade_c_are_marked_everywhere(summary: Summary) -> None:
    marked = against_c(summary)
    rows = rows_of(marked, "resnet50")
    for text in (table_text(latency_table(rows)), terminal_table(marked), case_table(marked)):
        speedups = [line for line in text.splitlines() if "openvino" in line and "bf16" in line]
        assert speedups
        assert all("~" in line for line in speedups)
        assert text.endswith(ranking.DOUBT_MEANS)
    assert "~" not in table_text(latency_table(rows_of(summary, "resnet50")))
    assert ", ~4.83×" in blocks_text([answer_table(marked)])
    assert ranking.DOUBT_MEANS in blocks_text([answer_table(marked)])


def against_c(summary: Summary) -> Summary:
    """Every baseline is grade C, as join leaves it."""
    baselines = {row.speedup.baseline for row in summary.rows if row.speedup}
    rows = [row.model_copy(update={"grade": "C"}) if row.case_id in baselines else row for row in summary.rows]
    return summary.model_copy(update={"rows": tuple(with_baseline_grades(rows))})


def test_work_of_known_duration_is_no_overhead_of_the_harness(summary: Summary) -> None:
    idle = next(row for row in summary.rows if row.backend == "noop" and row.latency_ns)
    latency = idle.latency_ns and idle.latency_ns.model_copy(update={"median": 2e5})
    known = idle.model_copy(update={"backend": "spin", "model": "spin:200us", "latency_ns": latency})
    spun, both = (
        blocks_text(calibration_section(summary.model_copy(update={"rows": rows})))
        for rows in ((known,), (idle, known))
    )
    assert spun == "Work of known duration, through the same loop: `spin:200us` took 200 µs."
    assert "does nothing, through the same loop, takes 180 ns or less" in both


def test_a_summary_of_backends_that_compute_nothing_has_measurements(summary: Summary) -> None:
    idle = tuple(row for row in summary.rows if row.backend == "noop")
    assert no_answer(summary.model_copy(update={"rows": idle})).startswith("Only backends that compute nothing")
