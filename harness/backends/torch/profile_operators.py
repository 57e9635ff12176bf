"""Operators and kernels of a PyTorch backend, by torch.profiler, and its trace."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from harness.backends.profile_timing import ROOT, TimedPass, inference_span
from harness.core.safe_files import SizeLimit, read
from harness.core.schemas.profile_record import LayerRow, OperatorGaps, OperatorRow, PartsProfile
from harness.core.store import save_bytes, translate_storage_errors
from harness.profiling.launch_gaps import GPU_WORK, LAUNCHES, operator_gaps_of

Event = Mapping[str, Any]

RANGE = "module:"
"""Before a module's path in the name of its range."""


class ProfilerRanges:
    """Ranges that torch.profiler records, opened and closed as NVTX's are."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def range_push(self, path: str) -> None:
        """Open a range."""
        entered = record_function(RANGE + path)
        entered.__enter__()  # type: ignore[no-untyped-call]
        self._open.append(entered)

    def range_pop(self) -> None:
        """Close the range that was opened last."""
        self._open.pop().__exit__(None, None, None)


def with_kernels(layers: Sequence[LayerRow], events: Sequence[Event], runs: int) -> tuple[LayerRow, ...]:
    """The layers with the times of their kernels; times by events are times of the stream. runs: number of
    inferences."""
    alone = {path: round(spent / runs) for path, spent in kernels_by_module(events).items()}
    return tuple(
        row.model_copy(
            update={
                "self_ns": alone.get(row.name, 0),
                "total_ns": sum(spent for path, spent in alone.items() if _is_in(path, row.name)),
                "stream_ns": row.self_ns,
            }
        )
        for row in layers
    )


def _is_in(path: str, module: str) -> bool:
    return module in (ROOT, path) or path.startswith(f"{module}.")


def kernels_by_module(events: Sequence[Event]) -> dict[str, float]:
    """Path of a module → ns of all kernels, copies and fills that it launched, without its children.

    Work launched outside all modules counts for the model itself.
    """
    duration = {event["args"]["correlation"]: event["dur"] * 1e3 for event in events if event.get("cat") in GPU_WORK}
    spent: dict[str, float] = {}
    for module, launch in _launches_in_modules(events):
        spent[module] = spent.get(module, 0.0) + duration.pop(launch["args"].get("correlation"), 0.0)
    return spent


def _launches_in_modules(events: Sequence[Event]) -> Iterator[tuple[str, Event]]:
    """(innermost module that was open, launch), thread by thread: ranges nest in a thread."""
    marked = [event for event in events if event.get("cat") in LAUNCHES or _is_range(event)]
    for thread in {event["tid"] for event in marked}:
        open_ranges: list[Event] = []
        for event in sorted(
            (mark for mark in marked if mark["tid"] == thread), key=lambda mark: (mark["ts"], -mark["dur"])
        ):
            while open_ranges and open_ranges[-1]["ts"] + open_ranges[-1]["dur"] <= event["ts"]:
                open_ranges.pop()
            if _is_range(event):
                open_ranges.append(event)
            else:
                yield (str(open_ranges[-1]["name"]).removeprefix(RANGE) if open_ranges else ROOT), event


def _is_range(event: Event) -> bool:
    return event.get("cat") == "user_annotation" and str(event["name"]).startswith(RANGE)


TRACE = "operators.pt.trace.json"
"""TensorBoard's plugin looks for this ending; Perfetto opens the same file."""

MAX_TRACED_RUNS = 10
"""A run of a 12-layer encoder has some thousand events; a trace of more runs shows nothing new and opens slowly."""


@dataclass(frozen=True)
class Operators:
    """rows: the longest first. window_ns: the mean wall time of one inference under the profiler, which reports only
    sums. events: of the trace, over `runs` inferences; their times count from base_ns of the Unix epoch."""

    rows: tuple[OperatorRow, ...]
    window_ns: int
    events: tuple[dict[str, Any], ...] = ()
    runs: int = 1
    base_ns: int = 0
    gaps: OperatorGaps | None = None
    """On a CPU."""

    def alone(self, plain_ns: int, *why: str) -> PartsProfile:
        """The profile of a backend that has no layers; `why` says why."""
        return PartsProfile(
            layers=(),
            operators=self.rows,
            traces=(TRACE,),
            window_ns=self.window_ns,
            plain_ns=plain_ns,
            operator_gaps=self.gaps,
            notes=why,
        )


def operators(backend: TimedPass, folder: Path, runs: int, name: str = TRACE) -> Operators:
    """Watch at most MAX_TRACED_RUNS inferences, and write their trace to `folder`/`name`. StorageError where the disk
    does not take it."""
    on_device = backend.on_gpu
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
    with profile(activities=activities):  # the first use in a process sets the profiler up
        inference_span(backend, 0)
    traced = backend.alone(min(runs, MAX_TRACED_RUNS))
    with profile(activities=activities, record_shapes=True, acc_events=True) as profiler:
        spans = [inference_span(backend, index) for index in range(traced)]
    path = folder / name
    with translate_storage_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(path))
        trace = json.loads(read(path, SizeLimit.TRACE))
    trace.pop("traceName", None)  # the path of the file, no part of the profile
    save_bytes(path, json.dumps(trace, separators=(",", ":")).encode())
    events = trace["traceEvents"]
    overhead = {event["name"] for event in events if event.get("cat") == "overhead"}
    rows = operator_rows(profiler.key_averages(group_by_input_shape=True), traced, on_device, overhead)
    gaps = None if on_device else operator_gaps_of(events)
    return Operators(rows, round(sum(spans) / traced), tuple(events), traced, trace["baseTimeNanoseconds"], gaps)


def operator_rows(
    averages: Iterable[Any], runs: int, on_device: bool, overhead: Collection[str]
) -> tuple[OperatorRow, ...]:
    """torch.profiler's sums (µs) → a row for each (ns per run, means), the longest on host or device first.

    A GPU kernel is a row of its own with device time alone. Operators are left without it, so that device times add
    up; the trace shows the launches of each operator. overhead: names of the profiler's own work.
    """
    return tuple(
        sorted(
            (_row(event, runs, on_device) for event in averages if event.key not in overhead and _is_work(event)),
            key=lambda row: -max(row.self_cpu_ns, row.self_device_ns or 0),
        )
    )


def _is_work(event: Any) -> bool:
    """Not a range that only spans work: on the GPU it would count kernels again, and modules are reported as layers."""
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
