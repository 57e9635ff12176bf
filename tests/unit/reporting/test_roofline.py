"""Rows of a CPU against its limits, in the report, the page and the tables for programs: never in a GPU's words."""

from __future__ import annotations

import csv
import io

import pytest

from harness.core.schemas import ExportRecord, Summary
from harness.reporting.details import document
from harness.reporting.html.page import page
from harness.reporting.tables.roofline_table import roof_line, roofline_table
from harness.reporting.writers.csv import csv_tables
from harness.reporting.writers.markdown import table_text
from tests.synthetic_results import RESNET, FakeModel, Synthetic, case_of, export_record
from tests.synthetic_roof import CPU_ROOF, WORK

CASES = [
    case_of(RESNET, "torch-eager", "fp32", 1),
    case_of(RESNET, "onnxruntime", "int8", 1, setting="1-thread"),
    case_of(RESNET, "noop", "fp32", 1),
]


def with_work(model: FakeModel) -> ExportRecord:
    return export_record(model).model_copy(update={"work": (WORK.model_copy(update={"flops_per_item": 10**9}),)})


@pytest.fixture(scope="module")
def limited() -> Summary:
    return Synthetic(models=(RESNET,), cases=CASES, export=with_work, roof=CPU_ROOF).summary()


def test_the_limits_are_listed_by_threads() -> None:
    assert roof_line(CPU_ROOF) == (
        f"Measured limits of {CPU_ROOF.device} "
        "with 1 thread: best matrix product fp32 100, int8 400, bf16 50.0 GFLOP/s, copy 10.0 GB/s (read + written); "
        "with 2 threads: best matrix product fp32 400, int8 1,600, bf16 200 GFLOP/s, copy 20.0 GB/s (read + written) · "
        "last-level cache 32 MiB."
    )
    bare = CPU_ROOF.limits[0].model_copy(update={"copy_bytes_per_s": None})
    changes = {"limits": (bare,), "cache_bytes": None, "without": ("PyTorch", "OpenVINO")}
    assert roof_line(CPU_ROOF.model_copy(update=changes)).endswith(
        "with 1 thread: best matrix product fp32 100, int8 400, bf16 50.0 GFLOP/s. "
        "Measured without PyTorch, OpenVINO, whose products may be faster."
    )


def test_each_row_has_its_shares(limited: Summary) -> None:
    eager = limited.rows[0]
    assert eager.roofline is not None
    assert eager.latency_ns is not None
    text = table_text(roofline_table(limited.rows, limited.roof))
    header, _, first, *others = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")
    ]
    assert "GFLOP/s" in header
    assert len(others) == 1  # noop computes nothing
    cells = dict(zip(header, first, strict=True))
    assert cells["GFLOP/s"] == f"{1e9 / eager.latency_ns.median:.1f}"
    assert cells["of the best"] == f"{int(eager.roofline.flops_share * 1000) / 10:.1f}%"
    assert cells["limit"] == "–"


def test_report_and_page_speak_of_the_cpu(limited: Summary) -> None:
    text = document(limited, {})
    assert "### Roofline" in text
    assert "Measured limits of" in text
    assert "measured on this CPU with as many threads" in text
    assert "GPU" not in text
    html = page(limited)
    assert "Roofline</h3>" in html


@pytest.mark.parametrize("is_file", [False, True])
def test_a_model_whose_work_was_not_counted_says_why_it_has_no_roofline(is_file: bool) -> None:
    def uncounted(model: FakeModel) -> ExportRecord:
        return export_record(model).model_copy(update={"work": (), **({"module": None} if is_file else {})})

    made = Synthetic(models=(RESNET,), cases=CASES, export=uncounted, roof=CPU_ROOF)
    why = (
        "an ONNX file has no module that PyTorch's counter could run"
        if is_file
        else "the module does not run below PyTorch's counter"
    )
    says = f"### Roofline\n\nThe FLOPs of a pass are unknown, so that no row has a roofline: {why}."
    assert says in document(made.summary(), {})
    without_limits = Synthetic(models=(RESNET,), cases=CASES, export=uncounted)
    assert "### Roofline" not in document(without_limits.summary(), {})


def test_csv_has_the_limits_that_apply_to_the_row(limited: Summary) -> None:
    result = list(csv.DictReader(io.StringIO(csv_tables(limited, ())["roofline"])))
    by_precision = {line["precision"]: line for line in result}
    assert {name: float(line["best_flops_per_s"]) for name, line in by_precision.items()} == {
        "fp32": 400e9,
        "int8": 1600e9,
    }
    eager = by_precision["fp32"]
    assert float(eager["flops_per_s"]) == pytest.approx(float(eager["flops_share_of_best"]) * 400e9)
    assert float(eager["best_copy_bytes_per_s"]) == 20e9
