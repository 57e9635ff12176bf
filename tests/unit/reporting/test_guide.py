"""“How to read this” explains what the report has, and nothing else."""

from __future__ import annotations

from pathlib import Path

from harness.core import store
from harness.core.schemas import Summary
from harness.reporting.prose.guide import guide

PUBLISHED = Path(__file__).parents[3] / "results/published/h200"


def test_a_report_of_generation_explains_no_column_of_latencies() -> None:
    text = guide(store.load(PUBLISHED / "2026-11-30-generation-onnxruntime/summary.json", Summary, "make aggregate"))
    assert "**grade**" in text
    for absent in ("**median**", "**p90", "**speed-up**", "**rel. L2**", "**peak MiB**", "**cold start**", "**bold**"):
        assert absent not in text


def test_rates_accuracy_and_rounds_are_those_of_the_rows() -> None:
    run = store.load(PUBLISHED / "2026-11-30-resnet50-cudnn/summary.json", Summary, "make aggregate")
    text = guide(run)
    assert "1 to 2 rounds of each case" in text
    assert "**images/s**" in text
    assert "**cosine**" in text
    assert "top-1" not in text
    fp32 = run.model_copy(update={"rows": tuple(row for row in run.rows if row.precision == "fp32")})
    assert "**cosine**" not in guide(fp32)
    assert "**file MiB**" not in guide(fp32)
