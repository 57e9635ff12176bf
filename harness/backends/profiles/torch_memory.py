"""What one pass of a PyTorch backend allocates and frees, as PyTorch's own allocators tell."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from harness.backends.base import Job
from harness.backends.profiles.torch_memory_cuda import Gpu, allocated_before, on_gpu
from harness.backends.profiles.torch_memory_events import DEVICE_TYPES, Watched, watched
from harness.backends.torch_base import TorchBackend
from harness.core.schemas.profile_memory import Category, MemoryProfile

MAX_BLOCKS = 20
MAX_CHANGES = 20_000
"""Of the timeline in the record; a pass of a 24-layer encoder has some thousand."""

_OF_THE_PASS: tuple[Category, ...] = ("activations", "temporaries", "unattributed")

_CPU = "measured: allocations less frees of PyTorch's CPU allocator in one warm pass (torch.profiler)"
_CUDA = "measured: allocations less frees of PyTorch's CUDA allocator in one warm pass without a CUDA graph"
_OUTSIDE = "held: a CPU allocator does not report what was there before, and libraries' own buffers are not PyTorch's"
_UNNAMED = "unattributed: the profiler names no operator there, so activations and temporaries are not separated"
_THINNED = f"timeline: only the highest of several changes is kept, {MAX_CHANGES:,} at most are kept"


def memory_profile(job: Job, make: Callable[[Job], TorchBackend], folder: Path) -> MemoryProfile:
    """One warm pass of the case's first batch. make: the backend of a job; folder: where a GPU's snapshot goes.

    A CUDA graph owns its memory from its recording on, so the pass runs without one.
    """
    running = make(dataclasses.replace(job, options=_without_graph(job.options)))
    running.load()
    running.compile()
    running.select(0)
    for _ in range(2):  # the first pass allocates what stays: kernels' workspaces, packed weights
        _one_pass(running)
    device = job.case.device
    before = _before(running, allocated_before() if device == "cuda" else None)
    found = watched(_events(running), DEVICE_TYPES[device])
    gpu = on_gpu(lambda: _one_pass(running), folder) if device == "cuda" else None
    running.close()
    return _record(job, before, found, gpu)


def _record(job: Job, before: Mapping[Category, int], found: Watched, gpu: Gpu | None) -> MemoryProfile:
    place = found.peak_place()
    alive = found.alive(place)
    base, heights, temporaries = sum(before.values()), found.running(), found.running_of("temporaries")
    kept = _kept(heights)
    unused = found.reserved[place] - base - heights[place] if gpu and place >= 0 else 0
    whole = all(one.operator is not None for one in found.blocks)
    notes = [_OUTSIDE] if gpu is None else list(gpu.notes)
    notes += [] if whole else [_UNNAMED]
    notes += [_THINNED] if len(kept) < len(found.by) else []
    at_peak: dict[Category, int] = {
        **before,
        "held": before["held"] - found.given_back(place),
        **{kind: sum(one.size_bytes for one in alive if one.category == kind) for kind in _OF_THE_PASS},
    }
    return MemoryProfile(
        case_id=job.case.case_id,
        device=job.case.device,
        by=_CPU if gpu is None else _CUDA,
        allocations=len(found.blocks),
        frees=found.frees,
        peak_bytes=sum(at_peak.values()),
        at_peak=at_peak,
        alive_at_peak=tuple(one.block() for one in alive[:MAX_BLOCKS]),
        pass_peak_bytes=sum(at_peak.values()) - base,
        activations_peak_bytes=max(found.running_of("activations"), default=0) if whole else None,
        at_ns=tuple(round((found.at[index] - found.at[0]) * 1e3) for index in kept),
        allocated_bytes=tuple(base + heights[index] for index in kept),
        temporaries_bytes=tuple(temporaries[index] for index in kept),
        reserved_bytes=tuple(found.reserved[index] for index in kept) if gpu else None,
        fragmentation=gpu.fragmentation.model_copy(update={"unused_at_peak_bytes": max(0, unused)}) if gpu else None,
        snapshot=gpu.snapshot if gpu else None,
        notes=tuple(notes),
    )


def _one_pass(running: TorchBackend) -> None:
    running.infer()
    running.synchronize()


def _without_graph(options: Mapping[str, str | int | bool]) -> dict[str, str | int | bool]:
    """torch.compile records one too, in its mode reduce-overhead."""
    graphless = {**options, "graph": False}
    return {**graphless, "mode": "default"} if options.get("mode") == "reduce-overhead" else graphless


def _before(running: TorchBackend, allocated: int | None) -> dict[Category, int]:
    """Bytes that lie there between passes. allocated: all of them, where the allocator tells."""
    module = running.module
    parameters = _storages([*module.parameters(), *module.buffers()])
    inputs = _storages([tensor for batch in running.input_sets for tensor in batch])
    held = 0 if allocated is None else allocated - parameters - inputs
    return {"parameters": parameters, "inputs": inputs, "held": held}


def _storages(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of what tensors lie in; what is used twice counts once."""
    found = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(found.values())


def _events(running: TorchBackend) -> list[dict[str, Any]]:
    """Of one pass, as a trace has them."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as seen:
        _one_pass(running)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(trace))
        events: list[dict[str, Any]] = json.loads(trace.read_bytes())["traceEvents"]
    return events


def _kept(heights: Sequence[int]) -> list[int]:
    """Places of the changes that the record keeps: all, or the highest of each group of neighbours."""
    step = -(-len(heights) // MAX_CHANGES) or 1
    return [
        max(range(start, min(start + step, len(heights))), key=heights.__getitem__)
        for start in range(0, len(heights), step)
    ]
