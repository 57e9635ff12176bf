"""Counts on an ONNX graph: the shape of every tensor, bytes held at once, and products from these shapes.

Shapes come from onnx.shape_inference once the graph's inputs have the extents of one case; a model's own functions are
put in the place of their calls first.

A node's multiply-adds follow from the shapes of its inputs and outputs (ONNX operator specification; of ONNX Runtime's
own operators its ContribOperators.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto, helper, numpy_helper, shape_inference

from harness.core.errors import MalformedFileError, reason
from harness.zoo.quiet import quiet

Shape = tuple[int, ...]


@dataclass(frozen=True)
class OnnxGraph:
    """A graph whose inputs have fixed extents. shapes, bytes_of: by the name of each value whose shape is known."""

    nodes: tuple[Any, ...]
    shapes: Mapping[str, Shape]
    bytes_of: Mapping[str, int]
    inputs: frozenset[str]
    outputs: frozenset[str]
    weights: frozenset[str]
    scalars: Mapping[str, int] = field(default_factory=dict)
    """Constants of one whole number or truth value: how often a loop runs, which branch is taken."""


@dataclass(frozen=True)
class Live:
    """peak: most bytes that are needed at one time, without the `unknown` tensors whose shape is not known."""

    peak: int
    unknown: int


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
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    _resolve(model.graph, extents)
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    values = _known_values(graph)
    if any(name and name not in values for node in graph.node for name in node.output):
        # onnx knows its own operators alone, and gives up earlier.
        values = {**_known_values(_symbolically_inferred(model)), **values}
    return _graph_of(graph, values)


def _graph_of(graph: Any, values: Mapping[str, tuple[Shape, int]]) -> OnnxGraph:
    """With the shapes of every subgraph as well: in ONNX a value never has the name of a value in an outer graph."""
    graphs = [graph, *_subgraphs(graph.node)]
    tensors = [tensor for other in graphs for tensor in other.initializer]
    return OnnxGraph(
        nodes=tuple(graph.node),
        shapes={name: shape for name, (shape, _) in values.items()},
        bytes_of={
            name: math.ceil(math.prod(shape) * _bits(kind) / 8) for name, (shape, kind) in values.items() if kind
        },
        inputs=frozenset(value.name for value in graph.input),
        outputs=frozenset(value.name for value in graph.output),
        weights=frozenset(tensor.name for tensor in graph.initializer),
        scalars=_scalars(graphs, tensors),
    )


def _known_values(graph: Any) -> dict[str, tuple[Shape, int]]:
    """(shape, element type) of each value of the graph and its subgraphs whose shape is known."""
    values: dict[str, tuple[Shape, int]] = {}
    for part in (graph, *_subgraphs(graph.node)):
        values |= {tensor.name: (tuple(tensor.dims), tensor.data_type) for tensor in part.initializer}
        for value in (*part.input, *part.value_info, *part.output):
            if _is_known(value):
                tensor = value.type.tensor_type
                values[value.name] = (tuple(axis.dim_value for axis in tensor.shape.dim), tensor.elem_type)
    return values


def _symbolically_inferred(model: Any) -> Any:
    """The graph with shapes from ONNX Runtime's tool, which also knows ONNX Runtime's own operators."""
    # sympy and more: only where it is needed.
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference  # noqa: PLC0415

    try:
        with quiet():
            tool = SymbolicShapeInference(2**31 - 1, auto_merge=False, guess_output_rank=False, verbose=0)
            tool._preprocess(model)
            # Its infer_shapes() does just this, but where a shape stays unknown saves the model in the current folder.
            while tool.run_:
                tool._infer_impl()
            tool._update_output_from_vi()
            return tool.out_mp_.graph
    except Exception:  # whatever its rules raise for a graph that they do not know; nodes without shapes are named
        return model.graph


def _subgraphs(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                if graph.node or graph.output:
                    yield graph
                    yield from _subgraphs(graph.node)


def _scalars(graphs: Iterable[Any], tensors: Iterable[Any]) -> dict[str, int]:
    whole = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
    named = [(tensor.name, tensor) for tensor in tensors]
    for node in (node for graph in graphs for node in graph.node if node.op_type == "Constant"):
        named += [(node.output[0], entry.t) for entry in node.attribute if entry.name == "value"]
    return {
        name: int(numpy_helper.to_array(tensor).reshape(-1)[0])
        for name, tensor in named
        if tensor.data_type in whole and math.prod(tensor.dims) == 1 and tensor.data_location != TensorProto.EXTERNAL
    }


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
    for part in (graph, *_subgraphs(graph.node)):
        inner = [] if part is graph else [*part.input]
        for value in (*inner, *part.value_info, *part.output):
            for axis in value.type.tensor_type.shape.dim:
                if axis.dim_param in symbols:
                    axis.dim_value = symbols[axis.dim_param]
        known = [value for value in part.value_info if _is_known(value)]
        del part.value_info[:]
        part.value_info.extend(known)


def _is_known(value: Any) -> bool:
    tensor = value.type.tensor_type
    return tensor.HasField("shape") and all(axis.HasField("dim_value") for axis in tensor.shape.dim)


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


# fmt: off
_UNCOUNTED = frozenset((
    "DFT", "DynamicTimeWarping", "Det", "SequenceMap", "STFT",
    *("LinearClassifier", "LinearRegressor", "SVMClassifier", "SVMRegressor"),
))
"""Operators of ONNX that consist of products, or hold a graph, and are not counted here. As in cost/torch_counts.py,
activations, normalisations, poolings and interpolations are left out of the count by convention."""

_WITHOUT_PRODUCTS = frozenset((
    "BiasAdd", "BiasDropout", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "BitmaskBiasDropout", "BitmaskDropout",
    "DequantizeLinear", "EmbedLayerNormalization", "ExpandDims", "FastGelu", "GatherBlockQuantized", "GatherND", "Gelu",
    "GridSample", "GroupNorm", "LayerNormalization", "MaxpoolWithMask", "MurmurHash3", "NGramRepeatBlock",
    "NhwcMaxPool", "Pad", "QEmbedLayerNormalization", "QLinearAdd", "QLinearAveragePool", "QLinearConcat",
    "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul", "QLinearReduceMean", "QLinearSigmoid",
    "QLinearSoftmax", "QLinearWhere", "QuantizeLinear", "QuickGelu", "Range", "ReduceSumInteger", "RemovePadding",
    "RestorePadding", "RotaryEmbedding", "SampleOp", "SimplifiedLayerNormalization", "SkipGroupNorm",
    "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "Trilu", "Unique",
))
# fmt: on
"""ONNX Runtime's own operators (domain com.microsoft) without products. Its other operators that are not counted, and
those of other domains, are unknown: they are named."""


@dataclass(frozen=True)
class OnnxProducts:
    """Multiply-adds by operator type, and the missing parts, in words."""

    macs: Mapping[str, int]
    uncounted: tuple[str, ...]

    @property
    def total(self) -> int:
        """Multiply-adds of the whole graph."""
        return sum(self.macs.values())


def products_of(graph: OnnxGraph) -> OnnxProducts:
    """Count every node that multiplies matrices or convolves, in branches and loops too; those that cannot be counted
    are named."""
    counted = _Counter(graph)
    counted.add(graph.nodes, 1)
    missing = tuple(f"{number} x {kind}" for kind, number in sorted(counted.missing.items()))
    return OnnxProducts({name: macs for name, macs in counted.macs.items() if macs}, missing)


class _Counter:
    """Adds up nodes by operator. macs: multiply-adds; missing: how many nodes of a kind were not counted, and why."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph
        self.macs: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()

    def add(self, nodes: Iterable[Any], times: int) -> None:
        """Each node as often as its graph runs."""
        for node in nodes:
            if node.op_type in _GRAPHS:
                _GRAPHS[node.op_type](self, node, times)
            elif node.op_type in _COUNTS and node.domain in ("", "ai.onnx", _MICROSOFT):
                try:
                    self.macs[node.op_type] += times * _COUNTS[node.op_type](node, self._graph.shapes)
                except (KeyError, IndexError):
                    self.missing[f"{node.op_type}: shape not known"] += 1
            elif _is_unknown(node):
                self.missing[f"{node.op_type}: not counted"] += 1

    def add_if(self, node: Any, times: int) -> None:
        """The branch that is taken, where the condition is a constant; else the branch with fewer products."""
        branches = {name: _attribute(node, f"{name}_branch", None) for name in ("then", "else")}
        taken = self._graph.scalars.get(node.input[0])
        if taken is not None:
            self.add(branches["then" if taken else "else"].node, times)
            return
        counts = [_Counter(self._graph) for _ in branches]
        for count, branch in zip(counts, branches.values(), strict=True):
            count.add(branch.node, times)
        least = min(counts, key=lambda count: count.macs.total())
        self.macs += least.macs
        self.missing += counts[0].missing | counts[1].missing
        if counts[0].macs.total() != counts[1].macs.total():
            self.missing["If: its branch with fewer products is counted"] += 1

    def add_loop(self, node: Any, times: int) -> None:
        """The number of rounds, from a constant; 1 where it is unknown, or where a condition may end the loop."""
        rounds = self._graph.scalars.get(node.input[0])
        body = _attribute(node, "body", None)
        ends = not _goes_on(body, self._graph.scalars)
        self.add(body.node, times * (1 if rounds is None or ends else rounds))
        if rounds is None or ends:
            self.missing["Loop: one of its rounds is counted"] += 1

    def add_scan(self, node: Any, times: int) -> None:
        """A round for each entry along the axis that it walks."""
        count = _attribute(node, "num_scan_inputs", 1)
        axes = _attribute(node, "scan_input_axes", [0] * count)
        walked = self._graph.shapes.get(node.input[len(node.input) - count])
        self.add(_attribute(node, "body", None).node, times * (walked[axes[0]] if walked else 1))
        if not walked:
            self.missing["Scan: one of its rounds is counted"] += 1


