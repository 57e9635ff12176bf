"""The profilers of PyTorch's three backends: modules where there are modules, operators everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from harness.backends.base import BackendJob, Batch
from harness.backends.profile_timing import ready, span_of
from harness.backends.profile_tree import spans_of_run
from harness.backends.torch.base import TorchBackend
from harness.backends.torch.compile import TorchCompile
from harness.backends.torch.eager import TorchEager
from harness.backends.torch.profile_modules import nvtx_ranges, record, rows_of
from harness.backends.torch.profile_operators import TRACE, ProfilerRanges, operators, with_kernels
from harness.backends.torch.script import TorchScript
from harness.core.schemas.profile_record import PartsProfile
from harness.profiling.launch_gaps import save_trace
from harness.profiling.reconcile import middle_mean, middle_runs

MODULES_TRACE = "modules.trace.json"

_FLOPS = "FLOPs are 2 a multiply-add of products and convolutions, attention's included; all else counts nothing."
_EVENTS = (
    "Self is what a module's own kernels took; in the stream it takes from where the module begins to where it ends, "
    "waits for launches and for hooks included."
)
_NO_GRAPH = "Profiled without the CUDA graph that the case is timed with: a graph has no modules."
_SCRIPT = "No layers: TorchScript inlined the modules into one graph, so only operators are known."
_COMPILE = "No layers: Inductor fuses across modules, so only its kernels and the operators that it calls are known."


def eager(job: BackendJob, batches: Sequence[Batch], folder: Path, runs: int) -> PartsProfile:
    """Modules by hooks and operators by torch.profiler, each in passes of its own.

    batches: rotated through while profiling. folder: where traces go. runs: inferences of a pass.
    """
    backend = TorchEager(replace(job, batches=batches, options={**job.options, "graph": False}))
    ready(backend)
    recorded = record(backend, backend.module, runs)
    typical = middle_runs(recorded.spans_ns)
    layers = rows_of(backend.module, backend.infer, [recorded.marks[run] for run in typical])
    save_trace(folder / MODULES_TRACE, job.case.case_id, spans_of_run(recorded.marks[typical[0]]))
    on_gpu = backend.stream is not None
    with nvtx_ranges(backend.module, ProfilerRanges()) if on_gpu else nullcontext():
        found = operators(backend, folder, runs)
    if on_gpu:
        layers = with_kernels(layers, found.events, found.runs)
    backend.close()
    hooks = f"Layers are timed by hooks on {len(layers)} modules, operators in passes after that."
    return PartsProfile(
        layers=layers,
        operators=found.rows,
        traces=(MODULES_TRACE, TRACE),
        window_ns=middle_mean(recorded.spans_ns),
        plain_ns=middle_mean(recorded.plain_ns),
        notes=(*((_NO_GRAPH,) if job.options.get("graph") else ()), *((_EVENTS,) if on_gpu else ()), _FLOPS, hooks),
    )


def script(job: BackendJob, batches: Sequence[Batch], folder: Path, runs: int) -> PartsProfile:
    """Operators alone, arguments as of eager()."""
    return _operators_only(TorchScript(replace(job, batches=batches)), folder, runs, _SCRIPT)


def compiled(job: BackendJob, batches: Sequence[Batch], folder: Path, runs: int) -> PartsProfile:
    """Operators and Inductor's kernels, arguments as of eager().

    On a CPU, kernels appear in a profile only where they are compiled so. That is not the timed code, so it has a
    cache of its own and is never taken for an earlier process's work.
    """
    torch._inductor.config.cpp.enable_kernel_profile = True
    backend = TorchCompile(replace(job, batches=batches, cache=job.cache / "profiled"))
    return _operators_only(backend, folder, runs, _COMPILE)


def _operators_only(backend: TorchBackend, folder: Path, runs: int, why: str) -> PartsProfile:
    ready(backend)
    before = [span_of(backend, index) for index in range(runs)]
    found = operators(backend, folder, runs)
    after = [span_of(backend, index) for index in range(runs)]
    backend.close()
    return found.alone(middle_mean(before + after), why)
