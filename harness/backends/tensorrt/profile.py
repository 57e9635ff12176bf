"""The profiler of tensorrt: IProfiler's time per layer of the engine.

Source: TensorRT's API reference, IProfiler and IExecutionContext.report_to_profiler (8.5 and later).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import tensorrt as trt

from harness.backends.base import BackendJob, Batch
from harness.backends.onnx_node_names import NodeIndex, exported_graph, module_and_group
from harness.backends.profile_timing import inference_span, load_and_warm_up, plain_ns, profile_of_layers
from harness.backends.tensorrt.layers import kind_of, members_of, nodes_of
from harness.backends.tensorrt.runtime import TensorRt
from harness.core.errors import CaseError
from harness.core.schemas.profile_record import LayerRow, PartsProfile
from harness.profiling.reconcile import middle_mean, middle_runs

TRACE = "layers.trace.json"
_ALONE = (
    "TensorRT runs one layer after the other while it profiles, and reports no start times: the trace shows the same."
)
_NO_GRAPH = "Profiled without the CUDA graph that the case is timed with."
_NO_FLOPS = "No FLOPs by layer: layers contain parts of several modules."


class _Listener(trt.IProfiler):  # type: ignore[misc] # the library has no types
    """Keeps TensorRT's reports: one call for each layer of a run."""

    def __init__(self) -> None:
        trt.IProfiler.__init__(self)
        self.run: dict[str, int] = {}

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """TensorRT's callback."""
        self.run[layer_name] = self.run.get(layer_name, 0) + round(ms * 1e6)


def profile(job: BackendJob, batches: Sequence[Batch], folder: Path, runs: int) -> PartsProfile:
    """Layers of the engine, without a CUDA graph. CaseError where TensorRT reports none.

    batches: rotated through while profiling. folder: where the trace goes. runs: inferences with profiler and without.
    """
    backend = TensorRt(replace(job, batches=batches, options={**job.options, "graph": False}))
    load_and_warm_up(backend)
    plain = plain_ns(backend, runs)
    spans, watched = _watched(backend, runs)
    typical = [watched[place] for place in middle_runs(spans)]
    graph, why = exported_graph(job)
    layers = layer_rows(typical, graph)
    unassigned = why if any(row.parent is None and row.self_ns for row in layers if row.group != "layout") else ()
    backend.close()
    return profile_of_layers(
        job.case.case_id,
        layers,
        folder / TRACE,
        window_ns=middle_mean(spans),
        plain_ns=plain,
        notes=(_ALONE, *((_NO_GRAPH,) if job.options.get("graph") else ()), _NO_FLOPS, *unassigned),
    )


def layer_rows(runs: Sequence[Mapping[str, int]], graph: NodeIndex) -> tuple[LayerRow, ...]:
    """Layer → ns of each run → one row per layer, means, in the order of the engine."""
    return tuple(_row(name, round(sum(run.get(name, 0) for run in runs) / len(runs)), graph) for name in runs[0])


def _row(name: str, spent_ns: int, graph: NodeIndex) -> LayerRow:
    members = members_of(name)
    module, group = module_and_group(nodes_of(name, graph), kind_of(name))
    return LayerRow(
        name=name,
        kind=kind_of(name),
        parent=module,
        self_ns=spent_ns,
        total_ns=spent_ns,
        members=members if members != (name,) else (),
        group=group,
    )


def _watched(backend: TensorRt, runs: int) -> tuple[list[int], list[dict[str, int]]]:
    """(wall times in ns, layer → ns) of each run."""
    listener = _Listener()
    backend.context.profiler = listener
    backend.context.enqueue_emits_profile = False  # else each enqueue waits for its own work
    spans, times = [], []
    for index in range(runs):
        spans.append(inference_span(backend, index))
        listener.run = {}
        if not backend.context.report_to_profiler() or not listener.run:
            raise CaseError("TensorRT reported no layers.", "Build the engine again: `make engines FORCE=1`.")
        times.append(listener.run)
    return spans, times
