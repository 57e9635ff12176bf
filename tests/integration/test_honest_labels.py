"""Modules that do something else than their label says, and backends that are held against inputs never seen before."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core import store
from harness.core.layout import Models
from harness.core.schemas import Check, ExportRecord, Measured
from tests.fixtures.stages import TINY, Folder

pytestmark = pytest.mark.stages

OWN = "module:tests.fixtures.models:"


@pytest.fixture
def own(tmp_path: Path) -> Folder:
    return Folder(tmp_path, Models(tmp_path / "models"))


def flags_of(folder: Folder) -> dict[tuple[str, str], set[str]]:
    """By model and backend, the flags that void a row, or `failed`."""
    void = {"EAGER_FALLBACK", "PLACEMENT", "PARITY_FAIL"}
    return {
        (row.model.removeprefix(OWN), row.backend): {"failed"}
        if row.status == "failed"
        else {flag.name for flag in row.flags} & void
        for row in folder.summary().rows
    }


@pytest.mark.parametrize(
    "compiles", [("counting",), pytest.param(("counting", "broken", "casting"), marks=pytest.mark.slow)]
)
def test_modules_are_labelled_by_the_precision_that_ran(own: Folder, compiles: tuple[str, ...]) -> None:
    eager = {"backends": ["torch-eager"], "models": [OWN + name for name in ("casting", "lowering", "parameterless")]}
    compiled = {"backends": ["torch-compile"], "models": [OWN + name for name in compiles]}
    names = dict.fromkeys((*compiles, "casting", "lowering", "parameterless"))
    own.plan(eager, compiled, models=tuple(OWN + name for name in names), parity_samples=8, threads=1)
    exported = own("export")
    assert exported.returncode == 0, exported.stderr
    ran = own("run")
    assert ran.returncode == 0, ran.stderr
    compiled_flags = {"counting": "EAGER_FALLBACK", "broken": "EAGER_FALLBACK", "casting": "PLACEMENT"}
    assert flags_of(own) == {
        **{(name, "torch-compile"): {compiled_flags[name]} for name in compiles},
        ("casting", "torch-eager"): {"PLACEMENT"},
        ("lowering", "torch-eager"): {"PLACEMENT"},
        ("parameterless", "torch-eager"): set(),
    }


def test_an_exporter_that_refuses_a_model_fails_only_the_rows_that_need_its_file(own: Folder) -> None:
    plan = own.plan(
        {"backends": ["torch-eager", "onnxruntime"]}, models=(TINY, f"{OWN}unexportable"), parity_samples=8, threads=1
    )
    exported = own("export")
    assert exported.returncode == 10
    assert f"Warning: {OWN}unexportable: no fp32 ONNX file." in exported.stderr
    assert "Error: 1 of 2 models lack a file that rows of the plan need." in exported.stderr
    again = own("export")
    assert (again.returncode, again.stdout.count("up to date")) == (10, 2)
    ran = own("run")
    assert ran.returncode == 10, ran.stderr
    assert f"{OWN}unexportable is not measured where its ONNX file is needed." in ran.stderr
    assert flags_of(own) == {
        ("tiny", "torch-eager"): set(),
        ("tiny", "onnxruntime"): set(),
        ("unexportable", "torch-eager"): set(),
        ("unexportable", "onnxruntime"): {"failed"},
    }
    slug = next(model.slug for model in plan.models if model.name == f"{OWN}unexportable")
    record = store.load(own.models.folder(slug).record, ExportRecord, "make export")
    assert (set(record.refused), record.onnx) == ({"fp32"}, {})
    assert record.refused["fp32"].error.startswith("The dynamo exporter failed (opset ")
    assert record.refused["fp32"].hint.startswith("The torchscript exporter was tried, too: ")
    assert "no exporter takes this" in record.refused["fp32"].hint


def test_models_are_exported_at_the_same_time_and_one_that_fails_does_not_stop_the_others(
    own: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = own.root / "meeting"
    place.mkdir()
    monkeypatch.setenv("MEETING", str(place))
    names = (f"{OWN}meeting_left", f"{OWN}undefined", f"{OWN}meeting_right", f"{OWN}unexportable")
    own.plan({"backends": ["torch-eager", "onnxruntime"]}, models=names, parity_samples=8, threads=1)
    exported = own("export", "--export-jobs", "2")
    assert exported.returncode == 10, exported.stderr
    assert "4 models to export, 2 at the same time" in exported.stdout
    assert f"{OWN}undefined: not exported" in exported.stdout
    assert exported.stderr.count("Hint: ") == 2  # of the model that failed, and of the stage
    assert "Error: 1 of 4 models were not exported." in exported.stderr
    assert not own.results.exporting.exists()
    again = own("export", "--export-jobs", "4")
    assert (again.returncode, again.stdout.count("up to date")) == (10, 3)


@pytest.mark.slow
def test_the_exporter_is_the_plans_and_the_message_says_which_other_works(own: Folder) -> None:
    matrix = {"backends": ["torch-eager", "onnxruntime"]}
    config = own.configure(matrix, models=(f"{OWN}only_older",))
    assert own("plan", "--config", str(config)).returncode == 0
    exported = own("export")
    assert exported.returncode == 10
    assert "The torchscript exporter was tried, and its file passes every check: set EXPORTER=torchscript." in (
        exported.stderr
    )
    assert own("plan", "--config", str(config), "--exporter", "torchscript").returncode == 0
    again = own("export")
    assert again.returncode == 0, again.stderr
    assert "torchscript), " in again.stdout
    assert own("run").returncode == 0
    assert flags_of(own) == {("only_older", "torch-eager"): set(), ("only_older", "onnxruntime"): set()}


@pytest.mark.slow
def test_a_model_that_torch_alone_runs_needs_no_exporter(own: Folder) -> None:
    own.plan({"backends": ["torch-eager"]}, models=(f"{OWN}unexportable",))
    exported = own("export")
    assert exported.returncode == 0, exported.stderr
    assert "Warning: " in exported.stderr
    assert own("run").returncode == 0


def test_a_reference_with_nan_is_refused(own: Folder) -> None:
    own.plan({"backends": ["torch-eager"]}, models=(f"{OWN}undefined",), parity_samples=16)
    done = own("export")
    assert done.returncode != 0
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"Error: Output `output` of {OWN}undefined is NaN in ")
    assert "nothing can be compared with it" in error
    assert hint.startswith("Hint:  Look for 0/0")


@pytest.mark.parametrize(
    "backends",
    [
        ("torch-eager", "onnxruntime", "openvino"),
        pytest.param(
            ("torch-eager", "torch-script", "torch-compile", "onnxruntime", "openvino"), marks=pytest.mark.slow
        ),
    ],
)
def test_every_backend_answers_inputs_that_it_never_saw(own: Folder, backends: tuple[str, ...]) -> None:
    blocks = [
        {"backends": list(backends), "modes": ["sync", "offline"]},
        {"backends": ["openvino"], "modes": ["pipelined"]},
        {"backends": ["torch-eager", "openvino"], "precisions": ["bf16"], "batch_sizes": [6]},
    ]
    own.plan(*blocks, models=(f"{OWN}slower",), threads=1)
    exported = own("export")
    assert exported.returncode == 0, exported.stderr
    assert own("run").returncode == 0
    records = own.records()
    assert len(records) == 2 * len(backends) + 3
    for record in records.values():
        assert isinstance(record, Measured)
        assert record.repeats is not None
        assert (record.case_id, record.repeats.missing) == (record.case_id, None)
        # In bf16 two inputs may by chance have one answer; never all of them.
        assert record.repeats.compared >= 8
        assert record.repeats.unchanged <= record.repeats.compared // 4
        assert len(record.repeats.fresh_ns) == len(record.repeats.repeated_ns) >= 8
        assert len(record.repeats.new_l2) >= 4
        assert max(record.repeats.new_l2) < (0.02 if "bf16" in record.case_id else 1e-5)
        assert record.outputs_time is not None
        assert record.outputs_time.arrays == 1
    for row in own.summary().rows:
        assert "LAZY_OUTPUTS" not in {flag.name for flag in row.flags}
        assert row.checks["LAZY_OUTPUTS"] == Check(rounds=1, of=1, missing=None)
