"""Maps names in an exported ONNX file to modules of the model, and kernels to the nodes that they fused.

PyTorch's exporter writes the stack of modules into each node's metadata (`pkg.torch.onnx.name_scopes` and
`pkg.torch.onnx.class_hierarchy`, lists that end with the operator itself). Rewriting may leave a convolution with the
scope of the normalisation that was folded into it; the name of its weight is then more reliable. The older
exporter writes the scopes into the names alone: `/layer1/layer1.0/conv1/Conv`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.backends.base import BackendJob
from harness.backends.profile_timing import ROOT
from harness.core.schemas import Artifact
from harness.core.schemas.profile_record import LayerGroup
from harness.profiling.layers import group_of

_SCOPES, _CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
_ABOUT_SHAPES = frozenset({"Shape", "Size", "Constant", "ConstantOfShape", "Range"})
_PRODUCTS = ("Conv", "Gemm", "MatMul", "Attention")
_AGAIN = re.compile(r"_\d+$")
"""The older exporter numbers repeated operators of one scope: `Add`, `Add_1`."""


@dataclass(frozen=True)
class Node:
    """One node of an exported file.

    module: path of the module that it came from, ROOT for the model itself; None where the file does not have it.
    around: names and class names of that module and of the modules around it.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    module: str | None = None
    around: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Its operator and its module's class, for group_of()."""
        return (self.operator, *self.around[-1:])


@dataclass(frozen=True)
class NodeIndex:
    """The nodes of a file, findable by their names and by the tensors that they make."""

    nodes: tuple[Node, ...]
    by_name: Mapping[str, Node] = field(init=False)
    by_tensor: Mapping[str, Node] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {node.name: node for node in self.nodes})
        object.__setattr__(self, "by_tensor", {name: node for node in self.nodes for name in node.outputs})


def read_graph(file: Path) -> NodeIndex:
    """The nodes of an ONNX file, without its weights. ModuleNotFoundError where Python has no `onnx`."""
    import onnx  # noqa: PLC0415 - TensorRT's interpreter need not have it

    graph = onnx.load(str(file), load_external_data=False).graph
    weights = frozenset(initializer.name for initializer in graph.initializer)
    return NodeIndex(tuple(_node(node, weights) for node in graph.node))


def scoped_node(name: str) -> Node | None:
    """Scopes and operator from the older exporter's name of a node; None for any other name."""
    if not name.startswith("/"):
        return None
    *scopes, operator = name[1:].split("/")
    path: list[str] = []
    for scope in scopes:
        if path and scope.startswith(f"{path[-1]}."):  # a list's member repeats the list's own name
            path.pop()
        path.append(scope)
    around = tuple(word for scope in path for word in scope.split("."))
    # These names have no classes: `layer.0.output` means BertOutput.
    pairs = (f"{outer}.{inner}" for outer, inner in pairwise(path))
    return Node(name, _AGAIN.sub("", operator), (), (), ".".join(path) or ROOT, (*around, *pairs))


def exported_graph(job: BackendJob) -> tuple[NodeIndex, tuple[str, ...]]:
    """The graph that a case's file was made from, and the reason where it is empty.

    The fp32 file's for every precision: the others are made from it and keep the names of nodes, not all metadata.
    """
    artifact = _file_of(job)
    if artifact is None:
        return NodeIndex(()), ("The export has no fp32 file, whose names contain the modules.",)
    try:
        return read_graph(job.folder / artifact.path), ()
    except ModuleNotFoundError as error:
        return NodeIndex(()), (f"Layers have no modules: this Python has no {error.name}.",)


def _file_of(job: BackendJob) -> Artifact | None:
    """The fp32 file of the form that the case's library reads; None where only another form has an fp32 file."""
    forms, variant = job.export.onnx_variants, job.options.get("variant")
    used = f"{job.case.precision}-{variant}"
    if job.engine is not None:
        used = next((form for form, file in forms.items() if file.path == job.engine.request.onnx), "")
    if used in forms:
        return forms.get(f"fp32-{used.partition('-')[2]}")
    return job.export.onnx.get("fp32")


def _node(proto: Any, weights: Collection[str]) -> Node:
    properties = {prop.key: prop.value for prop in proto.metadata_props}
    scopes, classes = _split_list(properties.get(_SCOPES)), _split_list(properties.get(_CLASSES))
    weighing = [name.removesuffix(".weight") for name in proto.input if name in weights and name.endswith(".weight")]
    module = weighing[0] if weighing else scopes[-2] or ROOT if len(scopes) > 1 and not scopes[0] else None
    around = tuple(word for name in scopes[:-1] for word in name.split(".")[-1:] if word)
    # A fused kernel has its own name, and its output has the name of the last member's.
    by_name = (
        None if scopes else scoped_node(proto.name) or scoped_node("".join(proto.output[:1]).removesuffix("_output_0"))
    )
    return Node(
        name=proto.name,
        operator=proto.op_type,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        module=by_name.module if by_name else module,
        around=by_name.around if by_name else (*around, *(name.rpartition(".")[2] for name in classes[:-1])),
    )


