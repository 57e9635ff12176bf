"""Whether an ONNX file is quantised, from its bytes: `plan` imports no library that could read it.

A protobuf message is a row of fields: a tag, which has the field's number and kind, and a value, which is a number or
a length and as many bytes (protobuf.dev/programming-guides/encoding). The numbers of fields and types are those of
onnx.proto.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from harness.core.schemas import Quantisation

FileQuantisation = Quantisation | Literal["weights"]
"""`static`, `dynamic`: 8 bits on both sides of the products, by the kind of the activations' scales. `weights`:
quantised weights, and products in floating point."""

_OPERATORS: Mapping[Quantisation, frozenset[str]] = {
    "static": frozenset({"QLinearConv", "QLinearMatMul", "QGemm"}),
    "dynamic": frozenset(
        {"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "DynamicQuantizeMatMul", "QAttention"}
    ),
}
"""Operators by the kind of the activations' scales: fixed beforehand, or computed while running."""
_QUANTISES, _DEQUANTISES = "QuantizeLinear", "DequantizeLinear"
_READERS = frozenset({"MatMulInteger", "ConvInteger"})
"""Fixed scales too, where the file also quantises its activations to bytes."""
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_CARRIES = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
"""Operators that hand on the numbers of their first input."""
BLOCKS = "MatMulNBits"
IN_INT8 = 4
"""Its accuracy_level with which ONNX Runtime, on a CPU, quantises activations while running and multiplies bytes (1:
fp32, 2: fp16, 3: bf16)."""
_BLOCKED = frozenset({BLOCKS, "MatMulBnb4", "GatherBlockQuantized", "QMoE"})
"""Operators of ONNX Runtime with quantised weights."""
FLOATING_PRODUCTS = "session.qdq_matmulnbits_accuracy_level", "0"
"""An entry of the configuration of ONNX Runtime's sessions. Without it MatMul and the DequantizeLinear of its weights
become a MatMulNBits with accuracy_level 4, which multiplies in int8 what the file multiplies in floats."""
DEQUANTISED = "quantised, but not to 8 bits on both sides of its products"

_UINT8, _INT8 = 2, 3
_BYTES = frozenset({_UINT8, _INT8})


class _Node(NamedTuple):
    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    numbers: Mapping[str, int]
    """Attributes that are whole numbers."""


@dataclass
class _Graph:
    """The nodes of all graphs of a file, and the element types of their constants by name."""

    nodes: list[_Node] = field(default_factory=list)
    constants: dict[str, int] = field(default_factory=dict)


def quantisation_of(path: Path) -> FileQuantisation | None:
    """How the file is quantised; None where it is not, or where it cannot be read, which the export reports.

    Libraries have kernels for pairs of bytes: a file with only its weights quantised, or with 16 or 4 bits on a side of
    its products, computes in floating point. The activations of MatMulNBits with accuracy_level 4 become bytes, too.
    """
    graph = _graph_of(path)
    return _quantisation(graph) or ("weights" if _has_quantised_weights(graph) else None)


def _has_quantised_weights(graph: _Graph) -> bool:
    """Also where the file quantises and restores weights that it has in floats."""
    rounded = {
        name
        for node in graph.nodes
        if node.kind == _QUANTISES and _reads_constant(node, graph)
        for name in node.outputs
    }
    weights = graph.constants.keys() | rounded
    return any(
        node.kind in _BLOCKED or (node.kind == _DEQUANTISES and not weights.isdisjoint(node.inputs[:1]))
        for node in graph.nodes
    )


def blocks_in_int8(path: Path) -> int:
    """How many products of the file have weights in blocks and are multiplied in int8."""
    return sum(map(_is_in_int8, _graph_of(path).nodes))


def bits_of_blocks(path: Path) -> list[int]:
    """How many bits the weights in blocks have, each number once."""
    return sorted({node.numbers.get("bits", 4) for node in _graph_of(path).nodes if node.kind == BLOCKS})


def _is_in_int8(node: _Node) -> bool:
    return node.kind == BLOCKS and node.numbers.get("accuracy_level") == IN_INT8


def _quantisation(graph: _Graph) -> Quantisation | None:
    present = {node.kind for node in graph.nodes}
    if _has_static_products(graph, present):
        return "static"
    named = next((kind for kind, operators in _OPERATORS.items() if present & operators), None)
    return named or ("dynamic" if any(map(_is_in_int8, graph.nodes)) else None)


