"""GPU time of the kernels that each module launched, from torch.profiler's trace.

The host is inside a module's range when it launches a kernel, and the trace ties the launch to the kernel by its
correlation id. What ran on the GPU is counted, not the waits between: those are what hooks with events count too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.profiler import record_function

from harness.backends.profiles.tree import ROOT
from harness.core.schemas.profile_parts import LayerRow
from harness.measure.launch_gaps import GPU_WORK, LAUNCHES

Event = Mapping[str, Any]

RANGE = "module:"
"""Before a module's path in the name of its range."""


class ProfilerRanges:
    """Ranges that torch.profiler records, opened and closed as NVTX's are."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def range_push(self, path: str) -> None:
        """Open one."""
        entered = record_function(RANGE + path)
        entered.__enter__()  # type: ignore[no-untyped-call]
        self._open.append(entered)

    def range_pop(self) -> None:
        """Close the one opened last."""
        self._open.pop().__exit__(None, None, None)


def with_kernels(layers: Sequence[LayerRow], events: Sequence[Event], runs: int) -> tuple[LayerRow, ...]:
    """The same rows with the times of their kernels, and those by events as the stream's; `runs` inferences."""
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
    """Path of a module → ns of all kernels, copies and fills that it launched, without those of its children.

    What was launched outside all modules counts for the model itself.
    """
    duration = {event["args"]["correlation"]: event["dur"] * 1e3 for event in events if event.get("cat") in GPU_WORK}
    found: dict[str, float] = {}
    for module, launch in _launches_in_modules(events):
        found[module] = found.get(module, 0.0) + duration.pop(launch["args"].get("correlation"), 0.0)
    return found


def _launches_in_modules(events: Sequence[Event]) -> Iterator[tuple[str, Event]]:
    """(innermost module that was open, launch), thread by thread: ranges nest in a thread."""
    marked = [event for event in events if event.get("cat") in LAUNCHES or _is_range(event)]
    for thread in {event["tid"] for event in marked}:
        open_ranges: list[Event] = []
        for event in sorted((one for one in marked if one["tid"] == thread), key=lambda one: (one["ts"], -one["dur"])):
            while open_ranges and open_ranges[-1]["ts"] + open_ranges[-1]["dur"] <= event["ts"]:
                open_ranges.pop()
            if _is_range(event):
                open_ranges.append(event)
            else:
                yield (str(open_ranges[-1]["name"]).removeprefix(RANGE) if open_ranges else ROOT), event


def _is_range(event: Event) -> bool:
    return event.get("cat") == "user_annotation" and str(event["name"]).startswith(RANGE)
