"""Which files of an export for generation a backend reads (pure)."""

from __future__ import annotations

from harness.backends.info import BackendInfo
from harness.core.schemas import Artifact, GenerationCase, GenerationExport


def files_read(export: GenerationExport, info: BackendInfo, case: GenerationCase) -> tuple[Artifact, ...]:
    """The model's files of a case, without prompts and reference."""
    onnx = export.onnx.get(case.precision)
    by_kind: dict[str, tuple[Artifact, ...]] = {
        "module": (export.module, export.configuration),
        "onnx": () if onnx is None else onnx.files(),
        "gguf": () if export.gguf is None else (export.gguf,),
        "none": (),
    }
    return by_kind[info.decoder_reads]
