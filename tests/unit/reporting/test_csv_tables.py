"""CSV files as a program or a spreadsheet reads them: right values, conditions in every line, no formulas."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from harness.core.schemas import Check, CustomMetric, Flag, Interval, Row, Summary
from harness.reporting import ranking
from harness.reporting.tables.cold_start_table import cold_table
from harness.reporting.writers.csv import RESULTS, WITH_PROFILES, csv_tables, csv_text, harmless, summary_text
from harness.reporting.writers.markdown import table_text
from tests.synthetic_cuda import cuda_summary, metered
from tests.synthetic_devices import copies, neighbours
from tests.synthetic_results import with_baseline_grades

UNITS = ("_ms", "_s", "_ns", "_bytes", "_per_s", "_share", "_mhz", "_c", "_w", "_j", "_percent", "_requests")
PLAIN = {
    *("batch_size", "sequence_length", "rounds", "samples", "threads", "layers", "major_faults", "minor_faults"),
    *("throttled_periods", "thermal_events", "gpu_samples", "gpu_other_processes_max", "batches"),
    *("relative_l2", "cosine", "speedup", "speedup_ci95_low", "speedup_ci95_high", "modules_fused"),
    *("gain", "gain_ci95_low", "gain_ci95_high", "of", "allowed_cpus", "allowed_cores", "stopped_looks"),
    *("break_even_requests_ci95_low", "break_even_requests_ci95_high"),
    *("devices", "failed_processes", "efficiency", "least_overlap", "latency_together_over_alone", "beside_over_alone"),
    *("alone_throughput_over_median", "together_throughput_over_median"),
    *("flops_per_batch", "flops_share_of_best", "bytes_share_of_best_copy"),
}
"""Counts and ratios, which have no unit."""
MIDDLE = ("_ci95_low", "_ci95_high", "_min", "_mean", "_max", "_peak", "_per_batch")
"""May follow a unit, as in `gpu_sm_mhz_max`."""
TEXTS = {
    *("case_id", "model", "weights", "backend", "setting", "device", "precision", "boundary", "mode", "grade"),
    *("flags", "stopped", "items", "speedup_against", "machine", "libraries", "measured_from", "measured_to"),
    *("plan_id", "settings_id", "compile_cached", "break_even", "break_even_against", "about", "rule", "text"),
    *("engine", "shapes", "layers_by_precision", "kept_in_fp32", "tensorrt", "builder", "gpu", "driver", "limit"),
    *("chosen", "flag", "detail", "remedy", "gpu_clock_held_back", "status", "reason", "hint", "clearly_fastest"),
    *("case_ids", "known_how", "from_case_id", "to_case_id"),
    *(
        "busiest",
        "check",
        "missing",
        "break_even_compile_cached",
        "break_even_rests_on_grade_c",
        "speedup_rests_on_grade_c",
    ),
    *("stragglers", "straggles", "name", "uuid", "cpus", "cpus_near", "verdict"),
    *("environment_id", "fact", "value", "not_available"),
}


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def tables_of(summary: Summary) -> dict[str, list[dict[str, str]]]:
    return {name: lines(text) for name, text in csv_tables(summary, []).items()}


@pytest.fixture(scope="module")
def cpu(summary: Summary) -> dict[str, list[dict[str, str]]]:
    return tables_of(summary)


@pytest.fixture(scope="module")
def on_gpu() -> Summary:
    rows = [row for row in cuda_summary().rows if row.status == "measured"]
    checks = {"STEAL": Check(rounds=3, of=3), "CPU_SHARED": Check(rounds=2, of=3, missing="one look in round 2")}
    checked = tuple(row.model_copy(update={"checks": checks}) for row in cuda_summary().rows)
    energies = {row.case_id: metered(row) for row in rows}
    at_once = {rows[0].case_id: copies(rows[0].case_id, 1.25)}
    beside = neighbours([row.case_id for row in rows])
    devices = {"copies": at_once, "neighbours": beside}
    return cuda_summary().model_copy(update={"energies": energies, "rows": checked, **devices})


@pytest.fixture(scope="module")
def gpu(on_gpu: Summary) -> dict[str, list[dict[str, str]]]:
    return tables_of(on_gpu)


OF_OTHER_PASSES = {"generation", "load", "load_clients", "load_points", "load_replay"}
"""Tables of loads and of generation, which these summaries do not have."""


def test_there_is_a_file_for_each_table_and_none_is_empty(
    cpu: dict[str, list[dict[str, str]]], gpu: dict[str, list[dict[str, str]]]
) -> None:
    assert set(cpu) | set(gpu) == {*RESULTS, "what_if"} - OF_OTHER_PASSES
    assert all([*cpu.values(), *gpu.values()])


def test_every_line_about_a_case_says_its_conditions(
    cpu: dict[str, list[dict[str, str]]], gpu: dict[str, list[dict[str, str]]], rows: dict[str, Row]
) -> None:
    for tables in (cpu, gpu):
        for table in tables.values():
            for line in table:
                assert line["plan_id"]
                if "case_id" in line:
                    assert all(line[name] for name in ("model", "device", "precision", "boundary", "mode", "machine"))
    for line in cpu["results"]:
        row = rows[line["case_id"]]
        said = (line["backend"], line["batch_size"], line["sequence_length"], line["grade"], line["threads"])
        assert said == (row.backend, str(row.batch_size), str(row.sequence_length or ""), row.grade, str(row.threads))


def test_headers_carry_the_unit_of_every_figure(
    cpu: dict[str, list[dict[str, str]]], gpu: dict[str, list[dict[str, str]]]
) -> None:
    for entry in (*cpu.values(), *gpu.values()):
        for name in set(entry[0]) - PLAIN - TEXTS:
            stem = next((name.removesuffix(end) for end in MIDDLE if name.endswith(end)), name)
            assert stem in PLAIN or stem.endswith(UNITS), name


def test_results_are_the_rows_of_the_latency_tables_and_not_rounded(
    cpu: dict[str, list[dict[str, str]]], summary: Summary
) -> None:
    rows = [row for _, entry in ranking.by_table(summary.rows) for row in entry]
    assert [line["case_id"] for line in cpu["results"]] == [row.case_id for row in rows]
    for line, row in zip(cpu["results"], rows, strict=True):
        if row.grade == "F":
            continue
        assert row.latency_ns is not None
        assert float(line["latency_median_ms"]) == row.latency_ns.median / 1e6
        high = str(row.latency_ns.ci95.high / 1e6) if row.latency_ns.ci95 else ""
        assert line["latency_median_ci95_high_ms"] == high
        assert line["latency_p99_ms"] == ("" if row.latency_ns.p99 is None else str(row.latency_ns.p99 / 1e6))
        assert float(line["throughput_items_per_s"]) == row.throughput_per_s
        assert float(line["peak_memory_bytes"]) == row.memory_bytes
        assert line["batch_time_median_ms"] == ""


def test_a_void_row_has_its_grade_and_no_figure_of_speed(cpu: dict[str, list[dict[str, str]]]) -> None:
    void = [line for line in cpu["results"] if line["grade"] == "F"]
    assert void
    for line in void:
        timed = [name for name in line if name.endswith(("_ms", "_per_s")) or name.startswith("speedup")]
        assert [line[name] for name in timed if line[name]] == []
        assert line["relative_l2"] or "PARITY" in line["flags"] or "PLACEMENT" in line["flags"]
    assert not {line["case_id"] for line in void} & {line["case_id"] for line in cpu["cold_start"]}


def test_a_row_in_offline_mode_has_no_latency(summary: Summary) -> None:
    rows = tuple(row.model_copy(update={"mode": "offline"}) for row in summary.rows)
    table = tables_of(summary.model_copy(update={"rows": rows}))["results"]
    sound = [line for line in table if line["grade"] != "F"]
    assert all(float(line["batch_time_median_ms"]) > 0 for line in sound)
    assert [line[name] for line in table for name in line if name.startswith("latency_") and line[name]] == []


def test_a_random_models_agreement_on_the_first_class_is_withheld(cpu: dict[str, list[dict[str, str]]]) -> None:
    shares = {line["weights"]: line["top1_agreement_share"] for line in cpu["results"] if line["items"] == "images"}
    assert shares == {"pretrained": shares["pretrained"], "seeded": ""}
    assert 0 < float(shares["pretrained"]) <= 1


def test_break_even_is_the_tables_figure(gpu: dict[str, list[dict[str, str]]], on_gpu: Summary) -> None:
    by_id = {row.case_id: row for row in on_gpu.rows}
    key, rows = ranking.by_table(on_gpu.rows)[0]
    shown = table_text(cold_table(rows, by_id, on_gpu.exports[key[0]], on_gpu.engines))
    cells = [line.rstrip(" |").rpartition("|")[2].strip() for line in shown.splitlines()[2:]]
    ours = {line["case_id"]: line for line in gpu["cold_start"]}
    selected = [ours[row.case_id] for row in rows if row.case_id in ours]
    assert len(cells) == len(selected)
    for cell, line in zip(cells, selected, strict=True):
        if line["break_even_requests"] in ("", "0"):
            assert cell == (line["break_even"] or "–")
        else:
            assert line["break_even"] == "repaid"
            exact = int(line["break_even_requests"])
            assert float(cell.partition(" [")[0].replace(",", "")) == pytest.approx(exact, rel=5e-3)
            assert float(line["break_even_requests_ci95_low"]) < exact
            assert exact < float(line["break_even_requests_ci95_high"]) + 1
        assert line["break_even_compile_cached"] == ("" if cell == "–" else "False")
    assert any(float(line["engine_build_s"] or 0) > 0 for line in selected)


def test_intervals_too_wide_to_print_are_in_full_and_ratios_to_grade_c_are_reported(summary: Summary) -> None:
    def wide(row: Row) -> Row:
        ci95 = Interval(low=1.0, high=9e9)
        return row.model_copy(
            update={"latency_ns": row.latency_ns and row.latency_ns.model_copy(update={"ci95": ci95})}
        )

    baselines = {row.speedup.baseline for row in summary.rows if row.speedup}
    disturbed = {"grade": "C", "flags": (Flag(name="DRIFT", detail="", remedy=""),)}
    rows = [row.model_copy(update=disturbed) if row.case_id in baselines else wide(row) for row in summary.rows]
    selected = summary.model_copy(update={"rows": tuple(with_baseline_grades(rows))})
    results = [line for line in tables_of(selected)["results"] if line["grade"] != "F"]
    assert {line["latency_median_ci95_high_ms"] for line in results if line["case_id"] not in baselines} == {"9000.0"}
    for line in results:
        assert line["speedup_rests_on_grade_c"] == str(line["case_id"] not in baselines)
    (flat_line,) = [
        line for line in lines(summary_text(selected)) if line["case_id"] == "resnet50-openvino-cpu-fp32-b1"
    ]
    assert flat_line["speedup_baseline_grade"] == "C"


def test_checks_are_reported_row_by_row(gpu: dict[str, list[dict[str, str]]], on_gpu: Summary) -> None:
    case_id = gpu["results"][0]["case_id"]
    selected = [line for line in gpu["checks"] if line["case_id"] == case_id]
    results = [(line["check"], line["rounds"], line["of"], line["missing"]) for line in selected]
    assert results == [("STEAL", "3", "3", ""), ("CPU_SHARED", "2", "3", "one look in round 2")]
    (flat_line,) = [line for line in lines(summary_text(on_gpu)) if line["case_id"] == case_id]
    assert flat_line["checks"] == "STEAL 3/3 CPU_SHARED 2/3"


def test_a_gpus_figures(gpu: dict[str, list[dict[str, str]]], on_gpu: Summary) -> None:
    rows = {row.case_id: row for row in on_gpu.rows}
    assert on_gpu.roof is not None
    for line in gpu["roofline"]:
        row = rows[line["case_id"]]
        assert row.roofline is not None
        assert int(line["flops_per_batch"]) == row.roofline.flops
        # Share and rate say the same, by the limit beside them.
        share = float(line["flops_per_s"]) / float(line["best_flops_per_s"])
        assert share == pytest.approx(float(line["flops_share_of_best"]))
        assert float(line["best_copy_bytes_per_s"]) == on_gpu.roof.copy_bytes_per_s
    for line in gpu["energy"]:
        assert float(line["energy_per_item_j"]) * int(line["batch_size"]) == float(line["energy_per_batch_j"])
        assert float(line["card_mean_w"]) == 500
    transfers = [line for line in gpu["results"] if line["boundary"] == "transfer" and line["grade"] != "F"]
    assert transfers
    assert all(line["h2d_ms"] and line["compute_ms"] and line["d2h_ms"] for line in transfers)


def test_each_group_of_settings_has_one_that_was_chosen_and_the_others_are_measured_against_it(
    gpu: dict[str, list[dict[str, str]]],
) -> None:
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    same = ("model", "weights", "boundary", "mode", "backend", "precision", "batch_size", "sequence_length")
    for line in gpu["settings_tried"]:
        groups.setdefault(tuple(line[name] for name in same), []).append(line)
    for first, *others in groups.values():
        assert (first["chosen"], first["behind_share"]) == ("True", "")
        for line in others:
            assert line["chosen"] == "False"
            ratio = float(line["round_1_median_ms"]) / float(first["round_1_median_ms"])
            assert float(line["behind_share"]) == pytest.approx(ratio - 1)


def test_an_unmeasured_row_has_its_reason_and_no_figures(
    cpu: dict[str, list[dict[str, str]]], summary: Summary
) -> None:
    expected = [(row.case_id, row.status, row.reason) for row in summary.rows if row.status != "measured"]
    assert [(line["case_id"], line["status"], line["reason"]) for line in cpu["not_measured"]] == expected


def test_facts_of_the_environment_keep_their_unit_and_say_why_they_are_missing(
    cpu: dict[str, list[dict[str, str]]],
) -> None:
    facts = {line["fact"]: line for line in cpu["environments"]}
    assert facts["machine.memory_bytes"]["value"] == str(16 << 30)
    assert facts["machine.cpu_features"]["value"] == "avx2 avx512f avx512_bf16 amx_bf16"
    assert facts["software.libraries.openvino"]["value"] == "2026.4.0"
    assert facts["machine.governor"]["value"] == ""
    assert facts["machine.governor"]["not_available"] == "the virtual machine does not show it"


def test_a_summary_that_was_stored_and_read_gives_the_same_bytes(summary: Summary) -> None:
    stored = Summary.model_validate_json(summary.model_dump_json())
    again = Summary.model_validate_json(stored.model_dump_json())
    assert csv_tables(again, []) == csv_tables(stored, [])


HOSTILE = ('=HYPERLINK("http://x.example","y")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_cell_is_a_formula(summary: Summary, name: str) -> None:
    fields = ("case_id", "model", "backend", "setting", "reason", "hint")
    rows = tuple(
        row.model_copy(update={field: f"{name}{getattr(row, field)}" for field in fields}) for row in summary.rows
    )
    for text in csv_tables(summary.model_copy(update={"rows": rows}), []).values():
        for line in csv.reader(io.StringIO(text, newline="")):
            for cell in line:
                assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) or float(cell) < 0


@pytest.mark.parametrize("name", HOSTILE)
def test_the_summarys_file_holds_none_either(summary: Summary, name: str) -> None:
    rows = tuple(row.model_copy(update={"model": name, "reason": name}) for row in summary.rows)
    for line in csv.DictReader(io.StringIO(summary_text(summary.model_copy(update={"rows": rows})), newline="")):
        assert (line["model"], line["reason"]) == (f"'{name}".replace("\r", "\n"),) * 2


def test_a_negative_figure_stays_one() -> None:
    assert [harmless(value) for value in (-0.25, -3, None, True, "a=b")] == [-0.25, -3, None, True, "a=b"]
    assert csv_text([{"behind_share": -0.25, "model": "-x"}]) == "behind_share,model\n-0.25,'-x\n"


def test_where_nothing_was_measured_only_the_reasons_are_left(summary: Summary) -> None:
    rows = tuple(row for row in summary.rows if row.status != "measured")
    bare = summary.model_copy(update={"rows": rows, "environments": {}})
    assert set(csv_tables(bare, [])) == {"not_measured"}


def test_changes_that_would_bring_most_are_measured_ones_where_there_are_no_profiles(
    cpu: dict[str, list[dict[str, str]]], rows: dict[str, Row]
) -> None:
    assert cpu["what_if"]
    for line in cpu["what_if"]:
        assert (line["known_how"], line["time_share"]) == ("measured", "")
        start, end = rows[line["from_case_id"]], rows[line["to_case_id"]]
        assert start.latency_ns is not None
        assert end.latency_ns is not None
        ratio = (start.latency_ns.median / start.batch_size) / (end.latency_ns.median / end.batch_size)
        assert float(line["gain"]) == pytest.approx(ratio, rel=0.05)
        assert float(line["gain_ci95_low"]) <= float(line["gain"]) <= float(line["gain_ci95_high"])


def test_every_file_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/exports.md").read_text()
    listed = set(re.findall(r"`(\w+)\.csv`", page)) - {"summary"}
    assert {*RESULTS, *WITH_PROFILES} == listed


def test_figures_of_plugins_are_with_the_results_and_not_for_a_void_row(summary: Summary) -> None:
    metric = CustomMetric(unit="items/W", better="higher", summary="Economy.", plugin="ours 1.0")
    rows = tuple(
        row.model_copy(update={"custom": {"economy": 2.5}}) if row.void is None else row for row in summary.rows
    )
    table = tables_of(summary.model_copy(update={"rows": rows, "custom": {"economy": metric}}))["results"]
    selected = {(line["grade"] == "F", line["custom_economy [items/W]"]) for line in table}
    assert selected == {(False, "2.5"), (True, "")}
