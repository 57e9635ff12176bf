"""An engine's report on its own layers: their number, the precision of their weights, and their members (pure).

A fused layer is named after its members, `/conv1/Conv + /relu/Relu`; a region that was compiled as a whole after its
ends, `{ForeignNode[/model/Cast.../model/Add]}`; a copy between layouts after its place, `Reformatting CopyNode for
Input Tensor 0 to /conv1/Conv + /relu/Relu`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from harness.backends.onnx_node_names import Node, NodeIndex, scoped_node

FUSED = "fused"
"""Layers that TensorRT compiled into one node of its own, whose inside the inspector does not show."""

_TYPES = {"Half": "fp16", "Float": "fp32", "BFloat16": "bf16", "Int8": "int8", "FP8": "fp8"}

_BYTES_BETWEEN = 3
"""An engine file holds its weights once: about 2 bytes each in fp16, 4 in fp32. Between the two lies the limit."""
_BYTES_FP32 = 4


def read_layers(engine: Any, json_format: Any) -> list[Mapping[str, Any]]:
    """The engine's layers as its inspector reports them; where it reports only a name, the layer has only that."""
    text = engine.create_engine_inspector().get_engine_information(json_format)
    layers = json.loads(text, strict=False)["Layers"]
    return [layer if isinstance(layer, dict) else {"Name": layer} for layer in layers]


def weight_precisions(layers: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Layers with weights by the precision of the weights, and `fused` layers."""
    census: Counter[str] = Counter()
    for layer in layers:
        weights = layer.get("Weights")
        if isinstance(weights, dict) and weights.get("Count"):
            kind = str(weights.get("Type"))
            census[_TYPES.get(kind, kind)] += 1
        elif "ForeignNode" in str(layer.get("Name")) or str(layer.get("LayerType")) == "Myelin":
            census[FUSED] += 1
    return dict(census)


def precision_of(
    census: Mapping[str, int], asked: str, engine_bytes: int, parameters: int | None, looked_up: int = 0
) -> str:
    """One word for the precision that an engine computes in.

    Where the inspector shows it: that of most layers with weights. Where everything is fused, the size of the file
    shows whether its weights are stored in two bytes or in four; it does not distinguish bf16 from fp16, nor TF32 from
    fp32.

    looked_up: of the parameters, those in tables (word embeddings), which compute nothing and may be stored in fp32:
    they are half of MiniLM's weights.
    """
    known = {name: count for name, count in census.items() if name != FUSED}
    # A fused node holds many layers: with as many fused nodes as other layers, the others do not represent the whole.
    if sum(known.values()) > census.get(FUSED, 0):
        most = max(known, key=lambda name: known[name])
        return asked if (asked, most) == ("tf32", "fp32") else most
    if not parameters:
        return "unknown: the engine is fused and its parameters are not known"
    if engine_bytes < _BYTES_BETWEEN * (parameters - looked_up) + _BYTES_FP32 * looked_up:
        return asked if asked in ("fp16", "bf16") else "fp16"
    return asked if asked in ("fp32", "tf32") else "fp32"


_REGION = re.compile(r"^\{?ForeignNode\[(?P<first>.*?)\.\.\.(?P<last>.*)\]\}?$")
_COPY = "Reformatting CopyNode"


def members_of(name: str) -> tuple[str, ...]:
    """Names of the members of a fused layer; of the two ends of a region; none for a copy."""
    if name.startswith(_COPY):
        return ()
    region = _REGION.match(name)
    return (region["first"], region["last"]) if region else tuple(name.split(" + "))


def nodes_of(name: str, graph: NodeIndex) -> tuple[Node, ...]:
    """The nodes of the exported graph in a layer; of a region, from its first end to its last in the file's order.

    Without a graph, the nodes that the members' names give; the two ends of a region do not show the nodes between.
    """
    region = _REGION.match(name)
    known = {
        member: graph.by_name.get(member) or (None if region else scoped_node(member)) for member in members_of(name)
    }
    nodes = [node for node in known.values() if node is not None]
    if not region or len(nodes) < 2:
        return tuple(nodes)
    first, last = sorted(graph.nodes.index(node) for node in nodes)
    return graph.nodes[first : last + 1]


def kind_of(name: str) -> str:
    """The nodes from a layer's name alone, which the inspector of every version reports."""
    if name.startswith(_COPY):
        return "Reformat"
    return "ForeignNode" if _REGION.match(name) else "Layer"
