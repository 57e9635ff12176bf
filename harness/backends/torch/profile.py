"""The profilers of PyTorch's three backends and two decoders: modules where there are modules, operators everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from harness.backends.base import BackendJob, Batch
from harness.backends.decoder import DecoderJob, DecoderPhase
from harness.backends.profile_timing import TimedPass, inference_span, load_and_warm_up, spans_of_run
from harness.backends.torch.base import TorchEager
from harness.backends.torch.compile import TorchCompile
from harness.backends.torch.decoder import EagerDecoder
from harness.backends.torch.decoder_compile import CompiledDecoder
from harness.backends.torch.profile_modules import module_rows, nvtx_ranges, record
from harness.backends.torch.profile_operators import TRACE, ProfilerRanges, operators, with_kernels
from harness.backends.torch.script import TorchScript
from harness.core.schemas.profile_record import GenerationPhase, LayerRow, PartsProfile
from harness.profiling.launch_gaps import save_trace
from harness.profiling.reconcile import middle_mean, middle_runs

MODULES_TRACE = "modules.trace.json"

_NO_FLOPS = "No FLOPs by layer: the module does not run below PyTorch's counter."
_FLOPS = "FLOPs are 2 a multiply-add of products and convolutions, attention's included; all else counts nothing."
_EVENTS = (
    "Self is what a module's own kernels took; in the stream it takes from where the module begins to where it ends, "
    "waits for launches and for hooks included."
)
_NO_GRAPH = "Profiled without the CUDA graph that the case is timed with: a graph has no modules."
_SCRIPT = "No layers: TorchScript inlined the modules into one graph, so only operators are known."
_EAGER_PREFILL = "The prefill of this backend is eager: only its decode step is compiled."
_COMPILE = "No layers: Inductor fuses across modules, so only its kernels and the operators that it calls are known."


def eager(job: BackendJob, batches: Sequence[Batch], folder: Path, runs: int) -> PartsProfile:
    """Modules by hooks and operators by torch.profiler, each in passes of its own.

    batches: rotated through while profiling. folder: where traces go. runs: inferences of a pass.
    """
    backend = TorchEager(replace(job, batches=batches, options={**job.options, "graph": False}))
    load_and_warm_up(backend)
    notes = (_NO_GRAPH,) if job.options.get("graph") else ()
    return _modules_and_operators(backend, backend.module, folder, runs, notes)


def eager_decoder(
    job: DecoderJob, prompts: NDArray[np.int64], phase: GenerationPhase, folder: Path, runs: int
) -> PartsProfile:
    """Modules and operators of one phase. prompts: (samples, length), taken in turn. folder, runs: as in eager()."""
    decoder = EagerDecoder(job)
    backend = DecoderPhase(decoder, prompts, phase)
    load_and_warm_up(backend)
    return _modules_and_operators(backend, decoder.module, folder, runs)


def compiled_decoder(
    job: DecoderJob, prompts: NDArray[np.int64], phase: GenerationPhase, folder: Path, runs: int
) -> PartsProfile:
    """The prefill, which is eager, by modules and operators; the compiled step by operators. As of eager_decoder()."""
    torch._inductor.config.cpp.enable_kernel_profile = True
    decoder = CompiledDecoder(replace(job, cache=job.cache / "profiled"))
    backend = DecoderPhase(decoder, prompts, phase)
    if phase == "decode":
        return _operators_only(backend, folder, runs, _COMPILE)
    load_and_warm_up(backend)
    return _modules_and_operators(backend, decoder.module, folder, runs, (_EAGER_PREFILL,))


def _modules_and_operators(
    backend: TimedPass, module: nn.Module, folder: Path, runs: int, notes: Sequence[str] = ()
) -> PartsProfile:
    """Modules and operators of a backend that is ready and calls `module` eagerly; closes the backend."""
    recorded = record(backend, module, runs)
    typical = middle_runs(recorded.spans_ns)
    layers = module_rows(module, backend, [recorded.marks[run] for run in typical])
    save_trace(folder / MODULES_TRACE, folder.name, spans_of_run(recorded.marks[typical[0]]))
    on_gpu = backend.on_gpu
    with nvtx_ranges(module, ProfilerRanges()) if on_gpu else nullcontext():
        profiled = operators(backend, folder, runs)
    if on_gpu:
        layers = with_kernels(layers, profiled.events, profiled.runs)
    backend.close()
    hooks = f"Layers are timed by hooks on {len(layers)} modules, operators in passes after that."
    return PartsProfile(
        layers=layers,
        operators=profiled.rows,
        traces=(MODULES_TRACE, TRACE),
        window_ns=middle_mean(recorded.spans_ns),
        plain_ns=middle_mean(recorded.plain_ns),
        operator_gaps=profiled.gaps,
        notes=(*notes, *((_EVENTS,) if on_gpu else ()), _FLOPS if _counted(layers) else _NO_FLOPS, hooks),
    )


def _counted(layers: Sequence[LayerRow]) -> bool:
    return any(layer.flops is not None for layer in layers)


def script(job: BackendJob, batches: Sequence[Batch], folder: Path, runs: int) -> PartsProfile:
    """Operators alone; arguments as in eager()."""
    return _operators_only(TorchScript(replace(job, batches=batches)), folder, runs, _SCRIPT)


def compiled(job: BackendJob, batches: Sequence[Batch], folder: Path, runs: int) -> PartsProfile:
    """Operators and Inductor's kernels; arguments as in eager().

    On a CPU, kernels appear in a profile only where they are compiled so. That is not the timed code, so it has a
    cache of its own and is never taken for an earlier process's work.
    """
    torch._inductor.config.cpp.enable_kernel_profile = True
    backend = TorchCompile(replace(job, batches=batches, cache=job.cache / "profiled"))
    return _operators_only(backend, folder, runs, _COMPILE)


def _operators_only(backend: TimedPass, folder: Path, runs: int, why: str) -> PartsProfile:
    load_and_warm_up(backend)
    before = [inference_span(backend, index) for index in range(runs)]
    profiled = operators(backend, folder, runs)
    after = [inference_span(backend, index) for index in range(runs)]
    backend.close()
    return profiled.alone(middle_mean(before + after), why)
