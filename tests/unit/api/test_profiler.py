"""The profiler's own decisions, and calls that differ in a case's figures; runs: tests/integration/test_api.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.api import ModelProfiler, Profile
from harness.api import profiler as module
from harness.api.given_model import subject_of
from harness.api.profiler import CallResult, answers_of, contradictions
from harness.api.results import Benchmark
from harness.core.errors import (
    CaseError,
    ConfigError,
    InferometerError,
    MissingInputError,
    UnavailableError,
    UsageError,
)
from harness.core.layout import Models
from harness.core.schemas import Summary
from tests.synthetic_results import Synthetic

DAY = "2026-11-29"


def test_equal_figures_need_no_word() -> None:
    same = {"case": CallResult(1e6, 300, {"max_s": 1.0}, DAY)}
    assert contradictions(same, dict(same)) == ()
    assert contradictions({}, same) == ()


def test_other_settings_are_named() -> None:
    before = {"case": CallResult(1e6, 300, {"max_s": 1.0, "rounds": 3}, DAY)}
    (said,) = contradictions(before, {"case": CallResult(1.5e6, 50, {"max_s": 1.0, "rounds": 5}, DAY)})
    assert said == (
        "`case`: an earlier call gave 1.00 ms, this one 1.50 ms. They asked for different settings: rounds 3 and 5."
    )


def test_the_same_settings_are_said_with_when_each_was_measured() -> None:
    before = {"case": CallResult(1e6, 300, {}, "09:00")}
    (said,) = contradictions(before, {"case": CallResult(1.5e6, 1200, {}, "10:00")})
    assert said.endswith("Same settings, other samples: 300 from 09:00 and 1,200 from 10:00.")


def test_a_result_shows_its_remarks(tmp_path: Path) -> None:
    summary = Synthetic().summary()
    result = Benchmark(tmp_path, summary, remarks=("They differ.",))
    assert result.markdown().endswith("They differ.")
    assert repr(result).endswith("They differ.")
    medians = {case: answer.median for case, answer in answers_of(result, {}).items()}
    assert medians == {row.case_id: row.latency_ns.median for row in summary.rows if row.latency_ns}


def without_figure(status: str) -> Summary:
    summary = Synthetic().summary()
    row = next(row for row in summary.rows if row.status == "skipped")
    changed = row.model_copy(update={"status": status, "reason": "It broke.", "hint": None})
    return summary.model_copy(update={"rows": (changed,)})


@pytest.mark.parametrize(("status", "kind"), [("failed", CaseError), ("skipped", UnavailableError)])
def test_a_row_without_a_figure_is_an_error(status: str, kind: type[InferometerError]) -> None:
    run: Any = SimpleNamespace(measure=lambda: without_figure(status))
    plan: Any = None
    with pytest.raises(kind, match=rf"was {status}: It broke\."):
        ModelProfiler("resnet18")._profiled(run, plan, None, Profile)


def test_a_model_that_is_not_known_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        ModelProfiler("resnet19")
    assert "Did you mean `resnet18`?" in raised.value.hint


@pytest.mark.parametrize(
    "choice",
    [{"backend": ["openvino", "onnxruntime"]}, {"batch_size": [1, 8]}, {"precision": 0.5}, {"sequence_length": (1,)}],
    ids=lambda choice: next(iter(choice)),
)
def test_a_profiler_has_one_of_each(choice: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(choice))}=.* is not one plain value") as raised:
        ModelProfiler("resnet18", **choice)
    assert "benchmark()" in raised.value.hint


@pytest.mark.parametrize(
    ("choice", "problem", "hint"),
    [
        ({"precision": "fp23"}, "Unknown precision `fp23`.", "Did you mean `fp32`?"),
        ({"device": "gpu"}, "Unknown device `gpu`.", "Known: cpu, cuda."),
        ({"backend": "onnx-runtime"}, "Unknown backend `onnx-runtime`.", "Did you mean `onnxruntime`?"),
        ({"backend": "tensorrt"}, "tensorrt does not run on cpu.", "openvino"),
        ({"backend": "openvino", "precision": "tf32"}, "openvino does not run tf32", "It runs: fp32"),
        ({"precision": "tf32"}, "No backend runs tf32 on cpu.", "Choose another precision."),
    ],
)
def test_a_choice_that_cannot_be_is_an_error_of_the_constructor(
    choice: dict[str, Any], problem: str, hint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        ModelProfiler("resnet18", **choice)
    assert raised.value.problem.startswith(problem)
    assert hint in raised.value.hint


def test_a_device_that_is_not_here_is_an_error_of_the_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_device: str) -> None:
        raise UnavailableError("No GPU here.", "Use another machine.")

    monkeypatch.setattr(module.gpu, "require", absent)
    with pytest.raises(UnavailableError, match="No GPU here"):
        ModelProfiler("resnet18", device="cuda")


def test_int8_is_for_the_backends_of_a_benchmark() -> None:
    assert ModelProfiler("resnet18", precision="int8").precision == "int8"


def test_no_samples_are_not_taken_for_the_usual_number(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"batch_sizes\[0\]: input should be greater"):
        ModelProfiler("resnet18", batch_size=0, folder=tmp_path).memory_profile()


def test_without_a_gpu_nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(_device: str) -> None:
        raise UnavailableError("No GPU here.", "Use another machine.")

    monkeypatch.setattr(module.gpu, "require", absent)
    with pytest.raises(UnavailableError, match="No GPU here"):
        ModelProfiler("resnet18", folder=tmp_path / "runs").gpu_profile()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("call", ["export_json", "export_csv", "generate_html_report"])
def test_nothing_can_be_written_before_anything_was_profiled(call: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Nothing was profiled yet"):
        getattr(ModelProfiler("resnet18"), call)(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_saved_program_is_a_model_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "model.pt2").touch()
    subject = subject_of(tmp_path / "model.pt2", None, None, Models(tmp_path))
    assert subject.name == f"pt2:{tmp_path / 'model.pt2'}"
    with pytest.raises(MissingInputError, match="There is no file"):
        ModelProfiler(tmp_path / "mdel.pt2", folder=tmp_path / "runs")
    with pytest.raises(MissingInputError, match="no ONNX file and no saved program"):
        ModelProfiler(tmp_path / "model.txt", folder=tmp_path / "runs")


def test_its_text_names_it(tmp_path: Path) -> None:
    profiler = ModelProfiler("resnet18", precision="bf16", backend="openvino", folder=tmp_path)
    assert repr(profiler) == f"ModelProfiler(resnet18, openvino, bf16 on cpu, folder={tmp_path})"


def test_later_calls_use_the_inputs_of_the_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planned: list[dict[str, Any]] = []

    class PlannedError(Exception):
        """Ends a call once it is planned."""

    def plan(_run: object, config: dict[str, Any], **_: Any) -> None:
        planned.append(config)

    def stop(*_: Any) -> None:
        raise PlannedError

    monkeypatch.setattr(module.Run, "plan", plan)
    monkeypatch.setattr(module.Run, "measure", stop)
    monkeypatch.setattr(module.Run, "profile", stop)
    profiler = ModelProfiler("resnet18", folder=tmp_path)
    for call in (lambda: profiler.profile(num_runs=7), profiler.profile_layers, profiler.memory_profile):
        with pytest.raises(PlannedError):
            call()
    assert planned[0]["measurement"]["max_samples"] == 7
    assert planned[1] == planned[2] == planned[0]


def test_calls_that_time_something_say_how_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    timed: list[bool] = []

    def plan(_run: object, _config: dict[str, Any], *, measured: bool, **_: Any) -> None:
        timed.append(measured)
        raise UsageError("no", "no")

    monkeypatch.setattr(module.Run, "plan", plan)
    monkeypatch.setattr(module.gpu, "require", lambda _device: None)
    profiler = ModelProfiler("resnet18", folder=tmp_path)
    calls = (
        profiler.profile,
        profiler.benchmark,
        profiler.gpu_profile,
        profiler.profile_layers,
        profiler.memory_profile,
    )
    for call in calls:
        with pytest.raises(UsageError, match="no"):
            call()
    assert timed == [True, True, True, False, False]


def test_a_call_that_cannot_be_planned_leaves_nothing_for_later_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planned: list[dict[str, Any]] = []

    def plan(_run: object, config: dict[str, Any], **_: Any) -> None:
        planned.append(config)
        raise UsageError("no", "no")

    monkeypatch.setattr(module.Run, "plan", plan)
    profiler = ModelProfiler("resnet18", folder=tmp_path)
    pictures = np.zeros((8, 3, 224, 224), np.float32)
    for arguments in ({"warmup_runs": -1}, {"num_runs": 7}, {"input_data": pictures}, {}):
        with pytest.raises(UsageError):
            profiler.profile(**arguments)
    with pytest.raises(UsageError, match="no"):
        profiler.profile_layers()
    used, own, usual, later = planned
    assert (used["measurement"]["max_samples"], "inputs" in own["models"][0]) == (7, True)
    assert usual == later
    assert "inputs" not in later["models"][0]
    assert "measurement" not in later


def test_an_empty_list_of_configurations_is_not_every_backend(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the list is empty"):
        ModelProfiler("resnet18", folder=tmp_path).benchmark([])
