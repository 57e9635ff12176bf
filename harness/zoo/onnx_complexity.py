"""Products of an ONNX graph, counted from its own shapes: a second opinion on what torch counts on the module.

A node's multiply-adds follow from the shapes of its inputs and outputs (ONNX operator specification); shapes come from
onnx.shape_inference once the graph's inputs have the extents of one case.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper, shape_inference

from harness.core.errors import MalformedFileError
from harness.core.extensions import reason

Shape = tuple[int, ...]

# fmt: off
_PRODUCTS = frozenset((
    "Attention", "ConvInteger", "DeformConv", "DynamicQuantizeMatMul", "FusedConv", "FusedGemm", "FusedMatMul", "GRU",
    "LSTM", "MatMulInteger", "MatMulNBits", "MultiHeadAttention", "QAttention", "QLinearConv", "QLinearMatMul", "RNN",
))
# fmt: on
"""Operators that consist of products and are not counted here. As in harness/zoo/work.py, activations, normalisations
and poolings are left out of the count by convention."""

_SUBGRAPHS = frozenset(("If", "Loop", "Scan", "SequenceMap"))


@dataclass(frozen=True)
class OnnxGraph:
    """A graph whose inputs have fixed extents. shapes, bytes_of: by the name of each value whose shape is known."""

    nodes: tuple[Any, ...]
    shapes: Mapping[str, Shape]
    bytes_of: Mapping[str, int]
    inputs: frozenset[str]
    outputs: frozenset[str]
    weights: frozenset[str]


@dataclass(frozen=True)
class Live:
    """peak: most bytes that are needed at one time, without the `unknown` tensors whose shape is not known."""

    peak: int
    unknown: int


@dataclass(frozen=True)
class OnnxProducts:
    """Multiply-adds by operator type, and what is missing from them, in words."""

    macs: Mapping[str, int]
    uncounted: tuple[str, ...]

    @property
    def total(self) -> int:
        """Multiply-adds of the whole graph."""
        return sum(self.macs.values())


def open_graph(path: Path, extents: Mapping[str, Shape]) -> OnnxGraph:
    """Read a file and infer every shape. extents: of each input, by name.

    Raises MalformedFileError where the file is damaged, and onnx's own errors where it contradicts them.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's DecodeError has no common base with onnx's own below Exception
        raise MalformedFileError(
            f"{path} cannot be read ({reason(error)}).", "Run `make export`: it makes the file again."
        ) from error
    _resolve(model.graph, extents)
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
    shapes: dict[str, Shape] = dict(weights)
    for value in (*graph.input, *graph.value_info, *graph.output):
        if _is_known(value):
            shapes[value.name] = tuple(axis.dim_value for axis in value.type.tensor_type.shape.dim)
            kinds[value.name] = value.type.tensor_type.elem_type
    return OnnxGraph(
        nodes=tuple(graph.node),
        shapes=shapes,
        bytes_of={name: math.ceil(math.prod(shape) * _bits(kinds[name]) / 8) for name, shape in shapes.items()},
        inputs=frozenset(value.name for value in graph.input),
        outputs=frozenset(value.name for value in graph.output),
        weights=frozenset(weights),
    )


def _resolve(graph: Any, extents: Mapping[str, Shape]) -> None:
    """Put numbers in place of the symbols (`batch`, `sequence`) that the inputs and the exporter's own notes have.

    A note with a symbol that no input has is dropped, so that inference finds the shape itself.
    """
    symbols: dict[str, int] = {}
    for value in graph.input:
        for axis, extent in zip(value.type.tensor_type.shape.dim, extents.get(value.name, ()), strict=False):
            if axis.HasField("dim_param"):
                symbols[axis.dim_param] = extent
            axis.dim_value = extent
    for value in (*graph.value_info, *graph.output):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param in symbols:
                axis.dim_value = symbols[axis.dim_param]
    known = [value for value in graph.value_info if _is_known(value)]
    del graph.value_info[:]
    graph.value_info.extend(known)


def _is_known(value: Any) -> bool:
    tensor = value.type.tensor_type
    return tensor.HasField("shape") and all(axis.HasField("dim_value") for axis in tensor.shape.dim)


def products_of(graph: OnnxGraph) -> OnnxProducts:
    """Count every node that multiplies matrices or convolves; those that cannot be counted are named."""
    macs: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    for node in graph.nodes:
        count = _COUNTS.get(node.op_type)
        if count is None:
            if node.op_type in _PRODUCTS | _SUBGRAPHS:
                missing[f"{node.op_type}: not counted"] += 1
            continue
        try:
            macs[node.op_type] += count(node, graph.shapes)
        except KeyError:
            missing[f"{node.op_type}: shape not known"] += 1
    return OnnxProducts(dict(macs), tuple(f"{number} x {what}" for what, number in sorted(missing.items())))


def live_bytes(graph: OnnxGraph) -> Live:
    """Add up intermediate tensors in the order of the nodes: inputs and weights are not among them, outputs are, and
    nothing is written in place."""
    last = {name: index for index, node in enumerate(graph.nodes) for name in node.input}
    kept = graph.inputs | graph.weights | graph.outputs
    live, peak, unknown = 0, 0, 0
    for index, node in enumerate(graph.nodes):
        made = [name for name in node.output if name]
        unknown += sum(name not in graph.bytes_of for name in made)
        live += sum(graph.bytes_of.get(name, 0) for name in made)
        peak = max(peak, live)
        done = {name for name in (*node.input, *made) if name and last.get(name, index) == index}
        live -= sum(graph.bytes_of.get(name, 0) for name in done - kept)
    return Live(peak, unknown)


def _bits(kind: int) -> int:
    if kind in (TensorProto.INT4, TensorProto.UINT4):
        return 4
    return 8 * int(helper.tensor_dtype_to_np_dtype(kind).itemsize)


def _attribute(node: Any, name: str, otherwise: Any) -> Any:
    found = next((entry for entry in node.attribute if entry.name == name), None)
    return otherwise if found is None else helper.get_attribute_value(found)


def _conv(node: Any, shapes: Mapping[str, Shape]) -> int:
    """Each output element sums over input channels of its group and the kernel: weight is (out, in / groups, k…)."""
    return math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])


def _conv_transpose(node: Any, shapes: Mapping[str, Shape]) -> int:
    """Each input element goes to the output channels of its group and the kernel: weight is (in, out / groups, k…)."""
    return math.prod(shapes[node.input[0]]) * math.prod(shapes[node.input[1]][1:])


def _gemm(node: Any, shapes: Mapping[str, Shape]) -> int:
    left = shapes[node.input[0]]
    inner = left[0] if _attribute(node, "transA", 0) else left[1]
    return math.prod(shapes[node.output[0]]) * inner


def _matmul(node: Any, shapes: Mapping[str, Shape]) -> int:
    return math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]


def _einsum(node: Any, shapes: Mapping[str, Shape]) -> int:
    """One multiply-add for every combination of the indices, where two operands meet."""
    terms, *_ = _attribute(node, "equation", b"").decode().replace(" ", "").split("->")
    letters = terms.split(",")
    if len(letters) != 2 or "." in terms:
        raise KeyError(node.name)
    pairs = [zip(term, shapes[name], strict=True) for term, name in zip(letters, node.input, strict=True)]
    return math.prod({letter: extent for pair in pairs for letter, extent in pair}.values())


_COUNTS: Mapping[str, Callable[[Any, Mapping[str, Shape]], int]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Einsum": _einsum,
}
