"""The provider of each node that ran: from the profile of a session's first run, never from the requested list
(pure)."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from harness.backends.base import Batch
from harness.backends.onnxruntime.session import session_options
from harness.backends.precision import floating_precision
from harness.core.schemas import NO_FLOATS, REMOVES_PADDING
from harness.zoo.file_graph import graph_of
from harness.zoo.quantised_files import BLOCKS, blocks_in_int8

CPU = "CPUExecutionProvider"
_KERNEL = "_kernel_time"
"""Ends the name of the event in which a node computes."""

MOST_NAMED = 3
"""Nodes that a row names; it counts the others."""

_ABOUT_SHAPES = frozenset(
    {
        *("Shape", "Size", "Gather", "Unsqueeze", "Squeeze", "Concat", "Cast", "Slice", "Range", "ConstantOfShape"),
        *("Equal", "Where", "Add", "Sub", "Mul", "Div", "Reshape", "Max", "Min", "ReduceProd", "Identity"),
    }
)
_SHAPE_BYTES = 1024
"""ONNX Runtime deliberately keeps nodes on the CPU that compute the extents of a tensor and not its content (its
GetCpuPreferredNodes). Such a node has one of these operators and a result of a few numbers; a batch of activations is
larger."""


@dataclass(frozen=True)
class Ran:
    """One node of a run. The profile's times are left out: on a GPU they are those of launching.

    element: element type of its first input, in ONNX Runtime's words.
    """

    provider: str
    operator: str
    output_bytes: int
    name: str = ""
    element: str = ""

    @property
    def computes_on_cpu(self) -> bool:
        """Whether data of the model was on the CPU for it."""
        small = self.operator in _ABOUT_SHAPES and self.output_bytes <= _SHAPE_BYTES
        return self.provider == CPU and not small


def profiled_nodes(events: Iterable[Mapping[str, Any]]) -> list[Ran]:
    """The nodes in a profile of exactly one run."""
    return [
        Ran(
            provider=str(event["args"]["provider"]),
            operator=str(event["args"]["op_name"]),
            output_bytes=int(event["args"].get("output_size", 0)),
            name=str(event["name"]).removesuffix(_KERNEL),
            element=next(iter((event["args"].get("input_type_shape") or [{}])[0]), ""),
        )
        for event in events
        if event.get("cat") == "Node" and str(event["name"]).endswith(_KERNEL)
    ]


def device_of(nodes: Iterable[Ran]) -> str:
    """`cuda`, or `cuda+cpu` where a node that computes ran on the CPU; `nothing` where no node was seen to run."""
    ran = list(nodes)
    if not ran:
        return "nothing"
    return "cuda+cpu" if any(node.computes_on_cpu for node in ran) else "cuda"


def node_counts(nodes: Iterable[Ran]) -> dict[str, str | int | float | bool]:
    """Number of nodes by provider, `nodes_cuda`; whether padding was removed; and the operators and nodes that computed
    on the CPU, where there are any."""
    ran = list(nodes)
    facts: dict[str, str | int | float | bool] = {}
    if any(node.operator == "RemovePadding" for node in ran):
        facts[REMOVES_PADDING] = True
    for provider in sorted({node.provider for node in ran}):
        short = provider.removesuffix("ExecutionProvider").lower()
        facts[f"nodes_{short}"] = sum(node.provider == provider for node in ran)
    copies = sum(node.operator.startswith("Memcpy") for node in ran)
    if copies:
        facts["nodes_copying"] = copies
    elsewhere = [node for node in ran if node.computes_on_cpu]
    if elsewhere:
        facts["computed_on_cpu"] = "+".join(sorted({node.operator for node in elsewhere}))
        facts["nodes_computed_on_cpu"] = _named([node.name for node in elsewhere])
    return facts


def _named(nodes: Sequence[str]) -> str:
    """`conv1_quant, conv2_quant, conv3_quant and 50 more`."""
    more = len(nodes) - MOST_NAMED
    return ", ".join(nodes[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


_INTEGER = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QAttention",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    }
)
_FLOATING = frozenset(
    {
        "Attention",
        "Conv",
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "Gemm",
        "MatMul",
        "MultiHeadAttention",
        "NhwcFusedConv",
        "PackedAttention",
    }
)
"""Kernels that do the arithmetic of a network; all others move, scale or normalise their results."""
_CARRYING = frozenset(("Cast", "Identity"))


def nodes_that_run(file: Path, feeds: Batch, threads: int) -> list[Ran]:
    """The nodes of one run on the CPU, from a second session that profiles itself. Outside the clock."""
    with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
        options = session_options(threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        session.run(None, dict(feeds))
        return profiled_nodes(json.loads(Path(session.end_profiling()).read_bytes()))


def computing_kernels(file: Path, batch: Batch, threads: int) -> dict[str, int]:
    """Kernels of one run by precision: of those that do the arithmetic, else of all that compute in floating point."""
    nodes = [node for node in nodes_that_run(file, batch, threads) if node.operator not in _CARRYING]
    in_int8 = blocks_in_int8(graph_of(file)) if any(node.operator == BLOCKS for node in nodes) else 0
    return kernels_by_type(nodes, in_int8) or dict(
        Counter(precision for node in nodes if (precision := _floats(node)) != NO_FLOATS)
    )


def kernels_by_type(nodes: Iterable[Ran], in_int8: int = 0) -> dict[str, int]:
    """How many of the nodes that do the arithmetic compute in int8, and how many in each type of floats.

    in_int8: how many of the products with weights in blocks multiply in int8, which no profile shows.
    """
    ran = list(nodes)
    blocks = [node for node in ran if node.operator == BLOCKS]
    integers = [node for node in ran if node.operator in _INTEGER] + blocks[:in_int8]
    floats = [node for node in ran if node.operator in _FLOATING] + blocks[in_int8:]
    return dict(Counter(["int8" for _ in integers] + [_floats(node) for node in floats]))


def _floats(node: Ran) -> str:
    return floating_precision({node.element: 1})


def is_quantised(census: Mapping[str, int]) -> bool:
    """True where a file has more weights of 8 bits than floating-point weights."""
    integers = census.get("int8", 0) + census.get("uint8", 0)
    return integers > sum(census.get(name, 0) for name in ("float", "float16", "bfloat16"))