def _goes_on(body: Any, scalars: Mapping[str, int]) -> bool:
    """Whether nothing in a loop's body can end it before its last round: the condition is handed on, or always true."""
    ends = body.output[0].name
    maker = next((node for node in body.node if ends in node.output), None)
    if maker is None:
        return ends == body.input[1].name or bool(scalars.get(ends))
    return (maker.op_type == "Identity" and maker.input[0] == body.input[1].name) or bool(scalars.get(ends))


def _is_unknown(node: Any) -> bool:
    """Whether a node that is not counted may hold products."""
    if node.domain in ("", "ai.onnx", "ai.onnx.ml"):
        return node.op_type in _UNCOUNTED
    return not (node.domain == _MICROSOFT and node.op_type in _WITHOUT_PRODUCTS)


def _attribute(node: Any, name: str, otherwise: Any) -> Any:
    attribute = next((entry for entry in node.attribute if entry.name == name), None)
    return otherwise if attribute is None else helper.get_attribute_value(attribute)


def _conv(node: Any, shapes: Mapping[str, Shape]) -> int:
    """Each output element sums over input channels of its group and the kernel: weight is (out, in / groups, k…)."""
    return math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])


def _fused_conv(node: Any, shapes: Mapping[str, Shape]) -> int:
    """Products of a fused convolution. The extents of its output follow from its attributes, as nothing infers them."""
    if node.output[0] in shapes:
        return _conv(node, shapes)
    values, weight = shapes[node.input[0]], shapes[node.input[1]]
    axes = len(weight) - 2
    if _attribute(node, "auto_pad", b"NOTSET") != b"NOTSET":
        raise KeyError(node.name)
    pads = _attribute(node, "pads", [0] * 2 * axes)
    strides, dilations = _attribute(node, "strides", [1] * axes), _attribute(node, "dilations", [1] * axes)
    extents = [
        (values[2 + axis] + pads[axis] + pads[axes + axis] - dilations[axis] * (weight[2 + axis] - 1) - 1)
        // strides[axis]
        + 1
        for axis in range(axes)
    ]
    return int(values[0] * weight[0] * math.prod(extents) * math.prod(weight[1:]))


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


