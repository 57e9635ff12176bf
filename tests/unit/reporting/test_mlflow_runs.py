"""What MLflow gets of a summary, without MLflow."""

from __future__ import annotations

import re

from harness.core.schemas import CustomMetric, Summary
from harness.reporting.writers.mlflow import case_runs, parent_run
from tests.synthetic_cuda import cuda_summary, metered

VALID = re.compile(r"[\w .:/-]+", re.ASCII)
"""Names that MLflow takes (mlflow.utils.validation)."""


def everything() -> Summary:
    metric = CustomMetric(unit="items/W [%]", better="higher", summary="Economy.", plugin="ours 1.0")
    rows = tuple(row.model_copy(update={"custom": {"economy": 2.5}}) for row in cuda_summary().rows)
    energies = {row.case_id: metered(row) for row in rows if row.status == "measured"}
    return cuda_summary().model_copy(update={"rows": rows, "energies": energies, "custom": {"economy": metric}})


def test_names_are_ones_that_mlflow_takes_and_figures_are_figures() -> None:
    for run in (parent_run(everything()), *case_runs(everything())):
        assert all(VALID.fullmatch(name) for name in (*run.params, *run.metrics, *run.tags))
        assert {type(value) for value in run.metrics.values()} == {float}
        assert "compile_cached" not in run.metrics


def test_a_gpu_row_has_its_figures_and_no_row_is_void() -> None:
    rows = {row.case_id: row for row in everything().rows}
    runs = case_runs(everything())
    assert runs
    for run in runs:
        row = rows[run.name]
        assert row.grade != "F"
        assert row.device_ns is not None
        assert row.roofline is not None
        assert run.metrics["device_median_ms"] == row.device_ns.device / 1e6
        assert run.metrics["flops_share_of_best"] == row.roofline.flops_share
        assert run.metrics["energy_per_batch_j"] == 2.5
        assert run.metrics["custom_economy"] == 2.5
    assert parent_run(everything()).tags["inferometer.custom_economy_unit"] == "items/W [%]"


def test_flags_are_a_tag_where_there_are_any() -> None:
    rows = {row.case_id: row for row in everything().rows}
    for run in case_runs(everything()):
        names = {flag.name for flag in rows[run.name].flags}
        assert set(run.tags.get("inferometer.flags", "").split()) == names
