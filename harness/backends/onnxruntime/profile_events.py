"""Rows from ONNX Runtime's own profile, a list of events in Chrome's format (pure).

A run is a `Session` event named model_run (or SequentialExecutor::Execute) that spans `Node` events, whose names are
the optimised graph's nodes followed by `_kernel_time`. Times are whole µs, so nodes below 1 µs count as 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.backends.onnx_node_names import Node, place_of
from harness.core.schemas.profile_record import LayerRow
from harness.profiling.launch_gaps import GPU_WORK, LAUNCHES
from harness.profiling.reconcile import middle_runs

Event = Mapping[str, Any]
_KERNEL = "_kernel_time"
_RUN = "model_run"


@dataclass
class ProfiledRun:
    """One run: its wall time in µs, and the events of its nodes in their order."""

    span_us: int
    nodes: list[Event] = field(default_factory=list)


def is_node(event: Event) -> bool:
    """Whether an event is the time of a node, not of a fence before or after it."""
    return bool(event["cat"] == "Node" and event["name"].endswith(_KERNEL))


def runs_of(events: Sequence[Event]) -> list[ProfiledRun]:
    """The runs in a profile, in their order; events outside all runs are left out."""
    spans = sorted((event["ts"], event["dur"]) for event in events if event["name"] == _RUN)
    nodes = sorted(filter(is_node, events), key=lambda event: event["ts"])
    runs, place = [], 0
    for start, length in spans:
        run = ProfiledRun(length)
        while place < len(nodes) and nodes[place]["ts"] <= start + length:
            if nodes[place]["ts"] >= start:
                run.nodes.append(nodes[place])
            place += 1
        runs.append(run)
    return runs


def last_runs(events: Sequence[Event], count: int) -> list[Event]:
    """The events of the last `count` runs, for a trace that opens quickly whatever the number of runs."""
    starts = sorted(event["ts"] for event in events if event["name"] == _RUN)[-count:]
    return [event for event in events if starts and event["ts"] >= starts[0]]


def rows_of(runs: Sequence[ProfiledRun], members: Mapping[str, Sequence[Node]]) -> tuple[LayerRow, ...]:
    """One row per node of the optimised graph, in the order of the run; means over the runs of typical length.

    members: name of a node → the nodes of the exported graph that it computes.
    """
    typical = [runs[place] for place in middle_runs([run.span_us for run in runs])]
    spent: dict[str, float] = {}
    calls: dict[str, int] = {}
    first: dict[str, Event] = {}
    for run in typical:
        for event in run.nodes:
            name = _name(event)
            spent[name] = spent.get(name, 0) + event["dur"]
            calls[name] = calls.get(name, 0) + 1
            first.setdefault(name, event)
    return tuple(
        _row(name, event, calls[name] / len(typical), round(spent[name] * 1000 / len(typical)), members.get(name, ()))
        for name, event in first.items()
    )


def _row(name: str, event: Event, calls: float, spent_ns: int, members: Sequence[Node]) -> LayerRow:
    about = event["args"]
    module, group = place_of(members, about["op_name"])
    return LayerRow(
        name=name,
        kind=about["op_name"],
        parent=module,
        calls=calls,
        self_ns=spent_ns,
        total_ns=spent_ns,
        output_shapes=tuple(tuple(shape) for output in about.get("output_type_shape", ()) for shape in output.values()),
        output_bytes=int(about["output_size"]) if "output_size" in about else None,
        members=tuple(node.name for node in members) if [node.name for node in members] != [name] else (),
        group=group,
    )


def _name(event: Event) -> str:
    return str(event["name"]).removesuffix(_KERNEL)


LEAST = 0.98
"""The share of the GPU's time that nodes must have launched; below it, the two clocks may differ."""

_TRUNCATED_US = 1.0
"""ONNX Runtime reports whole microseconds: a node may end so much later than it says."""


def on_gpu(
    profiled: Sequence[Event], profile_from_ns: int, trace: Sequence[Event], trace_from_ns: int
) -> tuple[list[Event], float]:
    """(ONNX Runtime's events, nodes with the GPU's time in µs in place of the host's; the share of the GPU's time that
    belongs to nodes, 0 without GPU time).

    profiled: ONNX Runtime's profile. trace: torch.profiler's. profile_from_ns, trace_from_ns: when their times begin.
    """
    shift_us = (trace_from_ns - profile_from_ns) / 1e3
    nodes = sorted(filter(is_node, profiled), key=lambda event: event["ts"])
    starts = [event["ts"] for event in nodes]
    lasting: dict[int | None, float] = {}
    for event in trace:
        if event.get("cat") in GPU_WORK:  # a launch may start several kernels
            launch = event["args"].get("correlation")
            lasting[launch] = lasting.get(launch, 0.0) + event["dur"]
    spent = [0.0] * len(nodes)
    for event in trace:
        launch = event["args"].get("correlation") if event.get("cat") in LAUNCHES else None
        if launch is None or launch not in lasting:
            continue
        at = event["ts"] + shift_us
        place = bisect_right(starts, at) - 1
        if place >= 0 and at <= starts[place] + nodes[place]["dur"] + _TRUNCATED_US:
            spent[place] += lasting[launch]
    every = sum(lasting.values())
    others = [event for event in profiled if not is_node(event)]
    timed = [{**event, "dur": work_us} for event, work_us in zip(nodes, spent, strict=True)]
    return [*others, *timed], sum(spent) / every if every else 0.0
