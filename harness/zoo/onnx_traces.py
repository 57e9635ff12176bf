"""Remove from an exported ONNX file what names the machine of the export and changes nothing that it computes.

The dynamo exporter notes with each node where in the source it came from, with whole paths: the same commit would give
another file in each checkout, and a file that is passed on would tell the owner's folders.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

KEPT = frozenset(("namespace", "pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.name_scopes"))
"""Notes that say which module of the model a node belongs to: layers are found by them."""


def strip_traces(path: Path) -> None:
    """Rewrite the file at path without stack traces, doc strings and the like; weights beside it stay as they are."""
    model = onnx.load(path, load_external_data=False)
    for record in (model, *_parts(model)):
        for field, _ in record.ListFields():
            if field.name == "doc_string":
                record.ClearField("doc_string")
            elif field.name == "metadata_props":
                kept = [(entry.key, entry.value) for entry in record.metadata_props if entry.key in KEPT]
                record.ClearField("metadata_props")
                for key, value in kept:
                    record.metadata_props.add(key=key, value=value)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _parts(model: Any) -> Iterator[Any]:
    """The graph, functions, nodes, values and tensors of a model, of subgraphs too."""
    yield from _of_graph(model.graph)
    for function in model.functions:
        yield from (function, *function.value_info)
        yield from _of_nodes(function.node)


def _of_graph(graph: Any) -> Iterator[Any]:
    yield from (graph, *graph.input, *graph.output, *graph.value_info, *graph.initializer)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield attribute
            for graph in (attribute.g, *attribute.graphs):
                yield from _of_graph(graph)
