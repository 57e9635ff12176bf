"""Weights that an ONNX file keeps in other files: which there are, and that they lie in its folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx

from harness.core.errors import ExportError, MalformedFileError, reason
from harness.core.safe_files import path_inside


def external_locations(path: Path) -> set[str]:
    """The files that a model's tensors are kept in, as it names them; only the file itself is read.

    Raises ExportError where it is no ONNX file.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's DecodeError has no common base with onnx's own below Exception
        raise ExportError(
            f"{path} ({path.stat().st_size:,} bytes) cannot be read as ONNX: {reason(error)}",
            "Is it a whole ONNX file? A download may have stopped, or have saved a page of text (git lfs pull).",
        ) from error
    return {_location(tensor) for tensor in _tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL}


def check_external_data(path: Path) -> None:
    """Raise ExportError where a tensor is kept outside the folder of the file, by name or by a link.

    Call this before any library loads the file: bytes from there would become weights, and so outputs.
    """
    for location in sorted(external_locations(path)):
        try:
            beside = path_inside(path.parent, location)
        except MalformedFileError as error:
            raise ExportError(
                f"{path} keeps weights in {location!r}, which is outside its folder.",
                "Do not load it unless you made it; else save it again with its weights beside it.",
            ) from error
        if not beside.is_file():
            raise ExportError(
                f"{path} keeps weights in {location!r}, and there is no {beside}.",
                f"Put {location} beside {path.name}.",
            )


def _location(tensor: Any) -> str:
    return next((str(entry.value) for entry in tensor.external_data if entry.key == "location"), "")


def _tensors(model: Any) -> Iterator[Any]:
    """Every tensor of a model: initializers and attributes, of subgraphs and functions too."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Any) -> Iterator[Any]:
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for graph in (attribute.g, *attribute.graphs):
            yield from _graph_tensors(graph)


def all_nodes(model: Any) -> list[Any]:
    """All nodes of the graph, of its subgraphs (If, Loop, Scan) and of the model's own functions, each once."""
    return [
        *_nodes_with_subgraphs(model.graph.node),
        *(node for function in model.functions for node in _nodes_with_subgraphs(function.node)),
    ]


def _nodes_with_subgraphs(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes_with_subgraphs(graph.node)