def _split_list(text: str | None) -> list[str]:
    return [] if text is None else [str(name) for name in ast.literal_eval(text)]


def fused_nodes(original: NodeIndex, kernels: NodeIndex) -> dict[str, tuple[Node, ...]]:
    """Name of each kernel of an optimised graph → the original nodes that it computes, in their order.

    Backwards from the tensors that a kernel makes, up to tensors that other kernels make or to a node that is the
    kernel itself; then each node that no kernel claimed goes to the kernel that made the latest of its inputs, such as
    a sum or an activation that was fused after a convolution without a tensor name of its own.
    """
    made = {kernel.name: _tensors_of(kernel, original) for kernel in kernels.nodes}
    boundary = {tensor for tensors in made.values() for tensor in tensors}
    owner: dict[str, str] = {}
    for kernel in kernels.nodes:
        if group_of((kernel.operator,)) == "layout":
            continue  # it passes on another kernel's result
        for node in _nodes_behind(original, kernel.operator, made[kernel.name], boundary):
            owner.setdefault(node.name, kernel.name)
    order = {kernel.name: place for place, kernel in enumerate(kernels.nodes)}
    for node in original.nodes:
        if node.name in owner or node.operator in _ABOUT_SHAPES:
            continue
        sources = [original.by_tensor[name].name for name in node.inputs if name in original.by_tensor]
        owners = [owner[source] for source in sources if source in owner]
        if owners:
            owner[node.name] = max(owners, key=order.__getitem__)
    nodes_of: dict[str, list[Node]] = {kernel.name: [] for kernel in kernels.nodes}
    for node in original.nodes:
        if node.name in owner:
            nodes_of[owner[node.name]].append(node)
    return {name: tuple(nodes) for name, nodes in nodes_of.items()}


def nodes_in_kernel_names(kernels: NodeIndex) -> dict[str, tuple[Node, ...]]:
    """As fused_nodes, for kernels whose own names contain their module; the other nodes that they fused are unknown."""
    return {kernel.name: (kernel,) for kernel in kernels.nodes if kernel.module is not None}


def _tensors_of(kernel: Node, original: NodeIndex) -> tuple[str, ...]:
    """Original tensors that a kernel makes: by its outputs' names, or by its own where layouts renamed those."""
    same = tuple(name for name in kernel.outputs if name in original.by_tensor)
    renamed = kernel.name.removesuffix("_nchwc")
    if same or renamed not in original.by_tensor:
        return same
    return (renamed,)


def _nodes_behind(
    original: NodeIndex, operator: str, tensors: Sequence[str], boundary: Collection[str]
) -> Iterator[Node]:
    waiting, seen = list(tensors), set(tensors)
    while waiting:
        node = original.by_tensor[waiting.pop()]
        yield node
        if node.operator == operator:
            continue
        fresh = [
            name for name in node.inputs if name in original.by_tensor and name not in boundary and name not in seen
        ]
        seen.update(fresh)
        waiting += fresh


def main_node(members: Sequence[Node], operator: str = "") -> Node | None:
    """The member that identifies a kernel: a product before all others, then the member that the kernel is named after,
    then the last. None where there are no members."""
    named = [node for node in members if node.operator in operator]
    for candidates in ([node for node in members if _is_product(node)][:1], named, members):
        if candidates:
            return candidates[-1]
    return None


def _is_product(node: Node) -> bool:
    """Also the bias added to a product: it keeps the module's name where the product was rewritten."""
    return node.operator in _PRODUCTS or node.around[-1:] == ("Linear",)


def module_and_group(members: Sequence[Node], operator: str) -> tuple[str | None, LayerGroup]:
    """(module, group) of a kernel from the nodes that it fused; its own operator counts where these are unknown.

    A kernel that fused the products of several modules belongs to the module that contains them all, and to their group
    if it is the same.
    """
    main = main_node(members, operator)
    if main is None:
        # No node of the export: a library that changes the layout puts its own Transposes around (ONNX Runtime's NHWC).
        return None, "layout" if operator == "Transpose" else group_of((operator,))
    products = [node for node in members if _is_product(node)]
    modules = {node.module for node in products if node.module is not None}
    if len(modules) > 1:
        groups = {group_of(node.kinds, node.around) for node in products}
        return _common(modules), groups.pop() if len(groups) == 1 else "other"
    return main.module, group_of((operator, *main.kinds), main.around)


def _common(modules: Collection[str]) -> str:
    """The module that contains all of these."""
    shared = []
    for names in zip(*(module.split(".") for module in modules), strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared) or ROOT
