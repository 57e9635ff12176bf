"""Further forms of a model's ONNX files, by `<precision>-<form>`; each is written only where a plan asks for it.

opset17   what TensorRT 8.6 reads: an older operator set, by the exporter that still writes it; in int8, symmetric QDQ
fused     a transformer's layers as ONNX Runtime's own operators (onnx_variants.py), which no other library reads
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from harness.core import limits
from harness.core.layout import ModelFolder
from harness.core.schemas import Precision
from harness.zoo import int8, onnx_file
from harness.zoo.loaded import Arrays, Inputs, Loaded
from harness.zoo.onnx_variants import check_padding, write_fused
from harness.zoo.request import Options

Step = Callable[[str], AbstractContextManager[None]]
"""Adds the seconds of the block that it surrounds to a step's name."""

Attempt = Callable[[str], AbstractContextManager[None]]
"""Takes the name of a file; what fails inside is put down as the reason why there is none."""

_OLD_OPSET = 17


def precision_of(name: str) -> Precision:
    """`fp16-fused` → fp16."""
    found = name.partition("-")[0]
    return found if found in ("fp16", "int8") else "fp32"  # type: ignore[return-value]


def write_all(
    names: Sequence[str],
    loaded: Loaded,
    examples: Arrays,
    folder: ModelFolder,
    options: Options,
    step: Step,
    attempt: Attempt,
    calibration: Callable[[], Inputs],
) -> dict[str, str]:
    """Write the named forms' files, and the fp32 file of each; how each was made, in words.

    attempt: surrounds the making of a file, and of those that are made from it. calibration: makes the inputs that int8
    scales are found from; called only where int8 is asked for.
    """
    made: dict[str, str] = {}
    for form in dict.fromkeys(name.partition("-")[2] for name in names):
        fp32, fp16, int8_ = (f"{precision}-{form}" for precision in ("fp32", "fp16", "int8"))
        with step(f"onnx-{form}"), attempt(fp32):
            made[fp32] = _WRITERS[form](loaded, examples, folder, options)
            if fp16 in names:
                with attempt(fp16):
                    onnx_file.write_fp16(folder.onnx(fp32), folder.onnx(fp16))
                    made[fp16] = made[fp32] + ", onnxruntime.transformers.float16"
            if int8_ in names and loaded.quantised is not None:
                shutil.copyfile(folder.onnx(fp32), folder.onnx(int8_))
                made[int8_] = made[fp32]
            elif int8_ in names:
                with attempt(int8_):
                    how = int8.write_symmetric(folder.onnx(fp32), folder.onnx(int8_), calibration())
                    made[int8_] = f"{made[fp32]}, onnxruntime.quantization: {how}"
    return made


def _opset17(loaded: Loaded, examples: Arrays, folder: ModelFolder, options: Options) -> str:
    return onnx_file.write_fp32(loaded, examples, folder.onnx("fp32-opset17"), _older(options))


def _older(options: Options) -> Options:
    return dataclasses.replace(options, exporter="torchscript", opset=_OLD_OPSET)


def _fused(loaded: Loaded, examples: Arrays, folder: ModelFolder, options: Options) -> str:
    """From the older export: there the optimiser finds the embeddings as well, which it does not in the one at opset 20
    (ONNX Runtime 1.32, MiniLM and BERT)."""
    fused = folder.onnx("fp32-fused")
    how = onnx_file.write_fp32(loaded, examples, fused, _older(options))
    found = write_fused(fused, fused, loaded)
    check_padding(folder.onnx("fp32"), fused, examples, limits.threads())
    return f"{how}, fused by onnxruntime.transformers: {found}"


_WRITERS: Mapping[str, Callable[[Loaded, Arrays, ModelFolder, Options], str]] = {
    "opset17": _opset17,
    "fused": _fused,
}
