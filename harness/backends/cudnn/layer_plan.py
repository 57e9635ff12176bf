"""An ONNX graph → steps that cuDNN runs as one kernel each; and how a batch of pictures, and the weights of the layer
that reads it, lie in memory (pure; arrays are NumPy's).

A convolution takes the addition and the activation behind it into its own step. A Gemm is a convolution whose window
covers the whole picture. Whatever else a graph has is refused by name: no step runs anywhere but in cuDNN.

Folding: a convolution of stride 2 on H × W pixels of C channels is one of stride 1 on H/2 × W/2 blocks of 2 × 2 pixels,
with 4·C channels. First layers have 3 channels, for which cuDNN has few kernels; 12 fill them better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from onnx import helper, numpy_helper

from harness.backends.base import Array
from harness.core.errors import NotSupportedError

Extents = tuple[int, int, int, int]
"""(N, C, H, W) of a value, whatever its layout in memory."""
Pair = tuple[int, int]
"""Height, width."""


@dataclass(frozen=True)
class Activation:
    """max(lower, ·), and min(·, upper) where there is an upper bound."""

    lower: float = 0.0
    upper: float | None = None


@dataclass(frozen=True)
class Convolution:
    """result = activation(convolution(source, weight) + residual + bias).

    weight, bias: names in LayerPlan.constants, of (K, C / groups, R, S) and (K,). before, after: padding above and
    left, below and right. nodes: the ONNX nodes that it computes.
    """

    source: str
    result: str
    weight: str
    bias: str
    nodes: tuple[str, ...]
    stride: Pair = (1, 1)
    before: Pair = (0, 0)
    after: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    residual: str | None = None
    activation: Activation | None = None


@dataclass(frozen=True)
class Pooling:
    """result = the maximum or the average over windows of the source; padding counts for nothing."""

    kind: Literal["max", "average"]
    source: str
    result: str
    nodes: tuple[str, ...]
    window: Pair
    stride: Pair
    padding: Pair = (0, 0)


LayerStep = Convolution | Pooling


@dataclass(frozen=True)
class LayerPlan:
    """The steps of one inference, in order.

    source, result: the graph's input and output among the values. input_name, output_name: their names in the file.
    extents: of every value that a step reads or writes. constants: in fp32. flat: the output is (N, C), not a picture.
    """

    input_name: str
    output_name: str
    source: str
    result: str
    steps: tuple[LayerStep, ...]
    extents: Mapping[str, Extents]
    constants: Mapping[str, Array]
    flat: bool

    def signature(self, step: LayerStep) -> str:
        """Everything about a step that decides which kernel is fast: steps of one signature share a plan."""
        shape = "x".join(map(str, self.extents[step.source]))
        if isinstance(step, Pooling):
            return f"{step.kind} {shape} w{_pair(step.window)} s{_pair(step.stride)} p{_pair(step.padding)}"
        weight = "x".join(map(str, self.constants[step.weight].shape))
        words = [f"conv {shape} k{weight} s{_pair(step.stride)}", f"p{_pair(step.before)}-{_pair(step.after)}"]
        words += [f"d{_pair(step.dilation)}", f"g{step.groups}"]
        words += ["add"] if step.residual is not None else []
        if step.activation is not None:
            upper = step.activation.upper
            words.append(f"clip{step.activation.lower:g}" + ("" if upper is None else f"-{upper:g}"))
        return " ".join(words)


def _pair(values: Pair) -> str:
    return "x".join(map(str, values))


def layer_plan(model: Any, extents: Sequence[int], channel_multiple: int = 1) -> LayerPlan:
    """The steps of an onnx ModelProto for an input of these extents (N, C, H, W).

    channel_multiple: the input has its channels padded with zeros to a multiple of it, and so have the weights that
    read it. Raises NotSupportedError, which names the operators, for a graph that has more than these steps.
    """
    return _GraphReader(model.graph, extents, channel_multiple).plan()


@dataclass
class _GraphReader:
    """Reads nodes in order. alias: further names of a value. flat: names under which a value is read as (N, C·H·W)."""

    graph: Any
    given: Sequence[int]
    channel_multiple: int
    constants: dict[str, Array] = field(default_factory=dict)
    used: dict[str, Array] = field(default_factory=dict)
    alias: dict[str, str] = field(default_factory=dict)
    flat: set[str] = field(default_factory=set)
    extents: dict[str, Extents] = field(default_factory=dict)
    steps: list[LayerStep] = field(default_factory=list)
    made_by: dict[str, int] = field(default_factory=dict)

    def plan(self) -> LayerPlan:
        graph = self.graph
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        inputs = [tensor.name for tensor in graph.input if tensor.name not in self.constants]
        if len(inputs) != 1 or len(self.given) != 4 or len(graph.output) != 1:
            raise _refused(f"{len(inputs)} inputs and {len(graph.output)} outputs; it takes one picture and gives one")
        self.reads = Counter(name for node in graph.node for name in node.input)
        self.reads.update(tensor.name for tensor in graph.output)
        n, c, h, w = self.given
        self.extents[inputs[0]] = (n, -(-c // self.channel_multiple) * self.channel_multiple, h, w)
        self.input_channels = c
        unknown = sorted({_operator(node) for node in graph.node} - _READERS.keys())
        if unknown:
            raise _refused(f"the operator{'s' * (len(unknown) > 1)} {', '.join(unknown)}")
        for node in graph.node:
            _READERS[node.op_type](self, node)
        result = self._value(graph.output[0].name)
        if result not in self.made_by:
            raise _refused("an output that no step computes")
        flat = len(graph.output[0].type.tensor_type.shape.dim) == 2
        if graph.output[0].name in self.flat and self.extents[result][2:] != (1, 1):
            raise _refused("an output that is a flattened picture")
        steps = tuple(self.steps)
        values = {name for step in steps for name in (step.source, step.result)}
        return LayerPlan(
            input_name=inputs[0],
            output_name=graph.output[0].name,
            source=inputs[0],
            result=result,
            steps=steps,
            extents={name: self.extents[name] for name in values},
            constants=self.used,
            flat=flat,
        )

    def _value(self, name: str) -> str:
        while name in self.alias:
            name = self.alias[name]
        return name

    def _source(self, node: Any, index: int = 0) -> str:
        """The value that a node reads; refused where no step or input gives it."""
        name = self._value(node.input[index])
        if name not in self.extents:
            raise _refused(f"the operator {node.op_type} on a constant", node)
        return name

    def _picture(self, node: Any) -> str:
        """As _value, for a value that is read as (N, C, H, W)."""
        if node.input[0] in self.flat and self.extents[self._value(node.input[0])][2:] != (1, 1):
            raise _refused(f"the operator {node.op_type} on a flattened picture", node)
        return self._source(node)

    def _constant(self, node: Any, index: int) -> Array | None:
        """A constant operand; None where the node has none there. Refused where it is computed."""
        if len(node.input) <= index or not node.input[index]:
            return None
        name = self._value(node.input[index])
        if name not in self.constants:
            raise _refused(f"the operator {node.op_type} with a computed operand", node)
        return self.constants[name]

    def _add(self, step: LayerStep, extents: Extents) -> None:
        if min(extents) < 1:
            raise _refused("a value without elements")
        self.extents[step.result] = extents
        self.made_by[step.result] = len(self.steps)
        self.steps.append(step)

    def _use(self, name: str, values: Array) -> str:
        self.used[name] = np.ascontiguousarray(values, dtype=np.float32)
        return name

    def _same(self, node: Any) -> None:
        """A node that gives what it reads."""
        name = self._value(node.input[0])
        if name in self.constants:
            self.constants[node.output[0]] = self.constants[name]
            return
        self.alias[node.output[0]] = name
        self.reads[name] += self.reads[node.output[0]] - 1
        if node.input[0] in self.flat:
            self.flat.add(node.output[0])

    def _cast(self, node: Any) -> None:
        """Between floating types: all steps compute in one."""
        name, kind = self._value(node.input[0]), _attribute(node, "to", 0)
        if name in self.constants:
            self.constants[node.output[0]] = self.constants[name].astype(helper.tensor_dtype_to_np_dtype(kind))
        elif np.issubdtype(helper.tensor_dtype_to_np_dtype(kind), np.floating):
            self._same(node)
        else:
            raise _refused("the operator Cast to integers", node)

    def _constant_node(self, node: Any) -> None:
        values = _attribute(node, "value", None)
        if values is None:
            raise _refused("the operator Constant without a tensor", node)
        self.constants[node.output[0]] = numpy_helper.to_array(values)

    def _flatten(self, node: Any) -> None:
        """(N, C, H, W) → (N, C·H·W), or to the same picture."""
        n, c, h, w = self.extents[self._source(node)]
        if node.op_type == "Flatten":
            shape = [n, c * h * w] if _attribute(node, "axis", 1) == 1 else []
        elif node.op_type == "Squeeze":
            axes = self._axes(node)
            shape = [n, c] if (h, w) == (1, 1) and sorted(axes) == [2, 3] else []
        else:
            wanted = self._constant(node, 1)
            shape = [] if wanted is None else wanted.tolist()
            shape = [n if place == 0 and extent in (0, -1) else extent for place, extent in enumerate(shape)]
            shape = [c * h * w if place == 1 and extent == -1 else extent for place, extent in enumerate(shape)]
        if shape not in ([n, c * h * w], [1, c * h * w], [n, c, h, w]):
            raise _refused(f"the operator {node.op_type} to other than (N, C·H·W)", node)
        self._same(node)
        if len(shape) == 2:
            self.flat.add(node.output[0])

    def _axes(self, node: Any) -> list[int]:
        """Axes of a reduction or a squeeze, counted from 0: an attribute in older operator sets, then an input."""
        given = self._constant(node, 1)
        axes = _attribute(node, "axes", []) if given is None else given.tolist()
        return [axis % 4 for axis in axes]

    def _convolution(self, node: Any) -> None:
        source, name = self._picture(node), node.input[1]
        weight, bias = self._constant(node, 1), self._constant(node, 2)
        if weight is None or weight.ndim != 4:
            raise _refused("the operator Conv in other than two dimensions", node)
        if source == self._input and weight.shape[1] != self.extents[source][1]:
            if weight.shape[1] != self.input_channels:
                raise _refused("the operator Conv in groups on the input", node)
            missing = self.extents[source][1] - self.input_channels
            weight = np.pad(weight, ((0, 0), (0, missing), (0, 0), (0, 0)))
        top, left, bottom, right = _padding(node)
        step = Convolution(
            source=source,
            result=node.output[0],
            weight=self._use(name, weight),
            bias=self._use(f"{name}/bias", np.zeros(len(weight)) if bias is None else bias),
            nodes=(_name(node),),
            stride=_two(node, "strides"),
            before=(top, left),
            after=(bottom, right),
            dilation=_two(node, "dilations"),
            groups=_attribute(node, "group", 1),
        )
        self._add(step, convolution_extents(self.extents[source], weight.shape, step))

    @property
    def _input(self) -> str:
        return next(iter(self.extents))

    def _gemm(self, node: Any) -> None:
        source, weight, bias = self._source(node), self._constant(node, 1), self._constant(node, 2)
        plain = (_attribute(node, "alpha", 1.0), _attribute(node, "beta", 1.0), _attribute(node, "transA", 0))
        n, c, h, w = self.extents[source]
        if weight is None or plain != (1.0, 1.0, 0) or source == self._input:
            raise _refused(f"the operator {node.op_type} in a form other than x·W + b", node)
        rows = weight if _attribute(node, "transB", 0) else weight.T
        step = Convolution(
            source=source,
            result=node.output[0],
            weight=self._use(f"{node.input[1]}/{_name(node)}", rows.reshape(len(rows), c, h, w)),
            bias=self._use(f"{node.input[1]}/bias", np.broadcast_to(0.0 if bias is None else bias, (len(rows),))),
            nodes=(_name(node),),
        )
        self._add(step, (n, len(rows), 1, 1))

    def _addition(self, node: Any) -> None:
        """Into the convolution that made the later operand, whose only reader is this addition."""
        operands = [self._source(node, index) for index in (0, 1)]
        if self.extents[operands[0]] != self.extents[operands[1]]:
            raise _refused(f"the operator {node.op_type} of unequal shapes", node)
        later = max(operands, key=lambda name: self.made_by.get(name, -1))
        other = operands[1 - operands.index(later)]
        step = self.steps[self.made_by[later]] if later in self.made_by else None
        if not isinstance(step, Convolution) or step.residual or step.activation or self.reads[later] != 1:
            raise _refused(f"the operator {node.op_type} behind no convolution that it could be fused with", node)
        self._fuse(step, node, residual=other)

    def _activation(self, node: Any) -> None:
        source = self._source(node)
        step = self.steps[self.made_by[source]] if source in self.made_by else None
        if not isinstance(step, Convolution) or step.activation or self.reads[source] != 1:
            raise _refused(f"the operator {node.op_type} behind no convolution that it could be fused with", node)
        self._fuse(step, node, activation=self._bounds(node))

    def _bounds(self, node: Any) -> Activation:
        if node.op_type == "Relu":
            return Activation()
        lower, upper = self._constant(node, 1), self._constant(node, 2)
        low = _attribute(node, "min", None) if lower is None else float(lower)
        high = _attribute(node, "max", None) if upper is None else float(upper)
        if low is None:
            raise _refused("the operator Clip without a lower bound", node)
        return Activation(low, high)

    def _fuse(self, step: Convolution, node: Any, **more: Any) -> None:
        """The step also computes this node; its result gets the node's name."""
        place = self.made_by.pop(step.result)
        grown = replace(step, result=node.output[0], nodes=(*step.nodes, _name(node)), **more)
        self.extents[grown.result] = self.extents[step.result]
        self.made_by[grown.result] = place
        self.steps[place] = grown

    def _max_pooling(self, node: Any) -> None:
        source = self._picture(node)
        top, left, bottom, right = _padding(node)
        plain = _attribute(node, "ceil_mode", 0) == 0 and _two(node, "dilations") == (1, 1)
        if (top, left) != (bottom, right) or not plain or len(node.output) != 1:
            raise _refused("the operator MaxPool with uneven padding, dilation, ceil_mode or indices", node)
        window, stride = _two(node, "kernel_shape"), _two(node, "strides")
        step = Pooling("max", source, node.output[0], (_name(node),), window, stride, (top, left))
        n, c, h, w = self.extents[source]
        self._add(step, (n, c, (h + 2 * top - window[0]) // stride[0] + 1, (w + 2 * left - window[1]) // stride[1] + 1))

    def _mean(self, node: Any) -> None:
        source = self._picture(node)
        n, c, h, w = self.extents[source]
        if node.op_type == "ReduceMean" and sorted(self._axes(node)) != [2, 3]:
            raise _refused("the operator ReduceMean over other than height and width", node)
        self._add(Pooling("average", source, node.output[0], (_name(node),), (h, w), (1, 1)), (n, c, 1, 1))
        if node.op_type == "ReduceMean" and not _attribute(node, "keepdims", 1):
            self.flat.add(node.output[0])


_READERS: Mapping[str, Callable[[_GraphReader, Any], None]] = {
    "Add": _GraphReader._addition,
    "Cast": _GraphReader._cast,
    "Clip": _GraphReader._activation,
    "Constant": _GraphReader._constant_node,
    "Conv": _GraphReader._convolution,
    "Dropout": _GraphReader._same,
    "Flatten": _GraphReader._flatten,
    "Gemm": _GraphReader._gemm,
    "GlobalAveragePool": _GraphReader._mean,
    "Identity": _GraphReader._same,
    "MaxPool": _GraphReader._max_pooling,
    "ReduceMean": _GraphReader._mean,
    "Relu": _GraphReader._activation,
    "Reshape": _GraphReader._flatten,
    "Squeeze": _GraphReader._flatten,
}
"""Operators by name; every other operator is refused."""


def convolution_extents(extents: Extents, weight: tuple[int, ...], step: Convolution) -> Extents:
    """The extents of a convolution's result."""
    n, _, *size = extents
    height, width = (
        (size[axis] + step.before[axis] + step.after[axis] - step.dilation[axis] * (weight[2 + axis] - 1) - 1)
        // step.stride[axis]
        + 1
        for axis in (0, 1)
    )
    return n, weight[0], height, width


def _operator(node: Any) -> str:
    """Its type, with its domain where that is not ONNX's own."""
    return str(node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}:{node.op_type}")


def _attribute(node: Any, name: str, default: Any) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return helper.get_attribute_value(attribute)
    return default


def _two(node: Any, name: str) -> Pair:
    height, width = _attribute(node, name, (1, 1))
    return int(height), int(width)


def _padding(node: Any) -> tuple[int, int, int, int]:
    """Above, left, below, right."""
    if _attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise _refused(f"the operator {node.op_type} with auto_pad", node)
    top, left, bottom, right = _attribute(node, "pads", (0, 0, 0, 0))
    return int(top), int(left), int(bottom), int(right)


def _name(node: Any) -> str:
    return str(node.name or node.output[0])


def _refused(thing: str, node: Any = None) -> NotSupportedError:
    where = "" if node is None else f" (node {_name(node)})"
    return NotSupportedError(
        f"The cudnn backend does not run {thing}{where}.",
        "Leave cudnn out for this model (`make bench BACKENDS=…`): it runs " + ", ".join(sorted(_RUNS)) + ".",
    )


_RUNS = frozenset(_READERS) - {"Cast", "Constant", "Dropout", "Identity"}


_ALIGNED = 8
"""Channels: 16 bytes of fp16, which kernels load at once."""


@dataclass(frozen=True)
class Fold:
    """Rows above and columns left of the picture that belong to the first blocks, even numbers; the plan's input then
    has the extents `blocks`, whose further rows, columns and channels are zeros."""

    margin: Pair
    blocks: Extents


def channels_last(values: Array, channels: int | None = None) -> Array:
    """(N, C, H, W) in fp32 or fp16 → (N, H, W, C) in fp16, padded with zeros to so many channels; weights likewise."""
    n, c, h, w = values.shape
    laid_out = np.zeros((n, h, w, channels or c), np.float16)
    laid_out[..., :c] = values.transpose(0, 2, 3, 1)
    return laid_out


def folded(plan: LayerPlan) -> tuple[LayerPlan, Fold]:
    """The plan of the same inference on blocks of 2 × 2 pixels. NotSupportedError where the input has another reader
    than one convolution of stride 2. The plan's input must have its own channels, not padded ones."""
    readers = [step for step in plan.steps if plan.source in (step.source, getattr(step, "residual", None))]
    first = readers[0]
    if len(readers) != 1 or not isinstance(first, Convolution) or _stride(first) != ((2, 2), (1, 1), 1):
        raise NotSupportedError(
            "The input cannot be folded: one convolution of stride 2 would have to be its only reader.",
            "Choose another setting of cudnn: SETTINGS=graph.",
        )
    weight = plan.constants[first.weight]
    k, c, *window = weight.shape
    odd = [before % 2 for before in first.before]
    size = [(extent + shift + 1) // 2 for extent, shift in zip(window, odd, strict=True)]
    channels = -(-4 * c // _ALIGNED) * _ALIGNED
    blocks = np.zeros((k, channels, *size), np.float32)
    for row in range(window[0]):
        for column in range(window[1]):
            y, x = row + odd[0], column + odd[1]
            place = c * (2 * (y % 2) + x % 2)
            blocks[:, place : place + c, y // 2, x // 2] = weight[:, :, row, column]
    n, _, height, width = plan.extents[first.result]
    extents = (n, channels, height + size[0] - 1, width + size[1] - 1)
    step = replace(first, stride=(1, 1), before=(0, 0), after=(0, 0))
    fold = Fold((first.before[0] + odd[0], first.before[1] + odd[1]), extents)
    changed = replace(
        plan,
        steps=tuple(step if planned is first else planned for planned in plan.steps),
        extents={**plan.extents, plan.source: extents},
        constants={**plan.constants, first.weight: blocks},
    )
    return changed, fold


def _stride(step: Convolution) -> tuple[Pair, Pair, int]:
    return step.stride, step.dilation, step.groups


def in_blocks(values: Array, fold: Fold) -> Array:
    """(N, C, H, W) → (N, blocks down, blocks across, channels of the fold) in fp16."""
    n, c, h, w = values.shape
    _, channels, down, across = fold.blocks
    top, left = fold.margin
    pixels = np.zeros((n, 2 * down, 2 * across, c), np.float16)
    rows, columns = min(h, 2 * down - top), min(w, 2 * across - left)
    pixels[:, top : top + rows, left : left + columns] = values[:, :, :rows, :columns].transpose(0, 2, 3, 1)
    laid_out = np.zeros((n, down, across, channels), np.float16)
    laid_out[..., : 4 * c] = (
        pixels.reshape(n, down, 2, across, 2, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, down, across, 4 * c)
    )
    return laid_out
