"""Every node of an ONNX model, those of subgraphs and of functions too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def all_nodes(model: Any) -> list[Any]:
    """Of the graph, of its subgraphs (If, Loop, Scan) and of the model's own functions, each once."""
    return [*_of(model.graph.node), *(node for function in model.functions for node in _of(function.node))]


def _of(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _of(graph.node)
