"""The energy pass with a card and a worker that a test makes up: when the counter is read, and what is said."""

from __future__ import annotations

import ctypes
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import energy
from harness.core import store
from harness.core.errors import CasesFailedError, UnavailableError, UsageError
from harness.core.host.gpu import GpuHandle
from harness.core.layout import Results
from harness.core.protocol import CaseJob
from harness.core.schemas import Block, Energy, Failed, Measured
from harness.processes import energy_meter
from tests.fixtures.nvml import FakeDriver, FakeNvml, NVMLError_NotSupported
from tests.synthetic_results import EFFICIENTNET, case_of, failed, measured, plan_of

GOOD = case_of(EFFICIENTNET, "onnxruntime", "fp32", 4).model_copy(update={"device": "cuda"})
BAD = case_of(EFFICIENTNET, "torch-eager", "fp32", 4).model_copy(update={"device": "cuda"})
PHASES = ("load", "reference check", "warm-up", "measure", "outputs check", "record")
S = 1_000_000_000


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """A plan of two cases on a card that uses 70 W at rest; every reading is 6 s after the one before."""
    plan = plan_of((EFFICIENTNET,), [GOOD, BAD]).model_copy(update={"device": "cuda"})
    result = Results(tmp_path)
    store.save(result.plan, plan)
    counter = itertools.accumulate([0, 420_000, 0, 3_000_000, 0, 3_000_000])
    library = FakeNvml(DeviceGetTotalEnergyConsumption=lambda _card: next(counter), DeviceGetComputeRunningProcesses=[])
    clock = itertools.count(0, 6 * S)
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: FakeDriver())
    monkeypatch.setitem(sys.modules, "pynvml", library)  # type: ignore[arg-type]
    monkeypatch.setattr(energy_meter, "now_ns", lambda: next(clock))
    monkeypatch.setattr(energy_meter.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(energy, "Worker", lambda *_arguments: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(energy, "measure_turn", turn)
    return result


def turn(job: CaseJob, _worker: Any, _results: Results, observer: energy_meter.PhaseMeter) -> Measured | Failed:
    assert (job.case.mode, job.measurement.max_s) == ("offline", 6.0)
    if job.case.backend == BAD.backend:
        observer.entered("load")
        return failed(job.case, 1)
    for phase in PHASES:
        observer.entered(phase)
    blocks = (Block(iterations=1_000, wall_ns=6 * S),)
    return measured(job.case, EFFICIENTNET, 1, 10).model_copy(update={"blocks": blocks, "latency_ns": ()})


def run(results: Results, *more: str) -> None:
    energy.stage(["--results", str(results.root), *more])


def test_a_case_is_saved_with_its_energy_and_a_failed_one_is_named(
    results: Results, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CasesFailedError, match="The energy of 1 case is not known"):
        run(results)
    result = store.load(results.energy_file(GOOD.case_id), Energy, "make energy")
    assert (result.idle_w, result.energy_j, result.window_ns) == (70, 3_000, 6 * S)
    assert result.joules_per_inference == pytest.approx(2.58)
    assert not results.energy_file(BAD.case_id).exists()
    said = capsys.readouterr()
    assert "70 W idle" in said.out
    assert f"{GOOD.case_id}: 2.58 J an inference, 0.645 J a sample, at 500 W" in said.out
    assert BAD.case_id in said.err


def test_a_case_with_its_energy_is_not_measured_again(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CasesFailedError):
        run(results)
    asked: list[str] = []

    def remember(job: CaseJob, *_rest: Any) -> Failed:
        asked.append(job.case.case_id)
        return failed(job.case, 1)

    monkeypatch.setattr(energy, "measure_turn", remember)
    monkeypatch.setattr(energy_meter, "read", lambda _card: energy_meter.Meter(0, len(asked)))
    monkeypatch.setattr(energy, "idle_energy", lambda _card, _seconds: energy.EnergySpent(350.0, 5 * S))
    with pytest.raises(CasesFailedError):
        run(results)
    assert asked == [BAD.case_id]
    with pytest.raises(CasesFailedError):
        run(results, "--force")
    assert asked == [BAD.case_id, GOOD.case_id, BAD.case_id]


def test_a_plan_for_a_cpu_and_a_short_window_are_refused(results: Results) -> None:
    with pytest.raises(UsageError, match="too short"):
        run(results, "--window", "2")
    store.save(results.plan, plan_of((EFFICIENTNET,), [GOOD]))
    with pytest.raises(UsageError, match="for a CPU"):
        run(results)


def test_a_gpu_without_a_counter_and_a_gpu_in_use_are_refused() -> None:
    blind = GpuHandle(
        FakeNvml(DeviceGetTotalEnergyConsumption=NVMLError_NotSupported(), DeviceGetComputeRunningProcesses=[]), "card"
    )
    with pytest.raises(UnavailableError, match="does not count its energy"):
        energy_meter.idle_energy(blind, 0)
    with pytest.raises(UnavailableError, match="in use"):
        energy_meter.idle_energy(GpuHandle(FakeNvml(), "the card"), 0)


def test_a_setting_that_tuning_dropped_is_not_metered(
    results: Results, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = GOOD.model_copy(update={"case_id": f"{GOOD.case_id}-plain", "setting": "plain", "tuned": True})
    fast = GOOD.model_copy(update={"tuned": True})
    plan = plan_of((EFFICIENTNET,), [slow, fast]).model_copy(update={"device": "cuda"})
    store.save(results.plan, plan)
    for case, milliseconds in ((slow, 20), (fast, 10)):
        record = measured(case, EFFICIENTNET, 1, milliseconds)
        store.save_raw(results.raw_file(case.case_id, 1), record.model_copy(update={"settings_id": plan.settings_id}))
    run(results)
    assert f"{fast.case_id}: 2.58 J" in capsys.readouterr().out
    assert not results.energy_file(slow.case_id).exists()


def test_a_pass_over_one_model_leaves_the_others_out(results: Results) -> None:
    with pytest.raises(UsageError, match="model of this plan"):
        run(results, "--models", "resnet999")
