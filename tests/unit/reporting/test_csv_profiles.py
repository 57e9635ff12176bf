"""CSV files of profiles: whole, by the same sums as the report's tables, and with the conditions of their case."""

from __future__ import annotations

import csv
import io

import pytest

from harness.core.schemas import Row, Summary
from harness.core.schemas.profile_record import OperatorRow
from harness.profiling.read_profiles import Profiled
from harness.profiling.reconcile import reconcile
from harness.reporting.tables.profile_tables import TOP_LAYERS
from harness.reporting.writers.csv import csv_tables
from tests.synthetic_layers import EAGER, ORT, layer
from tests.synthetic_results import RESNET, case_of
from tests.synthetic_roof import profile


@pytest.fixture(scope="module")
def profiled(rows: dict[str, Row]) -> list[Profiled]:
    eager, onnx, compiled = (
        case_of(RESNET, backend, "fp32", 1) for backend in ("torch-eager", "onnxruntime", "torch-compile")
    )
    return [
        Profiled(rows[eager.case_id], profile(eager, rows[eager.case_id]), EAGER),
        Profiled(rows[onnx.case_id], profile(onnx, rows[onnx.case_id]), ORT),
        Profiled(rows[compiled.case_id], profile(compiled, rows[compiled.case_id]), None),
    ]


@pytest.fixture(scope="module")
def tables(summary: Summary, profiled: list[Profiled]) -> dict[str, list[dict[str, str]]]:
    texts = csv_tables(summary, profiled)
    return {name: list(csv.DictReader(io.StringIO(text))) for name, text in texts.items()}


def test_every_line_says_its_conditions(tables: dict[str, list[dict[str, str]]], profiled: list[Profiled]) -> None:
    for name in ("cases", "sums", "groups", "layers", "operators"):
        for line in tables[f"profile_{name}"]:
            row = next(entry.row for entry in profiled if entry.row.case_id == line["case_id"])
            said = (line["backend"], line["device"], line["precision"], line["boundary"], line["batch_size"])
            assert said == (row.backend, "cpu", "fp32", "compute", "1")
            assert line["machine"]
    for name in ("models", "parameters", "files"):
        assert all((line["model"], line["weights"]) == ("resnet50", "seeded") for line in tables[f"profile_{name}"])


def test_a_model_has_one_line_and_every_case_its_own(tables: dict[str, list[dict[str, str]]]) -> None:
    (model,) = tables["profile_models"]
    assert (model["macs_per_item"], model["flops_per_item"]) == ("3500000000", "7000000000")
    assert (model["weights_fp32_bytes"], model["weights_fp16_bytes"]) == ("100000000", "")
    assert model["count_notes"] == "a note"
    assert len(tables["profile_cases"]) == 3
    assert {line["pass_peak_bytes"] for line in tables["profile_cases"]} == {""}
    assert {line["measured_by"] for line in tables["profile_cases"]} == {"not measured: why"}


def test_the_latency_of_a_profiled_case_is_that_of_its_row(
    tables: dict[str, list[dict[str, str]]], profiled: list[Profiled]
) -> None:
    for line, entry in zip(tables["profile_cases"], profiled, strict=True):
        assert entry.row.latency_ns is not None
        assert float(line["latency_median_ms"]) == entry.row.latency_ns.median / 1e6
        assert float(line["flops_per_s"]) == pytest.approx(7e9 / (entry.row.latency_ns.median / 1e9))


def test_layers_and_operators_are_all_there_with_unrounded_times(tables: dict[str, list[dict[str, str]]]) -> None:
    shown = [(line["layer"], line["group"], float(line["self_ms"])) for line in tables["profile_layers"]]
    assert shown == [(row.name, row.group, row.self_ns / 1e6) for row in (*EAGER.layers, *ORT.layers)]
    fused = next(line for line in tables["profile_layers"] if line["layer"] == "node_b")
    assert (fused["fused_from"], fused["output_shapes"], fused["parent"]) == ("x y z u v", "1x128x384", "mlp.act")
    (operator,) = tables["profile_operators"]
    assert (operator["self_cpu_ms"], operator["self_device_ms"]) == ("9.0", "")


