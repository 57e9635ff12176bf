"""profiles/<case_id>/{model,parts,memory}.json: work and size of one case, times of its parts, and its allocations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.schemas.vocabulary import Device, Flag, Format2, Grade, Precision, Record, SettingsId, UsageSummary

GenerationPhase = Literal["prefill", "decode"]
"""Of generation: the pass over the prompts, up to the first tokens; one further token of each sequence."""

CONVENTION = "2 FLOPs a multiply-add; activations, normalisations and poolings are left out"


class OnnxCount(Record):
    """Products of the exported fp32 graph, per sample: the check of torch's count."""

    file: str
    macs: int
    macs_by_operator: dict[str, int]
    uncounted: tuple[str, ...]
    """Nodes made of products that are not in `macs`, in words."""


class Counts(Record):
    """Counts for a model and a shape that need no measurement. A sample is an image, a sequence or a tensor."""

    parameters: int | None
    """Elements; a tensor that is used twice counts once. None for an ONNX file, where other constants look the same."""
    trainable_parameters: int | None
    parameters_by_type: dict[str, int]
    """By the class of the module that owns them."""
    macs: int | None
    """Multiply-adds per sample, a lower bound where something is `uncounted`. None where nothing could be counted; then
    `count_notes` or `uncounted` give the reason."""
    flops: int | None
    counted_by: str | None
    uncounted: tuple[str, ...]
    """Operators made of products that this counter does not know."""
    onnx_count: OnnxCount | None
    count_notes: tuple[str, ...]
    """Differences between the two counts, parts that were left out, and the reasons."""
    weight_bytes: dict[Precision, int]
    """Parameters and buffers in memory."""
    activation_bytes: int | None
    """Estimate per sample in the case's precision: tensors of one pass that are alive at the same time."""
    activation_bytes_by: str
    """How it was estimated, or why not."""


class MeasuredMemory(Record):
    """Peak allocation of one pass, as the library's own allocator reports it; details are in memory.json."""

    peak_bytes: int | None
    activations_bytes: int | None = None
    """Peak of activations alone, without operators' internal buffers; None where the two cannot be separated."""
    by: str
    """How it was measured, or why not."""
    environment_id: str


class FileSize(Record):
    """A file that a backend can load this model from."""

    kind: Literal["weights", "onnx", "engine"]
    name: str
    """The precision; of an ONNX variant `<precision>-<variant>`."""
    path: str
    size_bytes: int


class Achieved(Record):
    """The counted work divided by the time that `run` measured for the same case."""

    latency_ns: float | None
    device_ns: float | None
    """On a GPU: the time for flops_per_s, where it is known."""
    items_per_s: float | None
    tokens_per_s: float | None
    """items_per_s times the sequence length; None where a sample is not a text."""
    flops_per_s: float | None
    peak_share: float | None
    """Share of the best measured matrix product in that precision."""
    notes: tuple[str, ...]
    """Why a figure is None."""


class _Head(Record):
    schema_version: Format2 = 2
    case_id: str
    settings_id: SettingsId
    created_at: str
    environment_id: str
    """Environment in which the memory was measured."""
    model: str
    backend: str
    setting: str
    precision: Precision
    batch_size: int
    sequence_length: int | None
    convention: str = CONVENTION
    phase: GenerationPhase | None = None
    """Of a case of generation; its sequence_length is that of the prompts."""


class ModelProfile(Counts, _Head):
    """The model level of one case: the fields of Counts, and the figures that depend on the batch and on time."""

    files: tuple[FileSize, ...]
    macs_per_batch: int | None
    flops_per_batch: int | None
    least_bytes: int | None
    """Per batch: weights, inputs and outputs once, in the case's precision; for int8 with one byte per weight."""
    flops_per_byte: float | None
    """Arithmetic intensity: flops_per_batch / least_bytes."""
    activation_estimated_bytes: int | None
    """activation_bytes times the batch."""
    activation_measured_bytes: int | None
    """Most bytes that a pass of the case's batch has allocated at once, operators' temporaries included."""
    activation_alone_bytes: int | None = None
    """The same without temporaries, to compare with the estimate. None where these are not separate, as in older
    files."""
    activation_measured_by: str
    memory_files: tuple[str, ...] = ()
    """Files beside this record: memory.json and the files made from it."""
    export_sha256: str | None = None
    """request_sha256 of the profiled export; None in older files."""
    achieved: Achieved


