"""Further forms of a model's ONNX files, by `<precision>-<variant>`; each is written only where a plan asks for it.

opset17   what TensorRT 8.6 reads: an older operator set, by the exporter that still writes it
fused     attention, GELU and normalisations as ONNX Runtime's own operators, which no other library reads
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import onnx

from harness.core.errors import ExportError
from harness.core.layout import ModelFolder
from harness.core.schemas import Precision
from harness.zoo import onnx_file
from harness.zoo.loaded import Arrays, Loaded
from harness.zoo.quiet import quiet
from harness.zoo.request import Options

Step = Callable[[str], AbstractContextManager[None]]

_OLD_OPSET = 17
_CONTRIB = "com.microsoft"
"""Domain of ONNX Runtime's own operators, which the optimiser uses without declaring it."""


def precision_of(name: str) -> Precision:
    """`fp16-fused` → fp16."""
    return "fp16" if name.startswith("fp16-") else "fp32"


def is_checkable(name: str) -> bool:
    """False where a CPU has no kernels for a form: attention as one operator in fp16. Its fp32 form is checked here,
    and its own outputs by every process that measures it."""
    return name != "fp16-fused"


def write_all(
    names: Sequence[str], loaded: Loaded, examples: Arrays, folder: ModelFolder, options: Options, step: Step
) -> dict[str, str]:
    """Write the named variants' files, and the fp32 form of each; how each was made, in words. Raises ExportError."""
    made: dict[str, str] = {}
    for variant in dict.fromkeys(name.partition("-")[2] for name in names):
        with step(f"onnx-{variant}"):
            made[f"fp32-{variant}"] = _WRITERS[variant](loaded, examples, folder, options)
            if f"fp16-{variant}" in names:
                onnx_file.write_fp16(folder.onnx(f"fp32-{variant}"), folder.onnx(f"fp16-{variant}"))
                made[f"fp16-{variant}"] = made[f"fp32-{variant}"] + ", onnxruntime.transformers.float16"
    return made


def _opset17(loaded: Loaded, examples: Arrays, folder: ModelFolder, options: Options) -> str:
    return onnx_file.write_fp32(loaded, examples, folder.onnx("fp32-opset17"), _older(options))


def _older(options: Options) -> Options:
    return dataclasses.replace(options, exporter="torchscript", opset=_OLD_OPSET)


def _fused(loaded: Loaded, examples: Arrays, folder: ModelFolder, options: Options) -> str:
    """Fuse what onnxruntime.transformers knows of BERT's relatives. ExportError where it finds no attention.

    From the older export: in the one at opset 20 the optimiser finds no attention (ONNX Runtime 1.32, MiniLM).
    """
    from onnxruntime.transformers.optimizer import optimize_model  # noqa: PLC0415 - imports much

    leave_out = "Leave `fused+graph` out of `settings`, and `tune` with it."
    if loaded.heads is None or loaded.hidden_size is None:
        raise ExportError("The fused form is known for BERT's relatives only.", leave_out)
    target = folder.onnx("fp32-fused")
    how = onnx_file.write_fp32(loaded, examples, target, _older(options))
    with quiet():
        fused = optimize_model(
            str(target), model_type="bert", num_heads=loaded.heads, hidden_size=loaded.hidden_size, opt_level=0
        )
        found: Mapping[str, int] = fused.get_fused_operator_statistics()
    if not found.get("Attention") and not found.get("MultiHeadAttention"):
        raise ExportError(f"ONNX Runtime's optimiser found no attention to fuse: {dict(found)}.", leave_out)
    onnx_file.save(_sorted(fused), target)
    told = ", ".join(f"{count} {operator}" for operator, count in found.items() if count)
    return f"{how}, fused by onnxruntime.transformers: {told}"


def _sorted(model: Any) -> onnx.ModelProto:
    model.topological_sort()
    found: onnx.ModelProto = model.model
    if not any(entry.domain == _CONTRIB for entry in found.opset_import):
        found.opset_import.append(onnx.helper.make_opsetid(_CONTRIB, 1))
    return found


_WRITERS: Mapping[str, Callable[[Loaded, Arrays, ModelFolder, Options], str]] = {
    "opset17": _opset17,
    "fused": _fused,
}
