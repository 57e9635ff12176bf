"""Rows from ONNX Runtime's own profile, a list of events in Chrome's format (pure).

A run is a `Session` event named model_run (or SequentialExecutor::Execute) that spans `Node` events, whose names are
the optimised graph's nodes followed by `_kernel_time`. Times are whole µs, so nodes below 1 µs count as 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.backends.profiles.onnx_modules import Node, place_of
from harness.core.schemas.profile_parts import LayerRow
from harness.measure.middle import middle_runs

Event = Mapping[str, Any]
_KERNEL = "_kernel_time"
_RUN = "model_run"


@dataclass
class Run:
    """One run: its wall time in µs, and the events of its nodes in their order."""

    span_us: int
    nodes: list[Event] = field(default_factory=list)


def is_node(event: Event) -> bool:
    """Whether an event is the time of a node, not of a fence before or after it."""
    return bool(event["cat"] == "Node" and event["name"].endswith(_KERNEL))


def runs_of(events: Sequence[Event]) -> list[Run]:
    """The runs in a profile, in their order; what stands in none is left out."""
    spans = sorted((event["ts"], event["dur"]) for event in events if event["name"] == _RUN)
    nodes = sorted(filter(is_node, events), key=lambda event: event["ts"])
    found, place = [], 0
    for start, length in spans:
        run = Run(length)
        while place < len(nodes) and nodes[place]["ts"] <= start + length:
            if nodes[place]["ts"] >= start:
                run.nodes.append(nodes[place])
            place += 1
        found.append(run)
    return found


def last_runs(events: Sequence[Event], count: int) -> list[Event]:
    """The events of the last `count` runs, for a trace that opens quickly whatever the number of runs."""
    starts = sorted(event["ts"] for event in events if event["name"] == _RUN)[-count:]
    return [event for event in events if starts and event["ts"] >= starts[0]]


def rows_of(runs: Sequence[Run], members: Mapping[str, Sequence[Node]]) -> tuple[LayerRow, ...]:
    """One row a node of the optimised graph, in the order of the run; means over the runs of typical length.

    members: name of a node → what it computes of the exported graph.
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
        output_shapes=tuple(tuple(shape) for one in about.get("output_type_shape", ()) for shape in one.values()),
        output_bytes=int(about["output_size"]) if "output_size" in about else None,
        members=tuple(node.name for node in members) if [node.name for node in members] != [name] else (),
        group=group,
    )


def _name(event: Event) -> str:
    return str(event["name"]).removesuffix(_KERNEL)
