"""aggregate reads the GPU's limits and the records of engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import aggregate
from harness.core import store
from harness.core.layout import Models, Results
from harness.core.schemas import Case, Measured, Plan, Roof, Summary
from tests.fixtures.engines import NAME, PATH, engine_record
from tests.synthetic_results import RESNET, Synthetic, case_of, export_record, named

CASE = case_of(RESNET, "tensorrt", "fp16", 1).model_copy(update={"device": "cuda"})
ENGINE = engine_record(export_record(RESNET))
ROOF = Roof(
    created_at="2026-11-28T00:00:00+00:00",
    environment_id="e",
    device="A GPU",
    uuid="GPU-1",
    flops={"fp16": 800e12},
    copy_bytes_per_s=3e12,
    launch_ns=1_200.0,
)


def with_engine(_case: Case, record: Measured) -> Measured:
    return record.model_copy(update={"artifacts": {PATH: ENGINE.engine.sha256}})


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Results, Models]:
    results, models = Results(tmp_path / "results"), Models(tmp_path / "models")
    Synthetic(models=(RESNET,), cases=[CASE], samples=100, change=with_engine).write(results.root, models.root)
    plan = store.load(results.plan, Plan, "make plan")
    store.save(results.plan, named(plan.model_copy(update={"device": "cuda"})))
    store.save(models.folder(RESNET.name).engine_record(NAME), ENGINE)
    store.save(results.roof, ROOF)
    return results, models


def summary(results: Results, models: Models) -> Summary:
    aggregate.stage(["--results", str(results.root), "--models-dir", str(models.root)])
    return store.load(results.summary, Summary, "make aggregate")


def test_limits_and_engines_are_in_the_summary(folders: tuple[Results, Models]) -> None:
    result = summary(*folders)
    assert [row.status for row in result.rows] == ["measured"]
    assert result.engines == {f"{RESNET.name}/{PATH}": ENGINE}
    assert result.roof == ROOF
    assert result.notes == ()


def test_damaged_files_are_named_and_cost_the_rows_based_on_them(folders: tuple[Results, Models]) -> None:
    results, models = folders
    results.roof.write_text("{")
    models.folder(RESNET.name).engine_record(NAME).write_text("{")
    result = summary(results, models)
    assert [row.status for row in result.rows] == ["missing"]
    assert result.roof is None
    notes = " ".join(result.notes)
    assert "roof.json" in notes
    assert f"engines/{NAME}.json" in notes


def test_limits_that_were_not_measured_are_no_damage(folders: tuple[Results, Models]) -> None:
    results, models = folders
    results.roof.unlink()
    result = summary(results, models)
    assert (result.roof, result.notes) == (None, ())


def test_a_plan_for_a_cpu_has_no_use_for_a_gpus_limits_and_says_so(folders: tuple[Results, Models]) -> None:
    results, models = folders
    plan = store.load(results.plan, Plan, "make plan")
    store.save(results.plan, named(plan.model_copy(update={"device": "cpu"})))
    result = summary(results, models)
    assert result.roof is None
    assert any("roof.json is not a valid CpuRoof" in note for note in result.notes)
