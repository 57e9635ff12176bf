"""The profiler of openvino: its performance counters per node of the execution graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.backends.base import BackendJob, Batch
from harness.backends.onnx_node_names import (
    Node,
    NodeIndex,
    exported_graph,
    module_and_group,
)
from harness.backends.openvino.runtime import OpenVino
from harness.backends.profile_timing import (
    WARM_UP_RUNS,
    inference_span,
    load_and_warm_up,
    profile_of_layers,
    spans_alone,
)
from harness.core.schemas.profile_record import LayerRow, PartsProfile

TRACE = "nodes.trace.json"
_NOTES = (
    "OpenVINO reports no start times: the trace shows nodes one after the other. It reports nothing for nodes below "
    "1 µs.",
    "Its counters are means over every inference, so times are means over all runs here, not over typical ones.",
    "No FLOPs by node: kernels contain parts of several modules.",
)


class _ProfiledOpenVino(OpenVino):
    """The timed model, compiled with counters."""

    def properties(self) -> dict[str, Any]:
        """The usual properties, with counters."""
        return {**super().properties(), "PERF_COUNT": True}


@dataclass(frozen=True)
class Executed:
    """One node of the execution graph. members: the layers that it was made from, as the model names them."""

    name: str
    kind: str
    members: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    output_bytes: int


def profile(job: BackendJob, batches: Sequence[Batch], folder: Path, runs: int) -> PartsProfile:
    """Nodes of the execution graph.

    batches: rotated through while profiling. folder: where the trace goes. runs: inferences with counters and without.
    """
    job = replace(job, batches=batches)
    before = spans_alone(OpenVino(job), runs)
    spans, times, nodes = _profiled(job, runs)
    without = before + spans_alone(OpenVino(job), runs)
    graph, unknown = exported_graph(job)
    layers = layer_rows(nodes, times, graph)
    return profile_of_layers(
        job.case.case_id,
        layers,
        folder / TRACE,
        window_ns=round(sum(spans) / runs),
        plain_ns=round(sum(without) / len(without)),
        notes=(*_NOTES, *unknown),
    )


def _profiled(job: BackendJob, runs: int) -> tuple[list[int], dict[str, int], list[Executed]]:
    """(wall times in ns, node → ns, all nodes) of a model with counters that is closed afterwards."""
    backend = _ProfiledOpenVino(job)
    load_and_warm_up(backend)
    before = _averages_ns(backend)
    spans = [inference_span(backend, index) for index in range(runs)]
    times = mean_times_since(before, _averages_ns(backend), WARM_UP_RUNS, runs)
    return spans, times, [_executed(node) for node in backend.executed()]


def mean_times_since(before: Mapping[str, int], after: Mapping[str, int], earlier: int, runs: int) -> dict[str, int]:
    """Mean time of each node in ns over the last `runs` inferences, in the order of execution.

    before, after: means in ns over the first `earlier` inferences, and over all; each is known to 1 µs.
    """
    return {
        name: max(0, round((mean * (earlier + runs) - before.get(name, 0) * earlier) / runs))
        for name, mean in after.items()
    }


def layer_rows(nodes: Sequence[Executed], times: Mapping[str, int], graph: NodeIndex) -> tuple[LayerRow, ...]:
    """One row per node that ran, in the order of execution, placed by the names of the exported graph."""
    by_name = {node.name: node for node in nodes}
    return tuple(_row(by_name[name], spent, graph) for name, spent in times.items() if name in by_name)


def _row(node: Executed, spent_ns: int, graph: NodeIndex) -> LayerRow:
    members = list(dict.fromkeys(name.removesuffix("/WithoutBiases") for name in node.members))
    module, group = module_and_group([place for name in members if (place := _original(name, graph))], node.kind)
    return LayerRow(
        name=node.name,
        kind=node.kind,
        parent=module,
        self_ns=spent_ns,
        total_ns=spent_ns,
        output_shapes=node.shapes,
        output_bytes=node.output_bytes,
        members=tuple(members) if members != [node.name.removesuffix("/WithoutBiases")] else (),
        group=group,
    )


def _original(name: str, graph: NodeIndex) -> Node | None:
    """By the node's name, also as quantising an ONNX file changes it; the last node of a model has its output's."""
    return graph.by_name.get(name) or graph.by_tensor.get(name) or graph.by_name.get(name.removesuffix("_quant"))


def _averages_ns(backend: OpenVino) -> dict[str, int]:
    return {
        info.node_name: round(info.real_time.total_seconds() * 1e9)
        for info in backend.counters()
        if info.status == info.Status.EXECUTED
    }


def _executed(node: Any) -> Executed:
    info = {key: str(value.astype(str)) for key, value in node.get_rt_info().items()}
    outputs = [output for output in node.outputs() if output.get_partial_shape().is_static]
    return Executed(
        name=node.get_friendly_name(),
        kind=info["layerType"],
        members=tuple(filter(None, info.get("originalLayersNames", "").split(","))),
        shapes=tuple(tuple(output.get_shape()) for output in outputs),
        output_bytes=sum(
            output.get_tensor().get_element_type().size * math.prod(output.get_shape()) for output in outputs
        ),
    )
