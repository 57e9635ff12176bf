"""Whether an ONNX file is quantised, from its bytes: `plan` imports no library that could read it.

A protobuf message is a row of fields: a tag, which has the field's number and kind, and a value, which is a number or
a length and as many bytes (protobuf.dev/programming-guides/encoding). The numbers of fields and types are those of
onnx.proto.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from harness.core.schemas import Quantisation

_OPERATORS: Mapping[Quantisation, frozenset[str]] = {
    "static": frozenset({"QLinearConv", "QLinearMatMul", "QGemm"}),
    "dynamic": frozenset(
        {"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "DynamicQuantizeMatMul", "QAttention"}
    ),
}
"""Operators by the kind of the activations' scales: fixed beforehand, or computed while running."""
_QUANTISES, _DEQUANTISES = "QuantizeLinear", "DequantizeLinear"
_READERS = frozenset({_DEQUANTISES, "MatMulInteger", "ConvInteger"})
"""Fixed scales too, where a node reads the quantised numbers. Where none does, they are an output of the file alone,
such as the pixels of a picture."""
_BLOCKED = frozenset({"MatMulNBits", "GatherBlockQuantized"})
"""Operators of ONNX Runtime with quantised weights."""

DEQUANTISED = "quantised, but not to 8 bits on both sides of its products"

_UINT8, _INT8, _INT32 = 2, 3, 6
_BYTES = frozenset({_UINT8, _INT8})


@dataclass
class _Graph:
    """The nodes of all graphs of a file, and the element types of their constants by name."""

    nodes: list[_Node] = field(default_factory=list)
    constants: dict[str, int] = field(default_factory=dict)


class _Node(NamedTuple):
    kind: str
    inputs: Sequence[str]
    output_type: int | None
    """Of QuantizeLinear's attribute output_dtype."""


def quantisation_of(path: Path) -> Quantisation | None:
    """How the file is quantised to 8 bits; None where it is not, or where it cannot be read, which the export reports.

    Files with only their weights quantised (DequantizeLinear, MatMulNBits), or with numbers of 16 or 4 bits in their
    products, compute in floating point: libraries have kernels for pairs of bytes.
    """
    graph = _graph_of(path)
    present = {node.kind for node in graph.nodes}
    if _QUANTISES in present and present & _READERS:
        return "static" if _pairs_of_bytes(graph) else None
    return next((kind for kind, operators in _OPERATORS.items() if present & operators), None)


def computes_dequantised(path: Path) -> bool:
    """Whether a file that quantisation_of does not count as quantised has quantised numbers all the same."""
    present = {node.kind for node in _graph_of(path).nodes}
    return quantisation_of(path) is None and bool(present & (_BLOCKED | {_DEQUANTISES}))


def _pairs_of_bytes(graph: _Graph) -> bool:
    weights = {
        graph.constants[name]
        for node in graph.nodes
        if node.kind == _DEQUANTISES
        for name in node.inputs[:1]
        if name in graph.constants
    } - {_INT32}  # biases
    activations = {
        (node.output_type or graph.constants.get(node.inputs[2] if len(node.inputs) > 2 else "", _UINT8))
        for node in graph.nodes
        if node.kind == _QUANTISES
    }
    return bool(activations & _BYTES) and (not weights or bool(weights & _BYTES))


def _graph_of(path: Path) -> _Graph:
    """Empty for a file that cannot be read."""
    graph = _Graph()
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for number, start, end in _fields(content, 0, len(content)):
                if number == 7:  # graph
                    _read_graph(content, start, end, graph)
                elif number == 25:  # functions, of which 7 are the nodes
                    for inner, node_start, node_end in _fields(content, start, end):
                        if inner == 7:
                            _read_node(content, node_start, node_end, graph)
    except (OSError, ValueError, IndexError):  # ValueError: an empty file cannot be mapped, other text is no UTF-8
        return _Graph()
    return graph


def _read_graph(content: mmap.mmap, start: int, end: int, graph: _Graph) -> None:
    for number, inner, stop in _fields(content, start, end):
        if number == 1:
            _read_node(content, inner, stop, graph)
        elif number == 5:  # initializer
            kind, name = 0, ""
            for part, value, last in _fields(content, inner, stop):
                if part == 2:
                    kind = value
                elif part == 8:
                    name = content[value:last].decode()
            graph.constants[name] = kind


def _read_node(content: mmap.mmap, start: int, end: int, graph: _Graph) -> None:
    kind, inputs, output_type = "", [], None
    for number, inner, stop in _fields(content, start, end):
        if number == 1:
            inputs.append(content[inner:stop].decode())
        elif number == 4:
            kind = content[inner:stop].decode()
        elif number == 5:  # attribute
            name, value = "", None
            for part, at, last in _fields(content, inner, stop):
                if part == 1:
                    name = content[at:last].decode()
                elif part == 3:
                    value = at
                elif part in (6, 11):  # graphs of If, Loop and Scan
                    _read_graph(content, at, last, graph)
            output_type = value if name == "output_dtype" else output_type
    graph.nodes.append(_Node(kind, inputs, output_type))


def _fields(content: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of each field that holds bytes, and (number, value, 0) of each number. Raises ValueError or
    IndexError for what is no message."""
    while at < end:
        tag, at = _number(content, at)
        kind = tag & 7
        if kind == 0:
            value, at = _number(content, at)
            yield tag >> 3, value, 0
        elif kind == 2:
            length, at = _number(content, at)
            if at + length > end:
                raise ValueError("a field is longer than its message")
            yield tag >> 3, at, at + length
            at += length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError("no protobuf message")


def _number(content: mmap.mmap, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the place after it."""
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
