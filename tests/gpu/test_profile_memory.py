"""Memory of one pass on a GPU, as PyTorch's allocator tells it: sums, fragmentation, a snapshot for its viewer."""

from __future__ import annotations

import json
import pickle

from harness.core import store
from harness.core.schemas.profile_record import MemoryTimeline
from tests.gpu.conftest import Gpu


def test_a_pass_is_told_from_the_first_allocation_to_the_snapshot(gpu: Gpu) -> None:
    plan = gpu.prepare({"backends": ["torch-eager"], "precisions": ["fp32"], "batch_sizes": [4]})
    gpu.must("profile_ops", "--runs", "3")
    (case,) = plan.cases
    folder = gpu.results.profile(case.case_id)
    found = store.load(gpu.results.memory_profile(case.case_id), MemoryTimeline, "make profile")
    assert found.allocations > 0
    assert sum(found.at_peak.values()) == found.peak_bytes == max(found.allocated_bytes)
    assert found.at_peak["parameters"] > 0
    assert min(found.at_peak.values()) >= 0
    assert found.reserved_bytes is not None
    assert all(has >= uses for has, uses in zip(found.reserved_bytes, found.allocated_bytes, strict=True))
    assert found.fragmentation is not None
    assert found.fragmentation.unused_bytes >= found.fragmentation.largest_free_bytes
    assert found.snapshot == "memory.pickle"
    snapshot = pickle.loads((folder / found.snapshot).read_bytes())  # noqa: S301 - written a moment ago
    assert {"alloc", "free_completed"} <= {entry["action"] for trace in snapshot["device_traces"] for entry in trace}
    assert (folder / "memory.png").is_file()
    trace = json.loads((folder / "operators.pt.trace.json").read_text())["traceEvents"]
    assert any(event.get("cat") == "kernel" for event in trace)
