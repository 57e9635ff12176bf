"""Which files of an export for generation a backend reads (pure)."""

from __future__ import annotations

from harness.backends.info import BackendInfo
from harness.core.schemas import Artifact, GenerationCase, GenerationExport, OnnxArtifact, Precision


def onnx_precision(precision: Precision) -> Precision:
    """The precision of the decoder file that a case reads: a library computes in tf32 and bf16 from the fp32 file."""
    return precision if precision in ("fp16", "int8") else "fp32"


def onnx_key(info: BackendInfo, case: GenerationCase) -> str:
    """The key of a case's decoder file in GenerationExport.onnx."""
    variant = info.decoder_setting(case.device, case.setting).variant
    own = onnx_precision(case.precision)
    return own if variant is None else f"{own}-{variant}"


def onnx_file(export: GenerationExport, info: BackendInfo, case: GenerationCase) -> OnnxArtifact | None:
    """The decoder file of a case, in the form that its setting reads."""
    return export.onnx.get(onnx_key(info, case))


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