def test_more_layers_than_the_report_shows(summary: Summary, profiled: list[Profiled]) -> None:
    many = EAGER.model_copy(update={"layers": tuple(layer(f"l{number}", 1000) for number in range(3 * TOP_LAYERS))})
    text = csv_tables(summary, [Profiled(profiled[0].row, profiled[0].model, many)])["profile_layers"]
    assert len(text.splitlines()) == 1 + 3 * TOP_LAYERS


def test_shares_of_a_case_add_up_to_one(tables: dict[str, list[dict[str, str]]]) -> None:
    for name in ("profile_layers", "profile_groups"):
        shares: dict[str, float] = {}
        for line in tables[name]:
            shares[line["case_id"]] = shares.get(line["case_id"], 0) + float(line["self_share"])
        assert list(shares.values()) == [pytest.approx(1), pytest.approx(1)]


def test_the_gain_of_backends_side_by_side_is_the_difference_of_their_sums(
    tables: dict[str, list[dict[str, str]]], profiled: list[Profiled]
) -> None:
    eager, onnx = (entry.row.case_id for entry in profiled[:2])
    for name, what in (("side_by_side_groups", "group"), ("side_by_side_modules", "module")):
        gains = {eager: 0.0, onnx: 0.0}
        for line in tables[name]:
            assert line[what]
            assert line["gain_over"] == eager
            gains[line["case_id"]] += float(line["gain_ms"])
        difference = sum(row.self_ns for row in EAGER.layers) - sum(row.self_ns for row in ORT.layers)
        assert gains == {eager: 0, onnx: pytest.approx(difference / 1e6)}
    attention = [line for line in tables["side_by_side_groups"] if line["group"] == "attention"]
    assert {line["backend"]: line["self_ms"] for line in attention} == {"torch-eager": "7.0", "onnxruntime": "3.0"}


def test_sums_say_whether_the_parts_explain_the_latency(
    tables: dict[str, list[dict[str, str]]], profiled: list[Profiled]
) -> None:
    for line, entry in zip(tables["profile_sums"], profiled[:2], strict=True):
        assert entry.parts is not None
        assert entry.row.latency_ns is not None
        result = reconcile(entry.parts, False, round(entry.row.latency_ns.median))
        assert result is not None
        assert (line["outcome"], float(line["parts_over_plain"])) == (result.outcome, result.ratio)
        assert line["reasons"] == "; ".join(result.reasons)
        assert float(line["corrected_parts_over_plain"]) == result.corrected
    eager, onnx = tables["profile_sums"]
    assert eager["notes"] == "A note."
    names = ("profile_grade", "profile_flags", "repeats", "launch_gap_share", "launch_gap_share_of")
    assert [eager[name] for name in names] == ["A", "", "2", "", ""]
    assert [onnx[name] for name in names] == ["B", "UNWATCHED", "", "", ""]
    assert (float(eager["repeats_spread"]), onnx["repeats_spread"]) == (pytest.approx(1 / 0.98 - 1), "")


def test_an_unexplained_profile_is_compared_with_no_other(summary: Summary, profiled: list[Profiled]) -> None:
    eager, onnx, _ = profiled
    a_fifth = Profiled(onnx.row, onnx.model, ORT.model_copy(update={"plain_ns": 40_000_000}))
    texts = csv_tables(summary, [eager, a_fifth])
    assert "side_by_side_groups" not in texts or not list(csv.DictReader(io.StringIO(texts["side_by_side_groups"])))
    sums = list(csv.DictReader(io.StringIO(texts["profile_sums"])))
    assert [line["outcome"] for line in sums] == ["adds up", "unexplained"]


def test_the_share_without_a_kernel_says_of_which_latency(summary: Summary, profiled: list[Profiled]) -> None:
    eager = profiled[0]
    assert eager.row.latency_ns is not None
    kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=1_000_000)
    on_gpu = EAGER.model_copy(update={"operators": (kernel,)})
    texts = csv_tables(summary, [Profiled(eager.row, eager.model, on_gpu)])
    (line,) = csv.DictReader(io.StringIO(texts["profile_sums"]))
    assert line["launch_gap_share_of"] == "measured latency"
    assert float(line["launch_gap_share"]) == pytest.approx(1 - 1e6 / eager.row.latency_ns.median)
