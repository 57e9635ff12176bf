"""Products of an ONNX graph, counted from its own shapes: a check of the count that torch makes on the module.

A node's multiply-adds follow from the shapes of its inputs and outputs (ONNX operator specification; of ONNX Runtime's
own operators its ContribOperators.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from harness.zoo.cost.onnx_shapes import OnnxGraph, Shape

# fmt: off
_UNCOUNTED = frozenset((
    "DFT", "DynamicTimeWarping", "Det", "SequenceMap", "STFT",
    *("LinearClassifier", "LinearRegressor", "SVMClassifier", "SVMRegressor"),
))
"""Operators of ONNX that consist of products, or hold a graph, and are not counted here. As in cost/work.py,
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
    missing = tuple(f"{number} x {what}" for what, number in sorted(counted.missing.items()))
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
        for one, branch in zip(counts, branches.values(), strict=True):
            one.add(branch.node, times)
        least = min(counts, key=lambda one: one.macs.total())
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
    found = next((entry for entry in node.attribute if entry.name == name), None)
    return otherwise if found is None else helper.get_attribute_value(found)


def _conv(node: Any, shapes: Mapping[str, Shape]) -> int:
    """Each output element sums over input channels of its group and the kernel: weight is (out, in / groups, k…)."""
    return math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])


def _fused_conv(node: Any, shapes: Mapping[str, Shape]) -> int:
    """As a convolution; the extents of its output follow from its attributes, as nothing infers them."""
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
    """From the inputs alone, (…, rows, inner) and (…, inner, columns), either transposed where an attribute says so."""
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
