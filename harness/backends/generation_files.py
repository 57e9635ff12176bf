"""Which files of an export for generation a backend reads (pure)."""

from __future__ import annotations

from harness.backends.info import BackendInfo
from harness.backends.precision import onnx_key
from harness.core.schemas import Artifact, GenerationCase, GenerationExport, OnnxArtifact


def decoder_key(info: BackendInfo, case: GenerationCase) -> str:
    """The key of a case's decoder file in GenerationExport.onnx."""
    return onnx_key(case.precision, info.decoder_setting(case.device, case.setting).variant)


def onnx_file(export: GenerationExport, info: BackendInfo, case: GenerationCase) -> OnnxArtifact | None:
    """The decoder file of a case, in the form that its setting reads."""
    return export.onnx.get(decoder_key(info, case))


def files_read(export: GenerationExport, info: BackendInfo, case: GenerationCase) -> tuple[Artifact, ...]:
    """The model's files of a case, without prompts and reference."""
    onnx = onnx_file(export, info, case)
    by_kind: dict[str, tuple[Artifact, ...]] = {
        "module": (export.module, export.configuration),
        "onnx": () if onnx is None else onnx.files(),
        "gguf": () if export.gguf is None else (export.gguf,),
        "none": (),
    }
    return by_kind[info.decoder_reads]