def _recurrent(node: Any, shapes: Mapping[str, Shape]) -> int:
    """RNN, GRU, LSTM: every step of every sample meets both matrices of each direction.

    Input is (steps, batch, features) or (batch, steps, features), weights are (directions, gates x hidden, features).
    """
    steps, batch, _ = shapes[node.input[0]]
    return steps * batch * (math.prod(shapes[node.input[1]]) + math.prod(shapes[node.input[2]]))


def _fused_matmul(node: Any, shapes: Mapping[str, Shape]) -> int:
    """Products from the inputs alone, (…, rows, inner) and (…, inner, columns), either transposed where an attribute
    says so."""
    left, right = shapes[node.input[0]], shapes[node.input[1]]
    rows, inner = left[-2:][:: -1 if _attribute(node, "transA", 0) else 1]
    columns = right[-2 if _attribute(node, "transB", 0) else -1]
    return math.prod(np.broadcast_shapes(left[:-2], right[:-2])) * rows * inner * columns


def _qlinear_conv(node: Any, shapes: Mapping[str, Shape]) -> int:
    return math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[3]][1:])


def _blocked(node: Any, shapes: Mapping[str, Shape]) -> int:
    """Weights of few bits, packed: their extents are attributes."""
    return math.prod(shapes[node.input[0]][:-1]) * int(_attribute(node, "K", 0)) * int(_attribute(node, "N", 0))


