"""What TensorRT's layers are made of, by their names (pure).

A fused layer is named after its members, `/conv1/Conv + /relu/Relu`; a region that was compiled as a whole after its
ends, `{ForeignNode[/model/Cast.../model/Add]}`; a copy between layouts after where it stands, `Reformatting CopyNode
for Input Tensor 0 to /conv1/Conv + /relu/Relu`.
"""

from __future__ import annotations

import re

from harness.backends.profiles.onnx_modules import Graph, Node

_REGION = re.compile(r"^\{?ForeignNode\[(?P<first>.*?)\.\.\.(?P<last>.*)\]\}?$")
_COPY = "Reformatting CopyNode"


def members_of(name: str) -> tuple[str, ...]:
    """Names of what a layer was fused from; the two ends of a region; none of a copy."""
    if name.startswith(_COPY):
        return ()
    region = _REGION.match(name)
    return (region["first"], region["last"]) if region else tuple(name.split(" + "))


def nodes_of(name: str, graph: Graph) -> tuple[Node, ...]:
    """The nodes of the exported graph in a layer; of a region, from its first end to its last in the file's order."""
    found = [graph.by_name[member] for member in members_of(name) if member in graph.by_name]
    if not _REGION.match(name) or len(found) < 2:
        return tuple(found)
    first, last = sorted(graph.nodes.index(node) for node in found)
    return graph.nodes[first : last + 1]


def kind_of(name: str) -> str:
    """What the inspector of every version tells by the name alone."""
    if name.startswith(_COPY):
        return "Reformat"
    return "ForeignNode" if _REGION.match(name) else "Layer"
