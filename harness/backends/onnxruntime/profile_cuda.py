"""The profiler of onnxruntime on a GPU: kernels that CUPTI reports to torch.profiler, and nodes that launched them.

ONNX Runtime's own profile shows when each node was launched, not how long the GPU took for it. CUPTI watches all
launches of a process: first the case as it is timed, with its CUDA graph, then a session without a graph, whose
launches are those of its nodes. Kernels take as long in both; the cost of profiling is reported for the first.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.backends.base import BackendJob
from harness.backends.onnx_node_names import (
    exported_graph,
    fused_nodes,
    nodes_in_kernel_names,
    read_graph,
)
from harness.backends.onnxruntime.cuda import OnnxRuntimeOnGpu
from harness.backends.onnxruntime.placement import Ran
from harness.backends.onnxruntime.profile_cpu import LEAST, Event, layer_rows, profiled_runs, with_gpu_times
from harness.backends.onnxruntime.session import SessionRequest
from harness.backends.profile_timing import load_and_warm_up, plain_ns
from harness.backends.torch.profile_operators import TRACE, operators
from harness.core.errors import StorageError, reason
from harness.core.schemas.profile_record import LayerRow, PartsProfile

NODES_TRACE = "nodes.pt.trace.json"
_NO_GRAPH = "Nodes were profiled without the CUDA graph that the case is timed with: a graph has no nodes."
_NO_FLOPS = "No FLOPs by node: kernels contain parts of several modules."


class _ProfiledOnGpu(OnnxRuntimeOnGpu):
    """The timed session with a profile of all its runs and a copy of the graph that it made from the file."""

    def __init__(self, job: BackendJob, folder: Path) -> None:
        super().__init__(replace(job, options={**job.options, "graph": False}))
        self._folder, self.graph = folder, folder / "optimised.onnx"

    def events(self) -> tuple[Sequence[Event], int]:
        """The profile, and when its times begin, in ns of the Unix epoch. Nothing more is profiled."""
        begin = int(self._session.get_profiling_start_time_ns())
        return json.loads(Path(self._session.end_profiling()).read_bytes()), begin

    def _wanted(self, folder: Path) -> SessionRequest:
        return replace(super()._wanted(self._folder), graph=self.graph)

    def _nodes_of_first_run(self) -> Sequence[Ran]:
        return ()


@dataclass(frozen=True)
class _Nodes:
    """layers: empty where they are unknown, and `notes` say why."""

    layers: tuple[LayerRow, ...]
    notes: tuple[str, ...]


def profile(job: BackendJob, folder: Path, runs: int) -> PartsProfile:
    """Kernels of the case as it is timed, in its CUDA graph if it has one, and nodes without a graph."""
    backend = OnnxRuntimeOnGpu(job)
    load_and_warm_up(backend)
    plain = plain_ns(backend, runs)
    profiled = operators(backend, folder, runs)
    backend.close()
    nodes = _nodes(job, folder, runs)
    if not nodes.layers:
        return profiled.alone(plain, *nodes.notes)
    return PartsProfile(
        layers=nodes.layers,
        operators=profiled.rows,
        traces=(TRACE, NODES_TRACE),
        window_ns=profiled.window_ns,
        plain_ns=plain,
        notes=(*((_NO_GRAPH,) if job.options.get("graph") else ()), _NO_FLOPS, *nodes.notes),
    )


def _nodes(job: BackendJob, folder: Path, runs: int) -> _Nodes:
    try:
        return _profiled_nodes(job, folder, runs)
    except StorageError:
        raise
    except Exception as error:  # kernels are still listed, and this reason is shown with them
        return _Nodes((), (f"No layers: {reason(error)}",))


def _profiled_nodes(job: BackendJob, folder: Path, runs: int) -> _Nodes:
    original, unknown = exported_graph(job)
    with tempfile.TemporaryDirectory(prefix="inferometer-") as scratch:
        backend = _ProfiledOnGpu(job, Path(scratch))
        load_and_warm_up(backend)
        watched = operators(backend, folder, runs, NODES_TRACE)
        events, begin = backend.events()
        backend.close()
        kernels = read_graph(backend.graph)
    placed, share = with_gpu_times(events, begin, watched.events, watched.base_ns)
    if share < LEAST:
        return _Nodes((), (f"No layers: only {share:.0%} of the GPU's time was launched within a node.",))
    named_nodes = fused_nodes(original, kernels) if original.nodes else {}
    members = nodes_in_kernel_names(kernels) | {name: nodes for name, nodes in named_nodes.items() if nodes}
    return _Nodes(layer_rows(profiled_runs(placed)[-watched.runs :], members), unknown)
