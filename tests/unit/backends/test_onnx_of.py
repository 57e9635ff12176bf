"""Which of a model's ONNX files a case loads."""

from __future__ import annotations

import pytest

from harness.backends.case_files import onnx_artifact
from harness.core.errors import MissingInputError
from harness.core.schemas import ExportRecord, OnnxArtifact, Precision
from tests.synthetic_results import MINILM, export_record


def file(name: str) -> OnnxArtifact:
    return OnnxArtifact(path=name, sha256=name, size_bytes=1, exporter="dynamo", opset=20, dtype_census={})


def export(plain: tuple[Precision, ...] = ("fp32", "fp16", "int8"), forms: tuple[str, ...] = ()) -> ExportRecord:
    return export_record(MINILM).model_copy(
        update={
            "onnx": {precision: file(precision) for precision in plain},
            "onnx_variants": {form: file(form) for form in forms},
        }
    )


@pytest.mark.parametrize(
    ("precision", "loaded"),
    [("fp32", "fp32"), ("tf32", "fp32"), ("bf16", "fp32"), ("fp16", "fp16"), ("int8", "int8")],
)
def test_each_precision_has_its_file_and_precisions_made_from_fp32_have_the_fp32_file(
    precision: Precision, loaded: str
) -> None:
    assert onnx_artifact(export(), precision).path == loaded
    forms = export(forms=("fp32-fused", "fp16-fused", "int8-fused", "fp16-opset17"))
    assert onnx_artifact(forms, precision, "fused").path == f"{loaded}-fused"


@pytest.mark.parametrize(
    ("precision", "variant", "absent"),
    [("fp16", None, "fp16"), ("tf32", "fused", "fp32-fused"), ("fp16", "fused", "fp16-fused")],
)
def test_another_file_never_replaces_a_missing_one(precision: Precision, variant: str | None, absent: str) -> None:
    without = export(plain=("fp32", "int8"), forms=("fp32-opset17", "fp16-opset17"))
    with pytest.raises(MissingInputError) as caught:
        onnx_artifact(without, precision, variant)
    assert caught.value.problem == f"The export of {MINILM.name} has no {absent} ONNX file."
    assert "make export" in caught.value.hint
