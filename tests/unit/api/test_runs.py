"""Which stages a measurement of the API starts, with stages that only note their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.api import runs
from harness.core import store
from harness.core.layout import Models, Results
from tests.synthetic_results import RESNET, Synthetic, case_of


def test_limits_are_measured_before_the_rows_on_a_cpu_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results(tmp_path)
    case = case_of(RESNET, "torch-eager", "fp32", 1)
    store.save(results.summary, Synthetic(models=(RESNET,), cases=[case]).summary())
    started: list[str] = []

    def stage(name: str, *_arguments: str, show: runs.Show | None = None) -> tuple[str, ...]:
        started.append(name)
        return ()

    monkeypatch.setattr(runs, "run_stage", stage)
    runs.Run(results, Models(tmp_path / "models"), force=False, show=None).measure()
    assert started == ["roof", "run", "aggregate"]
