"""Idle time of a GPU in a trace, and the part in which it waited for the host; a CPU's time without operators (pure).

Kernels that overlap on several streams count once: busy is the union of their intervals, idle the rest of the window.

Source: the trace of torch.profiler (Kineto) in Chrome's trace format. GPU work has the categories of GPU_WORK, a CPU's
operators that of OPERATORS; the call that launched GPU work has one of LAUNCHES and the same `args.correlation`; `ts`
and `dur` are in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.core.schemas.profile_record import LaunchGaps, OperatorGaps, OperatorRow, PartsProfile
from harness.core.store import translate_storage_errors

GPU_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
OPERATORS = frozenset({"cpu_op"})
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})


@dataclass(frozen=True)
class IdleShare:
    """The share of a latency in which no kernel ran. of: the latency's name in the report."""

    share: float
    of: Literal["measured latency", "plain latency"]


def idle_share(parts: PartsProfile, measured_ns: float | None) -> IdleShare | None:
    """The share of the measured latency in which no kernel ran, else of the plain latency where none was measured; None
    where the profile has no kernels. The profiler slows the host, but hardly the GPU: kernels take as long without it.
    """
    busy_ns = kernel_busy_ns(parts)
    if not busy_ns:
        return None
    if measured_ns is None:
        return IdleShare(max(0.0, 1 - busy_ns / parts.plain_ns), "plain latency")
    return IdleShare(max(0.0, 1 - busy_ns / measured_ns), "measured latency")


def kernel_busy_ns(parts: PartsProfile) -> float:
    """Time in which any kernel runs in one inference, in ns; 0 where the profile has no kernels.

    Without a trace, kernels count as sequential: where they overlap, this time is too long, and gaps seem shorter.
    """
    gaps = parts.launch_gaps
    if gaps is None:
        return sum(row.self_device_ns or 0 for row in parts.operators)
    return gaps.kernels_ns / work_overlap(gaps)


def no_kernel_ns(gaps: LaunchGaps) -> float:
    """Time in which no kernel ran in one traced inference, in ns: longer than without a profiler, which slows the host.

    From the ratio of idle time to GPU work in the whole trace, whose number of inferences is not needed.
    """
    return gaps.kernels_ns / gaps.work_ns * (gaps.window_ns - gaps.busy_ns)


def work_overlap(gaps: LaunchGaps) -> float:
    """Sum of all work over the time in which any work ran: 1 where no work overlaps."""
    return gaps.work_ns / gaps.busy_ns


def idle_fraction(gaps: LaunchGaps) -> float:
    """The share of the traced window in which nothing ran."""
    return 1 - gaps.busy_ns / gaps.window_ns


def host_wait_fraction(gaps: LaunchGaps) -> float | None:
    """The share of the traced window in which nothing ran because the host had not launched it yet."""
    return None if gaps.waited_ns is None else gaps.waited_ns / gaps.window_ns


def launch_gaps_of(events: Iterable[Mapping[str, Any]], operators: Iterable[OperatorRow]) -> LaunchGaps | None:
    """The gaps in a trace's events; None where no GPU work took any time, as in a CPU's trace. Raises KeyError or
    TypeError for malformed events.

    operators: of one inference of the same passes. Operators that are no work in the trace are left out, such as an
    annotated region on the GPU, which spans work.
    """
    everything = list(events)
    work = sorted((_interval(event) for event in _events_of(everything, GPU_WORK)), key=lambda gap: gap[:2])
    if not any(end > start for start, end, _ in work):
        return None
    launched = {_correlation(event): _interval(event)[1] for event in _events_of(everything, LAUNCHES)}
    launched.pop(None, None)
    matched = all(correlation in launched for _, _, correlation in work)
    busy = waited_ns = 0
    last = first = work[0][0]
    for start, end, correlation in work:
        if matched and start > last:
            waited_ns += max(0, min(start, launched[correlation]) - last)
        busy += max(0, end - max(start, last))
        last = max(last, end)
    names = frozenset(str(event["name"]) for event in _events_of(everything, GPU_WORK))
    return LaunchGaps(
        window_ns=last - first,
        busy_ns=busy,
        waited_ns=waited_ns if matched else None,
        work_ns=sum(end - start for start, end, _ in work),
        kernels_ns=sum(row.self_device_ns or 0 for row in operators if row.name in names),
    )


def operator_gaps_of(events: Iterable[Mapping[str, Any]]) -> OperatorGaps | None:
    """Time with and without an operator in a CPU's trace; None where no operator took any time. Operators contain
    others: busy is the union of their intervals. Raises as launch_gaps_of()."""
    work = sorted(_interval(event)[:2] for event in _events_of(list(events), OPERATORS))
    if not any(end > start for start, end in work):
        return None
    first = last = work[0][0]
    busy = 0
    for start, end in work:
        busy += max(0, end - max(start, last))
        last = max(last, end)
    return OperatorGaps(window_ns=last - first, busy_ns=busy)


def fraction_without_operator(gaps: OperatorGaps) -> float:
    """The share of a traced CPU's time in which no operator ran."""
    return 1 - gaps.busy_ns / gaps.window_ns


def _events_of(events: Sequence[Mapping[str, Any]], categories: frozenset[str]) -> Iterator[Mapping[str, Any]]:
    return (event for event in events if event.get("ph") == "X" and event.get("cat") in categories)


def _interval(event: Mapping[str, Any]) -> tuple[int, int, int | None]:
    """(start in ns, end in ns, correlation). The end is rounded from the sum, so that events do not overlap."""
    start = float(event["ts"])
    return round(start * 1e3), round((start + float(event["dur"])) * 1e3), _correlation(event)


def _correlation(event: Mapping[str, Any]) -> int | None:
    number = event.get("args", {}).get("correlation")
    return None if number is None else int(number)


@dataclass(frozen=True)
class Span:
    """One part of a run. start_ns: from the start of the trace. about: details that a trace viewer shows on a click."""

    name: str
    kind: str
    start_ns: int
    duration_ns: int
    about: Mapping[str, str | int] = field(default_factory=dict)


def spans_back_to_back(parts: Iterable[tuple[str, str, int]]) -> list[Span]:
    """Spans one after the other, for a profiler that reports no start times. parts: (name, kind, duration in ns)."""
    spans, start = [], 0
    for name, kind, duration in parts:
        spans.append(Span(name, kind, start, duration))
        start += duration
    return spans


def save_trace(path: Path, process: str, spans: Iterable[Span]) -> None:
    """Write spans as one trace. Raises StorageError where it cannot be written."""
    named = {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": process}}
    events = [
        {
            "name": span.name,
            "cat": span.kind,
            "ph": "X",
            "pid": 0,
            "tid": 0,
            "ts": span.start_ns / 1e3,
            "dur": span.duration_ns / 1e3,
            "args": dict(span.about),
        }
        for span in spans
    ]
    with translate_storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"traceEvents": [named, *events], "displayTimeUnit": "ms"}), encoding="utf-8")
