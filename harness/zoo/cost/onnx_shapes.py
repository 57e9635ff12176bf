"""An ONNX graph with the shape of every tensor, and the bytes that its tensors hold at once.

Shapes come from onnx.shape_inference once the graph's inputs have the extents of one case; a model's own functions are
put in the place of their calls first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner
from onnx import TensorProto, helper, numpy_helper, shape_inference

from harness.core.errors import MalformedFileError
from harness.core.extensions import reason
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
    tensors = [tensor for one in graphs for tensor in one.initializer]
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
    found: dict[str, tuple[Shape, int]] = {}
    for one in (graph, *_subgraphs(graph.node)):
        found |= {tensor.name: (tuple(tensor.dims), tensor.data_type) for tensor in one.initializer}
        for value in (*one.input, *one.value_info, *one.output):
            if _is_known(value):
                tensor = value.type.tensor_type
                found[value.name] = (tuple(axis.dim_value for axis in tensor.shape.dim), tensor.elem_type)
    return found


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
    for one in (graph, *_subgraphs(graph.node)):
        inner = [] if one is graph else [*one.input]
        for value in (*inner, *one.value_info, *one.output):
            for axis in value.type.tensor_type.shape.dim:
                if axis.dim_param in symbols:
                    axis.dim_value = symbols[axis.dim_param]
        known = [value for value in one.value_info if _is_known(value)]
        del one.value_info[:]
        one.value_info.extend(known)


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
