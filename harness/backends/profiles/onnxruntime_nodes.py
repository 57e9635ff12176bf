"""The profiler of onnxruntime: its own per-node profile, from a session like the timed one that profiles itself."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.backends.base import Batch, Job
from harness.backends.onnxruntime import OnnxRuntime
from harness.backends.profiles.onnx_modules import Graph, exported_graph, fused, read_graph
from harness.backends.profiles.onnxruntime_events import last_runs, rows_of, runs_of
from harness.backends.profiles.plain import ready, span_of, spans_alone
from harness.core.schemas.profile_parts import PartsProfile
from harness.core.store import save_bytes
from harness.measure.middle import middle_mean

TRACE = "nodes.trace.json"
MAX_TRACED_RUNS = 10
"""Of a 12-layer encoder a run has some hundred events with many arguments; a trace of more runs opens slowly."""
_NO_FLOPS = "No FLOPs by node: kernels contain parts of several modules."
_MICROSECONDS = "ONNX Runtime reports whole microseconds: shorter nodes count as 0."


class Watched(OnnxRuntime):
    """The same session, but for the profile and a copy of the graph that it made of the file."""

    def __init__(self, job: Job, folder: Path) -> None:
        super().__init__(job)
        self._profile, self.graph = folder / "profile", folder / "optimised.onnx"

    def session_options(self) -> Any:
        """With profiling."""
        options = super().session_options()
        options.enable_profiling = True
        options.profile_file_prefix = str(self._profile)
        options.optimized_model_filepath = str(self.graph)
        options.log_severity_level = 3  # else it warns that the copy is for this machine alone
        return options


def profile(job: Job, batches: Sequence[Batch], folder: Path, runs: int) -> PartsProfile:
    """Nodes of the optimised graph on a CPU, kernels on a GPU.

    batches: rotated through while profiling. folder: where the trace goes. runs: inferences with profile and without.
    """
    job = replace(job, batches=batches)
    if job.case.device == "cpu":
        return _nodes(job, folder, runs)
    from harness.backends.profiles import onnxruntime_on_gpu  # noqa: PLC0415 - imports pycuda, which a CPU machine lacks

    return onnxruntime_on_gpu.profile(job, folder, runs)


def _nodes(job: Job, folder: Path, runs: int) -> PartsProfile:
    before = spans_alone(OnnxRuntime(job), runs)
    spans, events, kernels = _profiled(job, runs)
    after = spans_alone(OnnxRuntime(job), runs)
    original, unknown = exported_graph(job)
    members = fused(original, kernels) if original.nodes else {}
    save_bytes(folder / TRACE, json.dumps(last_runs(events, MAX_TRACED_RUNS)).encode())
    return PartsProfile(
        layers=rows_of(runs_of(events)[-runs:], members),
        operators=(),
        traces=(TRACE,),
        window_ns=middle_mean(spans),
        plain_ns=middle_mean(before + after),
        notes=(_NO_FLOPS, _MICROSECONDS, *unknown),
    )


def _profiled(job: Job, runs: int) -> tuple[list[int], list[Any], Graph]:
    """(wall times in ns, all events, the optimised graph) of a session that profiles itself and is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="inferometer-") as scratch:
        backend = Watched(job, Path(scratch))
        ready(backend)
        spans = [span_of(backend, index) for index in range(runs)]
        events = json.loads(backend.end_profiling().read_bytes())
        return spans, events, read_graph(backend.graph)
