"""Memory of one pass on a GPU, as PyTorch's allocator reports it: sums, fragmentation, a snapshot for its viewer."""

from __future__ import annotations

import json
import pickle

from harness.core import store
from harness.core.schemas.profile_record import MemoryTimeline
from tests.gpu.conftest import Gpu


def test_a_pass_is_recorded_from_the_first_allocation_to_the_snapshot(gpu: Gpu) -> None:
    plan = gpu.prepare({"backends": ["torch-eager"], "precisions": ["fp32"], "batch_sizes": [4]})
    gpu.must("profile_ops", "--runs", "3")
    (case,) = plan.cases
    folder = gpu.results.profile(case.case_id)
    timeline = store.load(gpu.results.memory_profile(case.case_id), MemoryTimeline, "make profile")
    assert timeline.allocations > 0
    assert sum(timeline.at_peak.values()) == timeline.peak_bytes == max(timeline.allocated_bytes)
    assert timeline.at_peak["parameters"] > 0
    assert min(timeline.at_peak.values()) >= 0
    assert timeline.reserved_bytes is not None
    assert all(has >= uses for has, uses in zip(timeline.reserved_bytes, timeline.allocated_bytes, strict=True))
    assert timeline.fragmentation is not None
    assert timeline.fragmentation.unused_bytes >= timeline.fragmentation.largest_free_bytes
    assert timeline.snapshot == "memory.pickle"
    snapshot = pickle.loads((folder / timeline.snapshot).read_bytes())  # noqa: S301 - written a moment ago
    assert {"alloc", "free_completed"} <= {entry["action"] for trace in snapshot["device_traces"] for entry in trace}
    assert (folder / "memory.png").is_file()
    trace = json.loads((folder / "operators.pt.trace.json").read_text())["traceEvents"]
    assert any(event.get("cat") == "kernel" for event in trace)
