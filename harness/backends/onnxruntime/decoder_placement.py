"""The type that a decoder's products ran in, from a profiled run and the file's operators; outside the clock."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

from harness.backends.base import Array
from harness.backends.onnxruntime.placement import nodes_of

_PLAIN = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")
_BLOCKS = "MatMulNBits"
_IN_INT8 = 4
"""accuracy_level of MatMulNBits that multiplies in int8."""


def products(file: Path, feeds: Mapping[str, Array], threads: int) -> dict[str, int]:
    """Number of products with weights by precision, in a second session that profiles itself."""
    with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        session.run(None, dict(feeds))
        events = json.loads(Path(session.end_profiling()).read_bytes())
    graph = onnx.load(file, load_external_data=False).graph
    return count_products([node.operator for node in nodes_of(events)], graph.node)


def count_products(ran: Iterable[str], nodes: Iterable[Any]) -> dict[str, int]:
    """ran: operators of the kernels that ran; nodes: of the file, which name the bits of their weights (pure).

    `int8` are weights of 8 bits that are multiplied in int8; other weights in blocks are named by bits and type.
    """
    kinds = {_kind(node) for node in nodes if node.op_type == _BLOCKS}
    counter = Counter(operator for operator in ran if operator in (_BLOCKS, *_PLAIN))
    blocks, plain = counter.pop(_BLOCKS, 0), sum(counter.values())
    counted = {"+".join(sorted(kinds)) or "unknown": blocks, "fp32": plain}
    return {name: number for name, number in counted.items() if number}


def _kind(node: Any) -> str:
    given = {entry.name: entry.i for entry in node.attribute}
    bits = given.get("bits", 4)
    if given.get("accuracy_level") != _IN_INT8:
        return f"{bits}-bit weights multiplied in floating point"
    return "int8" if bits == 8 else f"{bits}-bit weights multiplied in int8"
