"""report: profiles of several backends are side by side, with a chart, and launch gaps where a trace has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import report
from harness.core import store
from harness.core.layout import Results
from harness.core.schemas import Row
from harness.core.schemas.profile_record import OperatorRow, PartsProfile
from tests.fixtures.traces import event
from tests.synthetic_cuda import cuda_summary
from tests.synthetic_results import RESNET, case_of
from tests.synthetic_roof import profile
from tests.synthetic_side_by_side import EAGER, GRAPH

TRACE = "operators.pt.trace.json"


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return profiled(tmp_path)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The results with their whole report. Tests only read it."""
    result = profiled(tmp_path_factory.mktemp("reported"))
    report.stage(["--results", str(result.root)])
    return result


def profiled(root: Path) -> Results:
    """Two profiled backends on a GPU, one with a trace and kernels that it reports."""
    result, summary = Results(root), cuda_summary()
    store.save(result.summary, summary)
    for backend, parts in (("torch-eager", EAGER), ("tensorrt", GRAPH)):
        row = next(row for row in summary.rows if _is_of(row, backend))
        model = profile(case_of(RESNET, backend, "fp16", 1), row)
        facts = {"case_id": row.case_id, "settings_id": summary.settings_id, "model": row.model, "setting": row.setting}
        store.save(result.model_profile(row.case_id), model.model_copy(update=facts))
        traces = (TRACE,) if backend == "torch-eager" else ()
        kernels = (OperatorRow(name="n", shapes="", calls=1, self_cpu_ns=0, self_device_ns=220),)
        edited = parts.model_copy(update={"traces": traces, "operators": kernels if traces else ()})
        store.save(result.parts_profile(row.case_id), PartsProfile.model_validate(edited.model_dump()))
    row = next(row for row in summary.rows if _is_of(row, "torch-eager"))
    events = [event("kernel", 0, 10, 1), event("kernel", 15, 5, 2), event("cuda_runtime", 8, 6, 2)]
    events.append(event("cuda_runtime", -5, 2, 1))
    (result.profile(row.case_id) / TRACE).write_text(json.dumps({"traceEvents": events}))
    return result


def _is_of(row: Row, backend: str) -> bool:
    case = (row.model, row.precision, row.batch_size, row.boundary, row.tried, row.status)
    return row.backend == backend and case == ("resnet50", "fp16", 1, "compute", False, "measured")


def test_the_comparison_is_in_the_report_with_its_chart_and_gaps(reported: Results) -> None:
    text = reported.report_details.read_text()
    name = "resnet50-fp16-batch-1-seeded-layers.png"
    assert f"](charts/{name})" in text
    assert (reported.charts / name).read_bytes().startswith(b"\x89PNG")
    assert "### resnet50, fp16, batch 1: where tensorrt gains on torch-eager" in text
    assert "torch-eager: GPU idle 25.0% of the traced window, 20.0% waiting for launches; " in text
    assert "% of the measured latency, without the profiler, which slows the host." in text
    section = text[text.index("### resnet50, fp16") :]
    assert section.index("fp16 on cuda") < section.index("| group")


def test_the_page_has_the_tables_and_no_image(reported: Results) -> None:
    shown = reported.report_page.read_text()
    assert "where tensorrt gains on torch-eager" in shown
    assert "layers.png" not in shown


def test_without_charts_the_tables_stay(results: Results) -> None:
    report.stage(["--results", str(results.root), "--no-charts"])
    text = results.report_details.read_text()
    assert "| sum of the parts" in text
    assert "layers.png" not in text
