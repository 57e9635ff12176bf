"""Run an ONNX file in ONNX Runtime's CPU provider: for checks and references, never for measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import onnxruntime

from harness.core.errors import ExportError
from harness.zoo.loaded import Arrays

Level = Literal["ORT_DISABLE_ALL", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"]


def open_session(path: Path, threads: int, level: Level = "ORT_ENABLE_ALL") -> Any:
    """A session on the CPU. Raises ExportError where ONNX Runtime cannot load the file."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common base below Exception
        raise ExportError(f"ONNX Runtime cannot load {path}: {_first_line(error)}", "Check the file.") from error


def run_session(session: Any, arrays: Arrays) -> Arrays:
    """Outputs by name. Raises ExportError where the shapes or types do not fit the graph."""
    names = [output.name for output in session.get_outputs()]
    try:
        return dict(zip(names, session.run(names, arrays), strict=True))
    except Exception as error:
        shapes = ", ".join(f"{name} {values.dtype}{list(values.shape)}" for name, values in arrays.items())
        raise ExportError(
            f"The ONNX file does not run with {shapes}: {_first_line(error)}",
            "Its axes may be fixed: try the other exporter (`--exporter torchscript` or `dynamo`).",
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]
