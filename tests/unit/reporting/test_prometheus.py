"""metrics.prom as Prometheus reads it: base units, one series a case, none for what is void or was not measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from harness.core.schemas import CustomMetric, Row, Summary, Unavailable
from harness.reporting.figures import ENERGY, FIGURES
from harness.reporting.writers.prometheus import metrics_text
from tests.synthetic_cuda import cuda_summary, metered
from tests.synthetic_results import with_baseline_grades

BASE_UNITS = ("_seconds", "_bytes", "_joules", "_ratio", "_per_second")
ABOUT_ALL = {"inferometer_run_info", "inferometer_cases", "inferometer_measured_timestamp_seconds"}


def read(summary: Summary) -> dict[str, list[Sample]]:
    families = text_string_to_metric_families(metrics_text(summary).decode())
    return {family.name: family.samples for family in families}


@pytest.fixture(scope="module")
def families(summary: Summary) -> dict[str, list[Sample]]:
    return read(summary)


def test_a_figure_is_in_base_units_under_its_conditions(
    families: dict[str, list[Sample]], rows: dict[str, Row]
) -> None:
    row = rows["minilm-l6-onnxruntime-cpu-fp32-b4-s128"]
    assert row.latency_ns is not None
    assert row.cold_ns is not None
    results = {
        name: [sample for sample in samples if sample.labels.get("case_id") == row.case_id]
        for name, samples in families.items()
    }
    (median,) = results["inferometer_latency_median_seconds"]
    assert median.value == row.latency_ns.median / 1e9
    assert median.labels == {
        "case_id": row.case_id,
        "model": "minilm-l6",
        "weights": "pretrained",
        "backend": "onnxruntime",
        "setting": "default",
        "device": "cpu",
        "precision": "fp32",
        "batch_size": "4",
        "sequence_length": "128",
        "boundary": "compute",
        "mode": "sync",
    }
    assert results["inferometer_load_seconds"][0].value == row.cold_ns.load / 1e9
    assert results["inferometer_peak_memory_bytes"][0].value == row.memory_bytes
    assert results["inferometer_throughput_items_per_second"][0].value == row.throughput_per_s
    (info,) = results["inferometer_case_info"]
    assert (info.value, info.labels["grade"]) == (1, row.grade)


def test_a_void_or_unmeasured_row_has_no_series_and_is_counted(
    families: dict[str, list[Sample]], summary: Summary
) -> None:
    none = {row.case_id for row in summary.rows if row.status != "measured" or row.grade == "F"}
    assert len(none) > 5
    shown = {sample.labels["case_id"] for name in set(families) - ABOUT_ALL for sample in families[name]}
    assert shown
    assert not shown & none
    counts = {(entry.labels["status"], entry.labels["grade"]): entry.value for entry in families["inferometer_cases"]}
    assert counts["measured", "F"] == sum(row.grade == "F" for row in summary.rows)
    assert counts["skipped", ""] == sum(row.status == "skipped" for row in summary.rows)
    assert sum(counts.values()) == len(summary.rows)


def test_percentiles_that_are_withheld_have_no_series(families: dict[str, list[Sample]], rows: dict[str, Row]) -> None:
    shown = {sample.labels["case_id"] for sample in families["inferometer_latency_p99_seconds"]}
    assert shown
    for case_id, row in rows.items():
        known = row.latency_ns is not None and row.latency_ns.p99 is not None
        assert not (case_id in shown and not known)


def test_names_end_in_base_units(families: dict[str, list[Sample]]) -> None:
    counts = {"inferometer_cases", "inferometer_rounds", "inferometer_samples"}
    for name in {*families, *read(cuda_summary())} - counts:
        assert name.endswith((*BASE_UNITS, "_info")), name


def test_a_ratio_that_is_based_on_grade_c_has_a_gauge_beside_it(summary: Summary) -> None:
    baselines = {row.speedup.baseline for row in summary.rows if row.speedup}
    rows = [row.model_copy(update={"grade": "C"}) if row.case_id in baselines else row for row in summary.rows]
    result = read(summary.model_copy(update={"rows": tuple(with_baseline_grades(rows))}))
    shown = {sample.labels["case_id"] for sample in result["inferometer_speedup_rests_on_grade_c_info"]}
    assert shown == {sample.labels["case_id"] for sample in result["inferometer_speedup_ratio"]} - baselines


def test_a_gpus_time_and_joules() -> None:
    rows = {row.case_id: row for row in cuda_summary().rows if row.status == "measured" and row.grade != "F"}
    energies = {row.case_id: metered(row) for row in cuda_summary().rows if row.status == "measured"}
    result = read(cuda_summary().model_copy(update={"energies": energies}))
    for sample in result["inferometer_device_median_seconds"]:
        times = rows[sample.labels["case_id"]].device_ns
        assert times is not None
        assert sample.value == times.device / 1e9
    for sample in result["inferometer_energy_per_item_joules"]:
        assert sample.labels["case_id"] in rows
        assert sample.value == energies[sample.labels["case_id"]].joules_per_item
    assert len(result["inferometer_energy_per_item_joules"]) == len(result["inferometer_device_median_seconds"])


def test_a_row_in_offline_mode_has_a_time_per_batch_and_no_latency(summary: Summary) -> None:
    rows = tuple(row.model_copy(update={"mode": "offline"}) for row in summary.rows)
    result = read(summary.model_copy(update={"rows": rows}))
    assert not [name for name in result if "latency" in name]
    assert result["inferometer_batch_time_median_seconds"]


def test_hostile_names_come_back_as_they_were(summary: Summary) -> None:
    name = 'a"} 1\nb\\n{'
    rows = tuple(row.model_copy(update={"model": name}) for row in summary.rows)
    result = read(summary.model_copy(update={"rows": rows}))
    medians = result["inferometer_latency_median_seconds"]
    assert {sample.labels["model"] for sample in medians} == {name}
    assert set(result) == set(read(summary))


def test_the_run_says_where_and_when_it_was(families: dict[str, list[Sample]], summary: Summary) -> None:
    (info,) = families["inferometer_run_info"]
    assert info.labels["plan_id"] == summary.plan_id
    assert info.labels["machine"].startswith("Intel(R) Xeon(R)")
    (when,) = families["inferometer_measured_timestamp_seconds"]
    assert when.value == 1795787940  # 2026-11-27T13:59:00Z


def test_the_same_summary_gives_the_same_bytes_and_no_series_twice(summary: Summary) -> None:
    stored = Summary.model_validate_json(summary.model_dump_json())
    text = metrics_text(stored)
    assert metrics_text(Summary.model_validate_json(stored.model_dump_json())) == text
    series = [line.rpartition(b" ")[0] for line in text.splitlines() if not line.startswith(b"#")]
    assert len(series) == len(set(series))


def test_where_nothing_was_measured_the_cases_are_counted(summary: Summary) -> None:
    rows = tuple(row for row in summary.rows if row.status != "measured")
    bare = summary.model_copy(update={"rows": rows, "environments": {}, "measured_from": None, "measured_to": None})
    assert set(read(bare)) == {"inferometer_run_info", "inferometer_cases"}


def test_every_gauge_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/exports.md").read_text()
    listed = {name for line in page.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)}
    rows = tuple(row.model_copy(update={"mode": "offline"}) for row in cuda_summary().rows)
    energies = {row.case_id: metered(row) for row in rows}
    result = read(cuda_summary().model_copy(update={"rows": rows, "energies": energies})) | read(cuda_summary())
    keys = [figure.key for figure in (*FIGURES, *ENERGY)]
    of_rows = {f"{key}{end}" for key in keys for end in ("", "_ci95_low", "_ci95_high")}
    names = {name.removeprefix("inferometer_") for name in result}
    units = "_seconds|_per_second|_bytes|_items_per_joule|_joules|_share_ratio|_ratio|_info"
    assert {name for name in names if re.sub(f"({units})$", "", name) not in of_rows} <= listed
    assert {"latency_median_seconds", "throughput_items_ci95_low_per_second", "enqueue_seconds"} <= names


def test_intervals_are_gauges_beside_their_figure(families: dict[str, list[Sample]], rows: dict[str, Row]) -> None:
    lows = {entry.labels["case_id"]: entry.value for entry in families["inferometer_latency_p90_ci95_low_seconds"]}
    for case_id, low in lows.items():
        latency = rows[case_id].latency_ns
        assert latency is not None
        assert low == latency.percentile_ci95["p90"].low / 1e9
    assert lows


def test_figures_of_plugins_have_their_name_and_unit_as_labels(summary: Summary) -> None:
    metric = CustomMetric(unit="items/W", better="higher", summary="Economy.", plugin="ours 1.0")
    sound = len(read(summary)["inferometer_throughput_items_per_second"])
    given: dict[str, float | Unavailable] = {row.case_id: 2.5 for row in summary.rows}
    given["minilm-l6-torch-eager-cpu-fp32-b1-s32"] = Unavailable(unavailable="no counter")
    rows = tuple(row.model_copy(update={"custom": {"economy": given[row.case_id]}}) for row in summary.rows)
    shown = read(summary.model_copy(update={"rows": rows, "custom": {"economy": metric}}))["inferometer_custom"]
    assert {(entry.labels["metric"], entry.labels["unit"], entry.value) for entry in shown} == {
        ("economy", "items/W", 2.5)
    }
    assert len(shown) == sound - 1