LayerGroup = Literal[
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
"""`layout`: copies that only reorder a tensor; graphs have them, modules do not."""


class LayerRow(Record):
    """One layer: a module of the tree, or a node or fused layer of a graph. Times are means over the runs of typical
    length, so that self times add up."""

    name: str
    kind: str
    """The module's class, or the operator's type."""
    depth: int = 0
    """Depth in the module tree, where the model itself is 0; 0 for every node of a graph."""
    parent: str | None = None
    """The module that contains it; for a node of a graph, the module that it comes from. None where that is unknown."""
    calls: float = 1
    """Per run."""
    self_ns: int
    """Time without its children."""
    total_ns: int
    stream_ns: int | None = None
    """On a GPU: time of the stream in the module but not in its children, waits for launches included; `self_ns` and
    `total_ns` are then times of kernels. None elsewhere."""
    flops: int | None = None
    """2 per multiply-add, for one run of the whole batch; None where they are unknown."""
    parameters: int | None = None
    """Elements, children included."""
    output_shapes: tuple[tuple[int, ...], ...] = ()
    output_bytes: int | None = None
    members: tuple[str, ...] = ()
    """The layers that were fused into it, by their names in the graph before fusion."""
    group: LayerGroup = "other"


class OperatorRow(Record):
    """One operator with one set of input shapes, or one GPU kernel. Times are means per run."""

    name: str
    shapes: str
    calls: float
    self_cpu_ns: int
    self_device_ns: int | None
    """For a kernel, which has no time on the host; 0 for operators, so that device times add up. None on a CPU."""


class Tokenising(Record):
    """Tokenisation of texts for a text model; not part of the case's latency at the compute boundary."""

    time_ns: int | None
    """For one batch, on the host; None where no tokenizer makes the inputs, and `by` says so."""
    texts: int
    tokens_a_text: int | None
    by: str
    """How it was measured and with which tokenizer, or why not."""


class LaunchGaps(Record):
    """Busy and idle time of the GPU in a trace, in ns over all its inferences (harness/profiling/launch_gaps.py)."""

    window_ns: int
    """From the start of the first work on the GPU to the end of the last."""
    busy_ns: int
    """Time in which any work was running."""
    waited_ns: int | None
    """The part of the idle time in which the next work was not launched yet; None where the trace has no launches."""
    work_ns: int
    """Sum of the durations of all work: more than busy_ns where work overlaps."""
    kernels_ns: int
    """For one inference: the operators of the profile that are work in the trace."""


class OperatorGaps(Record):
    """Time without an operator in a trace of a CPU, in ns over all its inferences: Python, and waits between calls."""

    window_ns: int
    """From the start of the first operator to the end of the last."""
    busy_ns: int
    """Time in which any operator ran."""


class PartsProfile(Record):
    """Time of one case by layer and operator, from its backend's own profiler in the last repeat."""

    schema_version: Literal[1] = 1
    layers: tuple[LayerRow, ...]
    operators: tuple[OperatorRow, ...]
    traces: tuple[str, ...]
    """Files in Chrome's trace format, relative to the case's folder."""
    window_ns: int
    """One run with profiling on, of typical length, until the device has finished."""
    plain_ns: int
    """The same without profiling, in the same process."""
    notes: tuple[str, ...] = ()
    """Missing parts, and why."""
    runs: int | None = None
    """Inferences over which the parts were timed; None in older files."""
    tokenising: Tokenising | None = None
    """None where the inputs are not texts, and in older files."""
    launch_gaps: LaunchGaps | None = None
    """None on a CPU, for a backend whose trace has no starts of kernels, and in older files."""
    operator_gaps: OperatorGaps | None = None
    """None on a GPU, for a profiler that reports no operators with their starts, and in older files."""
    ratios: tuple[float, ...] = ()
    """Parts divided by plain latency for each repeat, a process each, in order; empty in older files."""
    steady: bool | None = None
    """Whether the last two repeats agree; None in older files."""
    usage: UsageSummary | None = None
    """Machine load while the last repeat was timed; None without a record of the monitor, and in older files."""
    grade: Grade | None = None
    """None in older files, which count as not monitored (harness/profiling/profile_grades.py)."""
    flags: tuple[Flag, ...] = ()
    """Reasons for the grade, and other events during the profile."""


Category = Literal["parameters", "inputs", "held", "activations", "temporaries", "unattributed"]
"""parameters: with buffers. inputs: every batch in the memory that the model reads. held: other memory that the
library's allocator keeps between passes, such as workspaces. temporaries: freed before the operator that made them
returned. activations: made by an operator and kept. unattributed: temporaries or activations without a known operator.
"""


class MemoryBlock(Record):
    """One allocation of the pass."""

    size_bytes: int
    category: Category
    operator: str | None
    """The operator that was called, not an operator inside it; None where the profiler names none."""
    shapes: str
    """Shapes of that operator's inputs."""


class Fragmentation(Record):
    """Use of a caching allocator's reserved memory after the pass."""

    reserved_bytes: int
    allocated_bytes: int
    unused_bytes: int
    """reserved_bytes − allocated_bytes."""
    unused_share: Annotated[float, Field(ge=0, le=1)]
    """Share of the reserved bytes; 0 where none are reserved."""
    largest_free_bytes: int
    """The largest allocation possible without reserving more."""
    unused_at_peak_bytes: int
    """reserved_bytes − allocated_bytes at the peak of allocation."""


class MemoryTimeline(Record):
    """Allocations of one warm pass of one batch. Bytes are those of the library's own allocator."""

    schema_version: Literal[1] = 1
    case_id: str
    device: Device
    by: str
    """How it was measured."""
    allocations: int
    """Allocations in the pass."""
    frees: int
    peak_bytes: int
    """Most bytes at once, with those allocated before the pass."""
    at_peak: dict[Category, int]
    """Bytes by category at the peak; they add up to peak_bytes."""
    alive_at_peak: tuple[MemoryBlock, ...]
    """Allocations of the pass, the largest first, at most harness.backends.torch.profile_memory.MAX_BLOCKS."""
    pass_peak_bytes: int
    """peak_bytes without the bytes allocated before the pass."""
    activations_peak_bytes: int | None
    """Most bytes of activations at once, possibly at another moment; None where some are unattributed."""
    at_ns: tuple[int, ...]
    """Host time of each change since the first: on a GPU the time of the call, before that of the kernel."""
    allocated_bytes: tuple[int, ...]
    """Bytes after each change."""
    temporaries_bytes: tuple[int, ...]
    """The temporary part of allocated_bytes."""
    reserved_bytes: tuple[int, ...] | None
    """Bytes that a caching allocator had reserved on the device after each change; None without such an allocator."""
    fragmentation: Fragmentation | None
    snapshot: str | None
    """File for PyTorch's memory viewer (pytorch.org/memory_viz), beside this one."""
    notes: tuple[str, ...] = ()
    """What is unknown, and why."""
