"""What one pass of a PyTorch backend allocates at most, as PyTorch's own allocators tell."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from harness.backends.base import Backend, Job

_CPU = "measured: sum of allocations less frees of PyTorch's CPU allocator in one pass (torch.profiler)"
_CUDA = "measured: max_memory_allocated less what was allocated before, in one pass without a CUDA graph"


def peak_bytes(job: Job, make: Callable[[Job], Backend]) -> tuple[int, str]:
    """(bytes beyond weights and inputs at the peak of one warm pass, how they were measured).

    make: the backend of a job.

    What libraries allocate past PyTorch (oneDNN's scratch space) is not among them. A CUDA graph owns its memory from
    its recording on, so the pass runs without one.
    """
    running = make(dataclasses.replace(job, options=_without_graph(job.options)))
    running.load()
    running.compile()
    running.select(0)
    for _ in range(2):  # the first pass allocates what stays: kernels' workspaces, packed weights
        running.infer()
        running.synchronize()
    measured = (_on_cuda(running), _CUDA) if job.case.device == "cuda" else (_on_cpu(running), _CPU)
    running.close()
    return measured


def _without_graph(options: Mapping[str, str | int | bool]) -> dict[str, str | int | bool]:
    """torch.compile records one too, in its mode reduce-overhead."""
    graphless = {**options, "graph": False}
    return {**graphless, "mode": "default"} if options.get("mode") == "reduce-overhead" else graphless


def _on_cuda(running: Backend) -> int:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    running.infer()
    running.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _on_cpu(running: Backend) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        running.infer()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    return peak_of(events)


def peak_of(events: Iterable[Mapping[str, Any]]) -> int:
    """Highest sum of the allocations and frees in a trace, in their order of time. ts: of each event, in µs."""
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event["name"] == "[memory]")
    total, peak = 0, 0
    for _, change in changes:
        total += change
        peak = max(peak, total)
    return peak
