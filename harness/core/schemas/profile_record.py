"""profiles/<case_id>/{model,parts,memory}.json: costs of one case, its layers and operators, its allocations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.schemas.summary_record import Flag, UsageSummary
from harness.core.schemas.vocabulary import Device, Format2, Grade, Precision, Record, SettingsId

CONVENTION = "2 FLOPs a multiply-add; activations, normalisations and poolings are left out"


class OnnxCount(Record):
    """Products of the exported fp32 graph, of one item: what torch's count is held against."""

    file: str
    macs: int
    macs_by_operator: dict[str, int]
    uncounted: tuple[str, ...]
    """Nodes that consist of products and are not in `macs`, in words."""


class Counts(Record):
    """What can be told of a model and a shape without measuring. Per item: one image, sequence or sample."""

    parameters: int | None
    """Elements; a tensor that is used twice counts once. None for an ONNX file, whose constants are not told apart."""
    trainable_parameters: int | None
    parameters_by_type: dict[str, int]
    """By class of the module that owns them."""
    macs: int | None
    """Multiply-adds of one item, at least so many where something is `uncounted`. None where nothing could be counted;
    then `count_notes` or `uncounted` say why."""
    flops: int | None
    counted_by: str | None
    uncounted: tuple[str, ...]
    """Operators that consist of products and that this counter does not know."""
    onnx_count: OnnxCount | None
    count_notes: tuple[str, ...]
    """Where the two counts disagree, what was left out and why."""
    weight_bytes: dict[Precision, int]
    """Parameters and buffers in memory."""
    activation_bytes: int | None
    """Estimate, of one item in the case's precision: tensors of one pass that are alive at the same time."""
    activation_bytes_by: str
    """How it was estimated; or why it was not."""


class MeasuredMemory(Record):
    """Peak of what one pass allocates, as the library's own allocator tells; memory.json has the whole story."""

    peak_bytes: int | None
    activations_bytes: int | None = None
    """Peak of activations alone, without what operators use inside themselves; None where these are not told apart."""
    by: str
    """How it was measured; or why it was not."""
    environment_id: str


class FileSize(Record):
    """A file that a backend can load this model from."""

    kind: Literal["weights", "onnx", "engine"]
    name: str
    """The precision; of an ONNX variant `<precision>-<variant>`."""
    path: str
    size_bytes: int


class Achieved(Record):
    """The counted work over the time that `run` measured for the same case."""

    latency_ns: float | None
    device_ns: float | None
    """On a GPU: what flops_per_s is taken over, where it is known."""
    items_per_s: float | None
    tokens_per_s: float | None
    """items_per_s times the sequence length; None where an item is no text."""
    flops_per_s: float | None
    peak_share: float | None
    """Of the best measured matrix product in that precision."""
    notes: tuple[str, ...]
    """Why a figure is None."""


class _Head(Record):
    schema_version: Format2 = 2
    case_id: str
    settings_id: SettingsId
    created_at: str
    environment_id: str
    """Where the memory was measured."""
    model: str
    backend: str
    setting: str
    precision: Precision
    batch_size: int
    sequence_length: int | None
    convention: str = CONVENTION


class ModelProfile(Counts, _Head):
    """The model level of one case: its fields are those of Counts, and what follows from the batch and from time."""

    files: tuple[FileSize, ...]
    macs_per_batch: int | None
    flops_per_batch: int | None
    least_bytes: int | None
    """Of one batch: weights, inputs and outputs once, in the case's precision; of int8 with one byte a weight."""
    flops_per_byte: float | None
    """Arithmetic intensity: flops_per_batch / least_bytes."""
    activation_estimated_bytes: int | None
    """activation_bytes times the batch."""
    activation_measured_bytes: int | None
    """Most bytes that a pass of the case's batch allocates at once, operators' temporaries included."""
    activation_alone_bytes: int | None = None
    """Without those temporaries: what the estimate is of. None where they are not told apart, as in older files."""
    activation_measured_by: str
    memory_files: tuple[str, ...] = ()
    """Beside this one: memory.json and what was made from it."""
    export_sha256: str | None = None
    """request_sha256 of the export that was profiled; None in files from before it was told."""
    achieved: Achieved


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
    """When the GPU worked while a trace was taken, in ns over all its inferences (harness/profiling/launch_gaps.py)."""

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
    """None in files from before profiles were graded: they count as not watched (harness/profiling/grades.py)."""
    flags: tuple[Flag, ...] = ()
    """Why the grade is no better, and what else happened meanwhile."""


Category = Literal["parameters", "inputs", "held", "activations", "temporaries", "unattributed"]
"""parameters: with buffers. inputs: every batch that lies where the model reads it. held: what else the library's
allocator holds between passes, such as workspaces. temporaries: freed before the operator that made them returned.
activations: what an operator made and left. unattributed: one of the two, made where the profiler names no operator."""


class MemoryBlock(Record):
    """One allocation of the pass."""

    size_bytes: int
    category: Category
    operator: str | None
    """The one that was called, not one that it calls in turn; None where the profiler names none."""
    shapes: str
    """Of that operator's inputs."""


class Fragmentation(Record):
    """How a caching allocator's reserved memory is used once the pass is over."""

    reserved_bytes: int
    allocated_bytes: int
    unused_bytes: int
    """reserved_bytes − allocated_bytes."""
    unused_share: Annotated[float, Field(ge=0, le=1)]
    """Of what is reserved; 0 where nothing is."""
    largest_free_bytes: int
    """The largest request that it can serve without reserving more."""
    unused_at_peak_bytes: int
    """The same difference when most was allocated."""


class MemoryTimeline(Record):
    """One warm pass of one batch. Bytes are those of the library's own allocator."""

    schema_version: Literal[1] = 1
    case_id: str
    device: Device
    by: str
    """How it was measured."""
    allocations: int
    """In the pass."""
    frees: int
    peak_bytes: int
    """Most bytes at once, with what lay there before the pass."""
    at_peak: dict[Category, int]
    """Who holds them; adds up to peak_bytes."""
    alive_at_peak: tuple[MemoryBlock, ...]
    """Of the pass, the largest first, at most harness.backends.torch.profile_memory.MAX_BLOCKS."""
    pass_peak_bytes: int
    """Less what lay there before the pass."""
    activations_peak_bytes: int | None
    """Most bytes of activations at once, which need not be at the same moment; None where some are unattributed."""
    at_ns: tuple[int, ...]
    """Host time of each change, from the first one on: on a GPU that of the call, which the kernel's follows."""
    allocated_bytes: tuple[int, ...]
    """From each change on."""
    temporaries_bytes: tuple[int, ...]
    """How much of them is temporary."""
    reserved_bytes: tuple[int, ...] | None
    """What a caching allocator had taken from the device by then; None where there is none."""
    fragmentation: Fragmentation | None
    snapshot: str | None
    """File for PyTorch's memory viewer (pytorch.org/memory_viz), beside this one."""
    notes: tuple[str, ...] = ()
    """What cannot be told, and why."""