def _has_static_products(graph: _Graph, present: Set[str]) -> bool:
    made_by = {output: node for node in graph.nodes for output in node.outputs}
    activations = [node for node in graph.nodes if node.kind == _QUANTISES and not _reads_constant(node, graph)]
    bytes_made = any(_quantised_type(node, graph) in _BYTES for node in activations)
    if bytes_made and present & _READERS:
        return True
    if _DEQUANTISES not in present:
        return False  # quantised numbers are an output of the file alone, such as the pixels of a picture
    products = [node for node in graph.nodes if node.kind in _PRODUCTS]
    if not products:
        return bytes_made
    return any(all(_operand_type(name, graph, made_by) in _BYTES for name in node.inputs[:2]) for node in products)


def _operand_type(name: str, graph: _Graph, made_by: Mapping[str, _Node]) -> int | None:
    """The type of the quantised numbers that an input of a product was restored from; None where it was not."""
    node = _source(name, made_by)
    if node is None or node.kind != _DEQUANTISES or not node.inputs:
        return None
    quantised = node.inputs[0]
    if quantised in graph.constants:
        return graph.constants[quantised]
    source = _source(quantised, made_by)
    return _quantised_type(source, graph) if source is not None and source.kind == _QUANTISES else None


def _source(name: str, made_by: Mapping[str, _Node]) -> _Node | None:
    """The node that made these numbers."""
    for _ in made_by:  # no longer than a chain through all nodes: a damaged file may have a circle
        node = made_by.get(name)
        if node is None or node.kind not in _CARRIES or not node.inputs:
            return node
        name = node.inputs[0]
    return None


def _quantised_type(node: _Node, graph: _Graph) -> int | None:
    """What a QuantizeLinear gives; None where its zero point is no constant."""
    if "output_dtype" in node.numbers:
        return node.numbers["output_dtype"]
    return graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else _UINT8


def _reads_constant(node: _Node, graph: _Graph) -> bool:
    return bool(graph.constants.keys() & {*node.inputs[:1]})


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
    except (OSError, ValueError, IndexError, RecursionError):  # ValueError: also an empty file, which cannot be mapped
        return _Graph()
    return graph


def _read_graph(content: mmap.mmap, start: int, end: int, graph: _Graph) -> None:
    for number, inner, stop in _fields(content, start, end):
        if number == 1:
            _read_node(content, inner, stop, graph)
        elif number == 5:  # initializer
            kind, name = _tensor(content, inner, stop)
            graph.constants[name] = kind


def _read_node(content: mmap.mmap, start: int, end: int, graph: _Graph) -> None:
    kind, attributes = "", _Attributes()
    names: dict[int, list[str]] = {1: [], 2: []}  # inputs and outputs
    for number, inner, stop in _fields(content, start, end):
        if number in names:
            names[number].append(content[inner:stop].decode())
        elif number == 4:
            kind = content[inner:stop].decode()
        elif number == 5:
            _read_attribute(content, inner, stop, attributes, graph)
    graph.nodes.append(_Node(kind, names[1], names[2], attributes.numbers))
    if kind == "Constant" and attributes.tensor is not None:
        graph.constants |= dict.fromkeys(names[2], attributes.tensor)


@dataclass
class _Attributes:
    """Numbers by name, and the element type of a tensor."""

    numbers: dict[str, int] = field(default_factory=dict)
    tensor: int | None = None


def _read_attribute(content: mmap.mmap, start: int, end: int, attributes: _Attributes, graph: _Graph) -> None:
    name = ""
    for number, value, last in _fields(content, start, end):
        if number == 1:
            name = content[value:last].decode()
        elif number == 3:
            attributes.numbers[name] = value
        elif number == 5:
            attributes.tensor = _tensor(content, value, last)[0]
        elif number in (6, 11):  # graphs of If, Loop and Scan
            _read_graph(content, value, last, graph)


def _tensor(content: mmap.mmap, start: int, end: int) -> tuple[int, str]:
    """(element type, name)."""
    kind, name = 0, ""
    for number, value, last in _fields(content, start, end):
        if number == 2:
            kind = value
        elif number == 8:
            name = content[value:last].decode()
    return kind, name


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
    value = 0
    for shift in range(0, 70, 7):
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than ten bytes")
