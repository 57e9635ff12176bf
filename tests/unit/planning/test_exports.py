"""Which cases an ONNX file that could not be made keeps from being measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.backends.batches import empty_export
from harness.core import cli, store
from harness.core.errors import ExportError, MalformedFileError, MissingInputError
from harness.core.layout import Models, Results
from harness.core.schemas import ExportFailure, ExportRecord, ExportRequest
from harness.planning.exports import (
    ExportReasons,
    Exports,
    missing_inputs,
    onnx_refusal,
    read_export,
    request_difference,
    unmeasured_lines,
)
from tests import synthetic_results as made


def case(backend: str, **changes: Any) -> Any:
    return made.case_of(made.RESNET, backend, "fp32", 1).model_copy(update=changes)


def export(*refused: str) -> ExportRecord:
    failure = {name: ExportFailure(error=f"No {name}.", hint="Mend it.") for name in refused}
    return empty_export(case("torch-eager")).model_copy(update={"refused": failure})


@pytest.mark.parametrize("backend", ["torch-eager", "torch-script", "torch-compile", "noop"])
def test_a_backend_that_needs_no_onnx_file_is_measured(backend: str) -> None:
    assert onnx_refusal(export("fp32", "fp16", "int8"), case(backend)) is None


@pytest.mark.parametrize(
    ("refused", "precision", "setting", "reason"),
    [
        ((), "fp32", "default", None),
        (("fp32",), "fp32", "default", "No fp32."),
        (("fp16",), "fp32", "default", None),
        (("int8",), "int8", "default", "No int8."),
        (("fp32",), "bf16", "default", "No fp32."),
    ],
)
def test_a_backend_that_needs_an_onnx_file_fails_with_its_reason(
    refused: tuple[str, ...], precision: str, setting: str, reason: str | None
) -> None:
    refusal = onnx_refusal(export(*refused), case("openvino", precision=precision, setting=setting))
    assert (refusal.problem if refusal else None) == reason


def test_a_form_of_a_file_is_one_of_its_own() -> None:
    fused = case("onnxruntime", device="cuda", precision="fp16", setting="fused+graph")
    assert onnx_refusal(export("fp16"), fused) is None
    assert onnx_refusal(export("fp16-fused"), fused) is not None


def test_an_engine_is_built_from_one_of_two_files() -> None:
    engine = case("tensorrt", device="cuda", precision="fp16", setting="static+graph")
    assert onnx_refusal(export("fp16-opset17"), engine) is None
    assert onnx_refusal(export("fp16-opset17", "fp32-opset17"), engine) is not None


def test_a_model_without_an_export_fails_all_that_load_something() -> None:
    absent = Exports({}, {made.RESNET.name: ExportError("Gone.", "Export it.")})
    assert absent.reason_against(case("torch-eager")) is not None
    assert absent.reason_against(case("noop")) is None
    partly = Exports({made.RESNET.name: recorded(refused=export("fp32").refused)}, {})
    assert partly.reason_against(case("torch-eager")) is None
    reason = partly.reason_against(case("onnxruntime"))
    assert reason is not None
    assert (reason.problem, reason.hint) == ("No fp32.", "Mend it.")


@pytest.mark.parametrize("after_export", [False, True])
def test_the_reason_of_a_failed_export_is_printed_once(after_export: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if after_export:
        monkeypatch.setenv(cli.AFTER_EXPORT, "1")
    else:
        monkeypatch.delenv(cli.AFTER_EXPORT, raising=False)
    reasons, failed = ExportReasons(), ExportError("Gone.", "Mend it.")
    assert [reasons.text(f"{name} is not measured", failed) for name in ("x", "y")] == [
        "x is not measured: its export failed, see above." if after_export else "x is not measured. Gone. Mend it.",
        "y is not measured: its export failed, see above.",
    ]
    # The export stage did not print what is wrong with the files that it wrote.
    damaged = MalformedFileError("It is damaged.", "Delete it.")
    assert reasons.text("z is not measured", damaged) == "z is not measured. It is damaged. Delete it."


def test_each_reason_names_the_backends_that_it_concerns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cli.AFTER_EXPORT, raising=False)
    gone, refused = ExportError("Gone.", "Mend it."), ExportError("No fp32.", "Leave it out.")
    cases = [(case("onnxruntime"), refused), (case("torch-eager"), gone), (case("openvino"), refused)]
    assert unmeasured_lines([*cases, *cases]) == [
        "resnet50 is not measured on onnxruntime, openvino. No fp32. Leave it out.",
        "resnet50 is not measured on torch-eager. Gone. Mend it.",
    ]


PLAN = made.plan_of((made.RESNET,), [made.case_of(made.RESNET, "torch-eager", "fp32", 1)])
PLANNED = PLAN.models[0]
REQUEST = ExportRequest(
    seed=PLAN.measurement.seed, exporter="dynamo", opset=20, output_name=None, max_length=None, attention="eager"
)


def recorded(**changes: Any) -> ExportRecord:
    return made.export_record(made.RESNET).model_copy(update={"request": REQUEST, **changes})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, None),
        ({"request": None}, None),  # of an earlier version
        ({"weights": "pretrained"}, "pretrained weights, and the plan asks for seeded weights"),
        ({"request": REQUEST.model_copy(update={"seed": 1})}, "seed 1, and the plan asks for seed 20261127"),
        ({"model": "resnet18"}, "resnet18, and the plan asks for resnet50"),
    ],
)
def test_an_export_of_another_request_is_reported(changes: dict[str, Any], says: str | None) -> None:
    result = request_difference(recorded(**changes), PLAN, PLANNED)
    assert (result is None) if says is None else (result is not None and says in result)


def test_results_keep_their_export_after_later_exports(tmp_path: Path) -> None:
    results, models = Results(tmp_path / "results"), Models(tmp_path / "models")
    with pytest.raises(MissingInputError, match=r"export\.json does not exist"):
        read_export(PLAN, PLANNED, results, models)
    store.save(models.folder(PLANNED.slug).record, recorded(folder="latest"))
    assert read_export(PLAN, PLANNED, results, models).folder == "latest"
    store.save(results.export(PLANNED.slug).record, recorded(folder="own"))
    assert read_export(PLAN, PLANNED, results, models).folder == "own"
    store.save(results.export(PLANNED.slug).record, recorded(weights="pretrained"))
    with pytest.raises(MalformedFileError, match="answers another request") as caught:
        read_export(PLAN, PLANNED, results, models)
    assert "make export" in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "samples", "says"),
    [
        ({}, 64, None),
        ({}, 65, "no 65 inputs"),
        ({"sequence_length": 16}, 64, "of sequence length 16"),
        ({"boundary": "e2e"}, 64, "no raw inputs"),
    ],
)
def test_a_case_without_its_inputs_is_not_measured(changes: dict[str, Any], samples: int, says: str | None) -> None:
    result = missing_inputs(recorded(), case("torch-eager", **changes), samples)
    assert (result is None) if says is None else (result is not None and says in result.problem)
