"""What each node of ONNX Runtime launched on the GPU, by the time of the launch (pure).

ONNX Runtime's profile says when the host was in a node, CUPTI when the host launched what, and both count from the Unix
epoch. Nodes run one after the other on one thread, so a launch belongs to the node that the host was in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from harness.backends.profiles.onnxruntime_events import Event, is_node
from harness.measure.launch_gaps import GPU_WORK, LAUNCHES

LEAST = 0.98
"""The share of the GPU's time that nodes must have launched, or the two clocks cannot be trusted to be one."""

_TRUNCATED_US = 1.0
"""ONNX Runtime reports whole microseconds: a node may end so much later than it says."""


def on_gpu(
    told: Sequence[Event], told_from_ns: int, trace: Sequence[Event], trace_from_ns: int
) -> tuple[list[Event], float]:
    """(ONNX Runtime's events, nodes with the µs that the GPU took for them in place of the host's; the share of the
    GPU's time that stands in nodes, 0 of none).

    told: ONNX Runtime's profile. trace: torch.profiler's. told_from_ns, trace_from_ns: when their times begin.
    """
    shift_us = (trace_from_ns - told_from_ns) / 1e3
    nodes = sorted(filter(is_node, told), key=lambda event: event["ts"])
    starts = [event["ts"] for event in nodes]
    lasting: dict[int | None, float] = {}
    for event in trace:
        if event.get("cat") in GPU_WORK:  # one launch may be of several kernels
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
    others = [event for event in told if not is_node(event)]
    found = [{**event, "dur": work_us} for event, work_us in zip(nodes, spent, strict=True)]
    return [*others, *found], sum(spent) / every if every else 0.0
