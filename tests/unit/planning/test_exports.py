"""Which cases an ONNX file that could not be made keeps from being measured."""

from __future__ import annotations

from typing import Any

import pytest

from harness.backends.batches import nothing_exported
from harness.core.errors import ExportError
from harness.core.schemas import ExportFailure, ExportRecord
from harness.planning.exports import Exports, refusal_of
from tests import synthetic_results as made


def case(backend: str, **changes: Any) -> Any:
    return made.case_of(made.RESNET, backend, "fp32", 1).model_copy(update=changes)


def export(*refused: str) -> ExportRecord:
    failure = {name: ExportFailure(error=f"No {name}.", hint="Mend it.") for name in refused}
    return nothing_exported(case("torch-eager")).model_copy(update={"refused": failure})


@pytest.mark.parametrize("backend", ["torch-eager", "torch-script", "torch-compile", "noop"])
def test_what_needs_no_onnx_file_is_measured(backend: str) -> None:
    assert refusal_of(export("fp32", "fp16", "int8"), case(backend)) is None


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
def test_what_needs_one_fails_with_its_reason(
    refused: tuple[str, ...], precision: str, setting: str, reason: str | None
) -> None:
    found = refusal_of(export(*refused), case("openvino", precision=precision, setting=setting))
    assert (found.problem if found else None) == reason


def test_a_form_of_a_file_is_one_of_its_own() -> None:
    fused = case("onnxruntime", device="cuda", precision="fp16", setting="fused+graph")
    assert refusal_of(export("fp16"), fused) is None
    assert refusal_of(export("fp16-fused"), fused) is not None


def test_an_engine_is_built_from_one_of_two_files() -> None:
    engine = case("tensorrt", device="cuda", precision="fp16", setting="static+graph")
    assert refusal_of(export("fp16-opset17"), engine) is None
    assert refusal_of(export("fp16-opset17", "fp32-opset17"), engine) is not None


def test_a_model_without_an_export_fails_all_that_load_something() -> None:
    absent = Exports({}, {made.RESNET.name: ExportError("Gone.", "Export it.")})
    assert absent.reason_against(case("torch-eager")) is not None
    assert absent.reason_against(case("noop")) is None
    partly = Exports({made.RESNET.name: export("fp32")}, {})
    assert partly.reason_against(case("torch-eager")) is None
    reason = partly.reason_against(case("onnxruntime"))
    assert reason is not None
    assert (reason.problem, reason.hint) == ("No fp32.", "Mend it.")
