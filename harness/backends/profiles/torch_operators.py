"""Operators and kernels of a PyTorch backend, by torch.profiler, and its trace."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from harness.backends.base import Backend
from harness.backends.profiles.plain import span_of
from harness.backends.profiles.torch_kernels import RANGE
from harness.core.regular import Limit, read
from harness.core.schemas.profile_parts import OperatorRow, PartsProfile
from harness.core.store import save_bytes, translate_storage_errors

TRACE = "operators.pt.trace.json"
"""The ending is the one that TensorBoard's plugin looks for; Perfetto opens the same file."""

MAX_TRACED_RUNS = 10
"""A run of a 12-layer encoder has some thousand events; a trace of more runs tells nothing new and opens slowly."""


@dataclass(frozen=True)
class Operators:
    """rows: the longest first. window_ns: the mean wall time of one inference while the profiler watched, as it tells
    sums. events: of the trace, over `runs` inferences; their times count from base_ns of the Unix epoch."""

    rows: tuple[OperatorRow, ...]
    window_ns: int
    events: tuple[dict[str, Any], ...] = ()
    runs: int = 1
    base_ns: int = 0

    def alone(self, plain_ns: int, *why: str) -> PartsProfile:
        """The profile of a backend that has no layers; `why` says why."""
        return PartsProfile(
            layers=(),
            operators=self.rows,
            traces=(TRACE,),
            window_ns=self.window_ns,
            plain_ns=plain_ns,
            notes=why,
        )


def operators(backend: Backend, folder: Path, runs: int, name: str = TRACE) -> Operators:
    """Watch at most MAX_TRACED_RUNS inferences, and write their trace to `folder`/`name`. StorageError where the disk
    does not take it."""
    traced = min(runs, MAX_TRACED_RUNS)
    on_device = backend.stream is not None
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
    with profile(activities=activities):  # the first use in a process sets the profiler up
        span_of(backend, 0)
    with profile(activities=activities, record_shapes=True, acc_events=True) as profiler:
        spans = [span_of(backend, index) for index in range(traced)]
    path = folder / name
    with translate_storage_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(path))
        trace = json.loads(read(path, Limit.TRACE))
    trace.pop("traceName", None)  # where the file lay, which is nothing of the profile
    save_bytes(path, json.dumps(trace, separators=(",", ":")).encode())
    events = trace["traceEvents"]
    overhead = {event["name"] for event in events if event.get("cat") == "overhead"}
    rows = rows_of(profiler.key_averages(group_by_input_shape=True), traced, on_device, overhead)
    return Operators(rows, round(sum(spans) / traced), tuple(events), traced, trace["baseTimeNanoseconds"])


def rows_of(
    averages: Iterable[Any], runs: int, on_device: bool, overhead: Collection[str] = ()
) -> tuple[OperatorRow, ...]:
    """torch.profiler's sums (µs) → a row each (ns a run, means), the longest on host or device first.

    A GPU kernel is a row of its own with device time alone. Operators are left without it, so that device times add
    up; what an operator launched stands in the trace. overhead: names of what the profiler itself did.
    """
    return tuple(
        sorted(
            (_row(event, runs, on_device) for event in averages if event.key not in overhead and _is_work(event)),
            key=lambda row: -max(row.self_cpu_ns, row.self_device_ns or 0),
        )
    )


def _is_work(event: Any) -> bool:
    """Not a range that only spans work: on the GPU it would count its kernels again, and modules are told by layer."""
    if event.device_type != DeviceType.CPU:
        return not event.is_user_annotation
    return not event.key.startswith(RANGE)


def _row(event: Any, runs: int, on_device: bool) -> OperatorRow:
    is_kernel = event.device_type != DeviceType.CPU
    return OperatorRow(
        name=event.key,
        shapes=_shapes(event.input_shapes),
        calls=event.count / runs,
        self_cpu_ns=0 if is_kernel else round(event.self_cpu_time_total * 1e3 / runs),
        self_device_ns=round(event.self_device_time_total * 1e3 / runs) if is_kernel else 0 if on_device else None,
    )


def _shapes(shapes: Any) -> str:
    """The shapes of the inputs that have any."""
    return " ".join(json.dumps(shape, separators=(",", ":")) for shape in shapes or () if shape)
