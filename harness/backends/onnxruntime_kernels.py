"""Which kernels ONNX Runtime really runs a file with: its own profile of one run, never the file that was asked for."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import onnxruntime as ort

from harness.backends.base import Batch

_INTEGER = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QAttention",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    }
)
_FLOATING = frozenset(
    {
        "Attention",
        "Conv",
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "Gemm",
        "MatMul",
        "MultiHeadAttention",
        "NhwcFusedConv",
    }
)
"""Kernels that do the arithmetic of a network; all others move, scale or normalise what these compute."""


def computing_kernels(file: Path, batch: Batch, threads: int) -> dict[str, int]:
    """Kernels of one run by precision, from a second session that profiles itself. Outside the clock.

    Keys: int8 and fp32, those that are not 0.
    """
    with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        session.run(None, dict(batch))
        events = json.loads(Path(session.end_profiling()).read_bytes())
    return count(
        event["args"]["op_name"]
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    )


def count(operators: Iterable[str]) -> dict[str, int]:
    """Operators by name → how many of them compute in int8 and in fp32."""
    found = Counter("int8" if name in _INTEGER else "fp32" for name in operators if name in _INTEGER | _FLOATING)
    return dict(found)


def quantised(census: Mapping[str, int]) -> bool:
    """True where a file has more weights of 8 bits than floating ones."""
    integers = census.get("int8", 0) + census.get("uint8", 0)
    return integers > sum(census.get(name, 0) for name in ("float", "float16", "bfloat16"))
