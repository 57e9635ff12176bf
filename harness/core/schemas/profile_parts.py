"""results/profiles/<case_id>/parts.json: what a backend's profiler tells of one case, by layer and by operator."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.summary import Flag
from harness.core.schemas.usage_summary import UsageSummary
from harness.core.schemas.vocabulary import Grade, Record

Group = Literal[
    "attention",
    "mlp",
    "normalisation",
    "embedding",
    "convolution",
    "linear",
    "activation",
    "pooling",
    "layout",
    "other",
]
"""`layout`: copies that only reorder a tensor, which graphs have and modules have not."""


class LayerRow(Record):
    """One layer: a module of the tree, or a node or fused layer of a graph. Times are means
    over the runs of typical length, so that self times add up."""

    name: str
    kind: str
    """The module's class, or the operator's type."""
    depth: int = 0
    """Of the module tree, the model itself is 0; 0 for every node of a graph."""
    parent: str | None = None
    """The module that it stands in; of a graph's node, the module that it came from. None where that is not told."""
    calls: float = 1
    """A run."""
    self_ns: int
    """Without its children."""
    total_ns: int
    stream_ns: int | None = None
    """On a GPU: the stream's time inside the module and in none of its children, waits for launches included, where
    `self_ns` and `total_ns` are those of kernels. None elsewhere."""
    flops: int | None = None
    """2 per multiply-add, of one run of the whole batch; None where they are not known."""
    parameters: int | None = None
    """Elements, children included."""
    output_shapes: tuple[tuple[int, ...], ...] = ()
    output_bytes: int | None = None
    members: tuple[str, ...] = ()
    """What was fused into it, by the names of the graph before fusion."""
    group: Group = "other"


class OperatorRow(Record):
    """One operator with one set of input shapes, or one GPU kernel. Times are means a run."""

    name: str
    shapes: str
    calls: float
    self_cpu_ns: int
    self_device_ns: int | None
    """Of a kernel, which has no time on the host; 0 for operators, so that device times add up. None on a CPU."""


class Tokenising(Record):
    """What becomes of texts before a text model sees them; no part of the case's latency at the compute boundary."""

    time_ns: int | None
    """Of one batch, on the host; None where no tokenizer makes the inputs, and `by` says so."""
    texts: int
    tokens_a_text: int | None
    by: str
    """How it was measured and whose tokenizer it is; or why it was not."""


class LaunchGaps(Record):
    """When the GPU worked while a trace was taken, in ns over all its inferences (harness/measure/launch_gaps.py)."""

    window_ns: int
    """From the start of the first work on the GPU to the end of the last."""
    busy_ns: int
    """When any work was running."""
    waited_ns: int | None
    """The part of the idle time in which the next work was not launched yet; None where the trace has no launches."""
    work_ns: int
    """The durations of all work: more than busy_ns where work overlaps."""
    kernels_ns: int
    """Of one inference: the operators of the profile that are work in the trace."""


class PartsProfile(Record):
    """Where the time of one case goes, as its own backend's profiler sees it: its last repeat."""

    schema_version: Literal[1] = 1
    layers: tuple[LayerRow, ...]
    operators: tuple[OperatorRow, ...]
    traces: tuple[str, ...]
    """Files in Chrome's trace format, relative to the case's folder."""
    window_ns: int
    """One run with profiling on, of typical length, until the device is done."""
    plain_ns: int
    """The same without it, in the same process."""
    notes: tuple[str, ...] = ()
    """What is missing, and why."""
    runs: int | None = None
    """Inferences that the parts were timed over; None in files from before it was told."""
    tokenising: Tokenising | None = None
    """None where the inputs are no text, and in files from before it was told."""
    launch_gaps: LaunchGaps | None = None
    """None on a CPU, of a backend whose trace has no starts of kernels, and in files from before it was kept."""
    ratios: tuple[float, ...] = ()
    """Parts over the plain latency of each repeat, a process each, in order; empty in files from before there were
    any."""
    steady: bool | None = None
    """Whether the last two repeats agree; None in older files."""
    usage: UsageSummary | None = None
    """What the monitor saw while the last repeat was timed; None where it left no record, and in older files."""
    grade: Grade | None = None
    """None in files from before profiles were graded: they count as not watched (harness/measure/profile_grades.py)."""
    flags: tuple[Flag, ...] = ()
    """Why the grade is no better, and what else happened meanwhile."""