def _attention(node: Any, shapes: Mapping[str, Shape]) -> int:
    """ONNX's own: scores and their product with the values. Inputs are (batch, heads, length, features), or without the
    axis of heads, where attributes have their number. A mask saves nothing, as in other counts."""
    query, key, value = (shapes[name] for name in node.input[:3])
    past = shapes[node.input[4]][2] if len(node.input) > 4 and node.input[4] else 0
    heads = query[1] if len(query) == 4 else int(_attribute(node, "q_num_heads", 0))
    groups = key[1] if len(key) == 4 else int(_attribute(node, "kv_num_heads", 0))
    rows, columns = query[-2], key[-2] + past
    features = (query[-1] if len(query) == 4 else query[-1] // heads) + (
        value[-1] if len(value) == 4 else value[-1] // groups
    )
    return query[0] * heads * rows * columns * features


def _projected_attention(node: Any, shapes: Mapping[str, Shape]) -> int:
    """ONNX Runtime's Attention and QAttention: one projection to queries, keys and values, scores, and their product.

    Input is (batch, length, features), weight (features, queries + keys + values).
    """
    batch, rows, inner = shapes[node.input[0]]
    width = shapes[node.input[1]][1]
    queries, _, values = map(int, _attribute(node, "qkv_hidden_sizes", None) or [width // 3] * 3)
    place = 4 if node.op_type == "Attention" else 8
    past = shapes[node.input[place]][3] if len(node.input) > place and node.input[place] else 0
    return batch * rows * inner * width + batch * rows * (rows + past) * (queries + values)


def _microsoft_attention(node: Any, shapes: Mapping[str, Shape]) -> int:
    """MultiHeadAttention: scores and their product with the values.

    Queries are (batch, length, features), or packed with keys and values (batch, length, heads, 3, features); keys are
    likewise, packed with values, or (batch, heads, length, features).
    """
    query = shapes[node.input[0]]
    batch, rows = query[:2]
    if len(query) == 5:
        return batch * rows * rows * 2 * query[2] * query[4]
    key = shapes[node.input[1]]
    columns = key[2] if len(key) == 4 else key[1]
    width = query[2]
    if len(key) != 5:
        value = shapes[node.input[2]]
        width = value[2] if len(value) == 3 else value[1] * value[3]
    past = shapes[node.input[6]][2] if len(node.input) > 6 and node.input[6] else 0
    return batch * rows * (columns + past) * (query[2] + width)


def _any_attention(node: Any, shapes: Mapping[str, Shape]) -> int:
    return (_projected_attention if node.domain == _MICROSOFT else _attention)(node, shapes)


_MICROSOFT = "com.microsoft"

_COUNTS: Mapping[str, Callable[[Any, Mapping[str, Shape]], int]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Einsum": _einsum,
    **dict.fromkeys(("RNN", "GRU", "LSTM", "DynamicQuantizeLSTM"), _recurrent),
    **dict.fromkeys(("ConvInteger", "DeformConv", "NhwcFusedConv"), _conv),
    "FusedConv": _fused_conv,
    **dict.fromkeys(("FusedGemm", "GemmFastGelu", "QGemm"), _gemm),
    **dict.fromkeys(("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul"), _fused_matmul),
    **dict.fromkeys(("MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QLinearMatMul"), _matmul),
    "QLinearConv": _qlinear_conv,
    **dict.fromkeys(("MatMulNBits", "MatMulBnb4", "MatMulFpQ4"), _blocked),
    "Attention": _any_attention,
    "QAttention": _projected_attention,
    "MultiHeadAttention": _microsoft_attention,
}
"""By operator: multiply-adds of a node. KeyError where a shape is not known."""

_GRAPHS: Mapping[str, Callable[[_Counter, Any, int], None]] = {
    "If": _Counter.add_if,
    "Loop": _Counter.add_loop,
    "Scan": _Counter.add_scan,
}
"""Operators that hold graphs."""
