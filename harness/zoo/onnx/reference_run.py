"""Run an ONNX file in ONNX Runtime's CPU provider: for checks and references, never for measuring."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import onnx
import onnxruntime

from harness.core.errors import ExportError
from harness.core.extensions import reason
from harness.zoo.loaded import Arrays

Level = Literal["ORT_DISABLE_ALL", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"]


def open_session(path: Path, threads: int, level: Level = "ORT_ENABLE_ALL") -> Any:
    """A session on the CPU. Raises ExportError where ONNX Runtime cannot load the file, with its versions."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common base below Exception
        why = reason(error)
        raise ExportError(
            f"ONNX Runtime {onnxruntime.__version__} cannot load {path} ({_versions(path)}): {why}", _remedy(path, why)
        ) from error


def _versions(path: Path) -> str:
    """`IR version 8, opset 17, com.microsoft 1`, as the file says."""
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:  # ONNX Runtime's own message reports the damage
        return f"{path.stat().st_size:,} bytes" if path.is_file() else "not there"
    opsets = ", ".join(f"{entry.domain or 'opset'} {entry.version}" for entry in model.opset_import)
    return f"IR version {model.ir_version}, {opsets or 'no opset'}"


_REMEDIES: Mapping[str, str] = {
    "IR version": (
        "Save it with an older one: `python -c \"import onnx; m = onnx.load('{path}'); m.ir_version = 10; "
        "onnx.save(m, 'older.onnx')\"`; or install a newer onnxruntime."
    ),
    "under development|opset version|guarantees": (
        "Convert it to an older one: `onnx.version_converter.convert_version(onnx.load('{path}'), 20)`; or install a "
        "newer onnxruntime."
    ),
    "not a registered function|No Op registered|NOT_IMPLEMENTED|Could not find an implementation": (
        "ONNX Runtime's CPU provider has no such operator: export the model without it, or with operators of ONNX."
    ),
    "external data|No such file|GetFileLength|cannot open file": (
        "Put the file that holds the weights beside it, under the name that it asks for."
    ),
}
"""Remedies by a pattern of ONNX Runtime's message."""


def _remedy(path: Path, why: str) -> str:
    remedy = next((text for words, text in _REMEDIES.items() if re.search(words, why, re.IGNORECASE)), None)
    return (
        "Open it in Netron, or check it by `onnx.checker.check_model`." if remedy is None else remedy.format(path=path)
    )


def run_session(session: Any, arrays: Arrays, of_user: bool = True) -> Arrays:
    """Outputs by name. Raises ExportError where the shapes or types do not fit the graph.

    of_user: whether the file is the user's own, not made here by an exporter.
    """
    names = [output.name for output in session.get_outputs()]
    try:
        return dict(zip(names, session.run(names, arrays), strict=True))
    except Exception as error:
        shapes = ", ".join(f"{name} {values.dtype}{list(values.shape)}" for name, values in arrays.items())
        fixed = "Its axes may be fixed: try the other exporter (EXPORTER=torchscript or dynamo)."
        own = "Give inputs that it takes (INPUTS=<file>.npz), or ask for the batch that it is fixed to (BATCHES=…)."
        raise ExportError(
            f"The ONNX file does not run with {shapes}: {reason(error)}", own if of_user else fixed
        ) from error
