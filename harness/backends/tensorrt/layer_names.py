"""The members of TensorRT's layers, from their names (pure).

A fused layer is named after its members, `/conv1/Conv + /relu/Relu`; a region that was compiled as a whole after its
ends, `{ForeignNode[/model/Cast.../model/Add]}`; a copy between layouts after its place, `Reformatting CopyNode for
Input Tensor 0 to /conv1/Conv + /relu/Relu`.
"""

from __future__ import annotations

import re

from harness.backends.onnx_node_names import Node, NodeIndex, named

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
    known = {member: graph.by_name.get(member) or (None if region else named(member)) for member in members_of(name)}
    found = [node for node in known.values() if node is not None]
    if not region or len(found) < 2:
        return tuple(found)
    first, last = sorted(graph.nodes.index(node) for node in found)
    return graph.nodes[first : last + 1]


def kind_of(name: str) -> str:
    """The nodes from a layer's name alone, which the inspector of every version reports."""
    if name.startswith(_COPY):
        return "Reformat"
    return "ForeignNode" if _REGION.match(name) else "Layer"
