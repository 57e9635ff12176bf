"""Whether a user's ONNX file is quantised already, from its bytes: the plan stage imports no library to read it."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path

from harness.core.schemas import Quantisation

_OPERATORS: Mapping[Quantisation, tuple[str, ...]] = {
    "static": ("QuantizeLinear", "QLinearConv", "QLinearMatMul", "QGemm"),
    "dynamic": ("DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "DynamicQuantizeMatMul", "QAttention"),
}
"""Operators by the kind of the activations' scales: fixed beforehand, or computed while running. A file with only its
weights quantised (DequantizeLinear, MatMulNBits) computes in floating point and is not among them."""

_OP_TYPE = 0x22
"""Tag of NodeProto.op_type in protobuf's encoding: field 4, with a length (onnx.proto, protobuf.dev/programming-guides/
encoding). Names of operators are shorter than 128 bytes, so that the length is one byte."""


def quantisation_of(path: Path) -> Quantisation | None:
    """How the file is quantised; None where it is not, or where it cannot be read, which the export reports."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for kind, operators in _OPERATORS.items():
                if any(content.find(_encoded(name)) >= 0 for name in operators):
                    return kind
    except (OSError, ValueError):  # ValueError: an empty file cannot be mapped
        return None
    return None


def _encoded(operator: str) -> bytes:
    return bytes((_OP_TYPE, len(operator))) + operator.encode()
