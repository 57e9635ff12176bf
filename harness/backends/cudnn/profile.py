"""The profiler of cudnn: the time of each step of the layer plan, alone, on the values of an inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.backends.base import BackendJob, Batch
from harness.backends.cudnn.layer_plan import Convolution, LayerStep
from harness.backends.cudnn.runtime import CuDnn
from harness.backends.onnx_node_names import NodeIndex, exported_graph, module_and_group
from harness.backends.profile_timing import load_and_warm_up, plain_ns, profile_of_layers
from harness.core.schemas.profile_record import LayerRow, PartsProfile

TRACE = "layers.trace.json"
_ALONE = (
    "Each step was timed alone, as the median of CUDA graphs of five launches: what it reads is in the cache more "
    "often than in an inference, and gaps between steps are in no row."
)
_NO_FLOPS = "No FLOPs by layer: layers contain parts of several modules."


def profile(job: BackendJob, batches: Sequence[Batch], folder: Path, runs: int) -> PartsProfile:
    """Steps of the plan in their order. batches: rotated through for the plain latency. folder: where the trace goes.
    runs: inferences of the plain latency.
    """
    backend = CuDnn(replace(job, batches=batches))
    load_and_warm_up(backend)
    plain = plain_ns(backend, runs)
    spent = backend.step_times()
    graph, why = exported_graph(job)
    layers = tuple(_row(step, ns, graph) for step, ns in zip(backend.plan.steps, spent, strict=True))
    backend.close()
    return profile_of_layers(
        job.case.case_id,
        layers,
        folder / TRACE,
        window_ns=sum(row.self_ns for row in layers),
        plain_ns=plain,
        notes=(_ALONE, _NO_FLOPS, *why),
    )


def _row(step: LayerStep, spent_ns: int, graph: NodeIndex) -> LayerRow:
    kind = "Conv" if isinstance(step, Convolution) else {"max": "MaxPool", "average": "GlobalAveragePool"}[step.kind]
    nodes = [node for name in step.nodes if (node := graph.by_name.get(name) or graph.by_tensor.get(name)) is not None]
    module, group = module_and_group(nodes, kind)
    return LayerRow(
        name=" + ".join(step.nodes),
        kind=kind,
        parent=module,
        self_ns=spent_ns,
        total_ns=spent_ns,
        members=step.nodes if len(step.nodes) > 1 else (),
        group=group,
    )
