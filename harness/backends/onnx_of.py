"""Which of a model's ONNX files a case loads (pure)."""

from __future__ import annotations

from harness.core.errors import MissingInputError
from harness.core.schemas import ExportRecord, OnnxArtifact, Precision


def onnx_of(export: ExportRecord, precision: Precision, variant: str | None = None) -> OnnxArtifact:
    """The file of a precision, in the form that a setting asks for. MissingInputError where it was not exported.

    fp32, tf32 and bf16 arithmetic start from the same fp32 file.
    """
    own: Precision = precision if precision in ("fp16", "int8") else "fp32"
    found = export.onnx.get(own) if variant is None else export.onnx_variants.get(f"{own}-{variant}")
    if found is None:
        name = own if variant is None else f"{own}-{variant}"
        if name in export.refused:
            raise MissingInputError(export.refused[name].error, export.refused[name].hint)
        raise MissingInputError(
            f"The export of {export.model} has no {name} ONNX file.",
            "Run `make export` again: the plan has changed since.",
        )
    return found
