"""What one pass of ONNX Runtime holds at most on a CPU, as the memory figures of its own profile tell."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.backends.base import Job
from harness.backends.profiles.onnxruntime_events import Run, runs_of
from harness.backends.profiles.onnxruntime_nodes import Watched
from harness.backends.profiles.plain import ready
from harness.core.errors import UnavailableError

_IN_USE = "mem_bytes_requested_in_use"
_CHANGE = "mem_requested_in_use_delta"

_BY = (
    "measured: most bytes in use of ONNX Runtime's arena after any node of a warm pass, less those before the first "
    "pass; what a kernel frees before it returns is not seen"
)


def peak_bytes(job: Job) -> tuple[int, str]:
    """(bytes beyond weights, inputs and outputs at the peak of one warm pass, how they were measured).

    UnavailableError on a GPU, and where this version tells no memory.
    """
    if job.case.device != "cpu":
        raise UnavailableError("ONNX Runtime's memory figures are read on a CPU only", "The estimate is beside it.")
    with tempfile.TemporaryDirectory(prefix="inferometer-") as scratch:
        backend = Watched(job, Path(scratch))
        ready(backend)
        return peak_of(runs_of(json.loads(backend.end_profiling().read_bytes()))), _BY


def peak_of(runs: Sequence[Run]) -> int:
    """Most bytes in use after any node of the last run, less those before the first node of the first one.

    The first run tells what is there without a pass. From the second one on ONNX Runtime takes what it planned as one
    block before any node runs, so that their own run does not show it. UnavailableError where nodes tell no memory.
    """
    first, last = runs[0].nodes[0]["args"], [node["args"] for node in runs[-1].nodes]
    if _IN_USE not in first:
        raise UnavailableError("this ONNX Runtime reports no memory in its profile", "1.32 does.")
    return max(int(node[_IN_USE]) for node in last) - (int(first[_IN_USE]) - int(first[_CHANGE]))
