"""Whether an ONNX file is quantised, from its graph (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Literal

from harness.core.schemas import Quantisation
from harness.zoo.file_graph import FileGraph, FileNode

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


def quantisation_of(graph: FileGraph) -> FileQuantisation | None:
    """How the file is quantised; None where it is not, or where it could not be read, which the export reports.

    Libraries have kernels for pairs of bytes: a file with only its weights quantised, or with 16 or 4 bits on a side of
    its products, computes in floating point. The activations of MatMulNBits with accuracy_level 4 become bytes, too.
    """
    return _quantisation(graph) or ("weights" if _has_quantised_weights(graph) else None)


def _has_quantised_weights(graph: FileGraph) -> bool:
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


def blocks_in_int8(graph: FileGraph) -> int:
    """How many products of the file have weights in blocks and are multiplied in int8."""
    return sum(map(_is_in_int8, graph.nodes))


def bits_of_blocks(graph: FileGraph) -> list[int]:
    """How many bits the weights in blocks have, each number once."""
    return sorted({node.numbers.get("bits", 4) for node in graph.nodes if node.kind == BLOCKS})


def _is_in_int8(node: FileNode) -> bool:
    return node.kind == BLOCKS and node.numbers.get("accuracy_level") == IN_INT8


def _quantisation(graph: FileGraph) -> Quantisation | None:
    present = {node.kind for node in graph.nodes}
    if _has_static_products(graph, present):
        return "static"
    named = next((kind for kind, operators in _OPERATORS.items() if present & operators), None)
    return named or ("dynamic" if any(map(_is_in_int8, graph.nodes)) else None)


def _has_static_products(graph: FileGraph, present: Set[str]) -> bool:
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


def _operand_type(name: str, graph: FileGraph, made_by: Mapping[str, FileNode]) -> int | None:
    """The type of the quantised numbers that an input of a product was restored from; None where it was not."""
    node = _source(name, made_by)
    if node is None or node.kind != _DEQUANTISES or not node.inputs:
        return None
    quantised = node.inputs[0]
    if quantised in graph.constants:
        return graph.constants[quantised]
    source = _source(quantised, made_by)
    return _quantised_type(source, graph) if source is not None and source.kind == _QUANTISES else None


def _source(name: str, made_by: Mapping[str, FileNode]) -> FileNode | None:
    """The node that made these numbers."""
    for _ in made_by:  # no longer than a chain through all nodes: a damaged file may have a circle
        node = made_by.get(name)
        if node is None or node.kind not in _CARRIES or not node.inputs:
            return node
        name = node.inputs[0]
    return None


def _quantised_type(node: FileNode, graph: FileGraph) -> int | None:
    """What a QuantizeLinear gives; None where its zero point is no constant."""
    if "output_dtype" in node.numbers:
        return node.numbers["output_dtype"]
    return graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else _UINT8


def _reads_constant(node: FileNode, graph: FileGraph) -> bool:
    return bool(graph.constants.keys() & {*node.inputs[:1]})
