"""How long the GPU did nothing while a trace was taken, and how much of that it waited for the host (pure).

Kernels that overlap, on several streams, count once: busy is the union of their intervals, idle the rest of the window.

Source: the trace of torch.profiler (Kineto) in Chrome's trace format. GPU work has the categories of GPU_WORK; the call
that launched it has one of LAUNCHES and the same `args.correlation`; `ts` and `dur` are in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.schemas.profile_parts import OperatorRow

GPU_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})


@dataclass(frozen=True)
class LaunchGaps:
    """What a trace tells of the GPU's time, in ns.

    window_ns: from the start of the first work on the GPU to the end of the last. busy_ns: when any was running.
    waited_ns: the part of the idle time in which the next work had not yet been launched; None where the trace does not
    tell launches. work_ns: the durations of all work, which is more than busy_ns where work overlaps. names: of that
    work, which annotations of a region on the GPU are not.
    """

    window_ns: int
    busy_ns: int
    waited_ns: int | None
    work_ns: int
    names: frozenset[str]

    @property
    def idle(self) -> float:
        """The share of the window in which nothing ran."""
        return 1 - self.busy_ns / self.window_ns

    @property
    def waited(self) -> float | None:
        """The share of the window in which nothing ran because the host had not launched it yet."""
        return None if self.waited_ns is None else self.waited_ns / self.window_ns

    def idle_of(self, latency_ns: float, operators: Iterable[OperatorRow]) -> float:
        """The idle share of an inference without a profiler, which slows the host but not the GPU.

        operators: of one inference; those that are work in the trace overlap as much as they do there.
        """
        work_ns = sum(row.self_device_ns or 0 for row in operators if row.name in self.names)
        return max(0.0, 1 - work_ns * self.busy_ns / self.work_ns / latency_ns)


def launch_gaps_of(events: Iterable[Mapping[str, Any]]) -> LaunchGaps | None:
    """The gaps in a trace's events; None where nothing ran on a GPU for any time, as of a CPU's trace. KeyError or
    TypeError of events that are none."""
    everything = list(events)
    work = sorted((_interval(event) for event in _of(everything, GPU_WORK)), key=lambda one: one[:2])
    if not any(end > start for start, end, _ in work):
        return None
    launched = {_correlation(event): _interval(event)[1] for event in _of(everything, LAUNCHES)}
    launched.pop(None, None)
    told = all(correlation in launched for _, _, correlation in work)
    busy = waited = 0
    last = first = work[0][0]
    for start, end, correlation in work:
        if told and start > last:
            waited += max(0, min(start, launched[correlation]) - last)
        busy += max(0, end - max(start, last))
        last = max(last, end)
    names = frozenset(str(event["name"]) for event in _of(everything, GPU_WORK))
    return LaunchGaps(last - first, busy, waited if told else None, sum(end - start for start, end, _ in work), names)


def _of(events: Sequence[Mapping[str, Any]], categories: frozenset[str]) -> Iterator[Mapping[str, Any]]:
    return (event for event in events if event.get("ph") == "X" and event.get("cat") in categories)


def _interval(event: Mapping[str, Any]) -> tuple[int, int, int | None]:
    """(start in ns, end in ns, correlation). Ends are rounded from the sum, so that what follows does not overlap."""
    start = float(event["ts"])
    return round(start * 1e3), round((start + float(event["dur"])) * 1e3), _correlation(event)


def _correlation(event: Mapping[str, Any]) -> int | None:
    found = event.get("args", {}).get("correlation")
    return None if found is None else int(found)
