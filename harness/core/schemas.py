"""Every file on disk, typed and versioned. Times are integers in nanoseconds, sizes integers in bytes.

A `schema_version` is raised when a reader of the old version would misread or refuse the new file:

    Plan          1  first format
    ExportRecord  1  first format
    EngineRecord  1  first format
    Roof          1  first format
    Environment   1  first format
    RawRecord     1  first format: Measured | Failed, sealed with a checksum (core/store.py)
    Usage         1  first format
    Energy        1  first format
    SelfTest      1  first format
    Summary       1  first format
    Comparison    1  first format
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Device = Literal["cpu", "cuda"]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "int8"]
"""`tf32`: fp32 tensors whose products a GPU may compute with 10-bit mantissas; `fp32` means that it may not."""
Boundary = Literal["compute", "transfer", "e2e"]
Mode = Literal["sync", "pipelined", "offline"]
Weights = Literal["pretrained", "seeded", "own"]
"""`pretrained`: published weights; `seeded`: random from a fixed seed; `own`: the user's module or ONNX file."""
Quantisation = Literal["dynamic", "static"]
"""How int8 activations get their scale: while running, or beforehand from calibration inputs (zoo/int8.py)."""
Kind = Literal["image", "text", "tensor"]
"""What one item of a batch is, and so what throughput counts: images, sequences, samples."""
Status = Literal["measured", "skipped", "failed", "missing"]
Grade = Literal["A", "B", "C", "F"]
Verdict = Literal["FASTER", "SLOWER", "SAME", "AMBIGUOUS", "NEW", "GONE", "NOT COMPARABLE"]
"""What became of a row since the baseline; NEW and GONE stand in one of the two summaries only."""
Quantity = Literal["ns", "per_s", "bytes", "ratio"]
Stopped = Literal["planned rounds", "interval reached", "round limit", "time budget", "failed round", "interrupted"]
"""Why a case has no more rounds."""


class Record(BaseModel):
    """Base of everything that is stored: immutable, no unknown fields, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


# --- plan.json ---------------------------------------------------------------------------------------------------


class Measurement(Record):
    """How each case is measured (METHOD: warm-up until steady, stop rule, fresh process per case and round)."""

    rounds: Annotated[int, Field(ge=1, le=100)] = 3
    """Fresh processes per case; the confidence interval is taken over them."""
    max_rounds: Annotated[int, Field(ge=1, le=100)] | None = None
    """Further rounds, up to this number, for cases whose interval is wider than `target_interval`; None: none."""
    target_interval: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """Relative half-width of the 95% CI over processes at which a case needs no further round."""
    budget_s: Annotated[float, Field(gt=0)] | None = None
    """No further round begins after so many seconds of the run stage; the first `rounds` are always measured."""
    seed: int = 20261127
    """Order of cases within a round, and weights of `seeded` models."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """Threads for every backend alike; None: what affinity and the cgroup quota give."""
    warmup_min_s: Annotated[float, Field(ge=0)] = 0.2
    warmup_min_iterations: Annotated[int, Field(ge=1)] = 10
    warmup_max_s: Annotated[float, Field(ge=0)] = 20.0
    window_s: Annotated[float, Field(gt=0)] = 0.05
    """Length of one of the three windows whose medians must agree before measuring starts."""
    steady_tolerance: Annotated[float, Field(gt=0, lt=1)] = 0.01
    block_s: Annotated[float, Field(gt=0)] = 0.1
    block_iterations: Annotated[int, Field(ge=1)] = 20
    target_ci: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """Relative half-width of the 95% CI over block medians at which a process stops."""
    min_samples: Annotated[int, Field(ge=1)] = 100
    max_samples: Annotated[int, Field(ge=1)] = 20_000
    max_s: Annotated[float, Field(gt=0)] = 10.0
    """Longest measuring phase of one process; a case that stops here keeps its samples and says so."""
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Longest life of one process, compile time included; after it the case is a `Failed` row."""
    parity_samples: Annotated[int, Field(ge=8)] = 64
    """Different inputs: all are compared with the reference before timing, and they rotate while timing."""


class Gate(Record):
    """Largest allowed distance from the fp32 reference for one precision."""

    relative_l2: Annotated[float, Field(gt=0)]
    top1_agreement: Annotated[float, Field(gt=0, le=1)] | None = None
    """Smallest share of equal arg-max answers; asked only of classifiers with trained weights."""
    cosine: Annotated[float, Field(gt=0, le=1)] | None = None
    """Smallest cosine between a batch of outputs and its reference: the measure of embeddings."""


class ReportOptions(Record):
    title: str = "Inferometer report"
    baseline_backend: str = "torch-eager"
    """Speedups are against this backend in fp32, same model, batch and sequence length."""
    latency_limit_ms: Annotated[float, Field(gt=0)] | None = None
    """What a caller can wait; recommendations name the batch size with the most throughput within it."""
    charts: bool = True


class PlannedModel(Record):
    """A model of the plan: what to load and where it lives below `models/`."""

    name: str
    slug: str
    weights: Weights
    kind: Kind
    sequence_lengths: tuple[int, ...] = ()
    exported: bool = True
    """False where no case of it loads anything, so that there is nothing to export."""
    onnx_precisions: tuple[Precision, ...] = ()
    """ONNX files that the cases of this plan need."""
    onnx_variants: tuple[str, ...] = ()
    """Further ONNX files that settings of this plan load, as `fp16-fused` (ExportRecord.onnx_variants)."""
    raw_inputs: bool = False
    """True where a case of this plan has the e2e boundary and needs texts or JPEG files."""


class Case(Record):
    """One cell of the matrix."""

    case_id: str
    model: str
    slug: str
    backend: str
    device: Device
    precision: Precision
    batch_size: Annotated[int, Field(ge=1)]
    sequence_length: Annotated[int, Field(ge=1)] | None
    boundary: Boundary
    mode: Mode
    weights: Weights
    setting: str = "default"
    """Name of the way to run the backend, from its entry in the table of backends (harness/backends/__init__.py)."""
    tuned: bool = False
    """True where this is one of several settings that are tried: the fastest of round 1 gets the other rounds."""
    skip_reason: str | None = None
    """Set where the combination cannot run at all; such a case is reported and never started."""


class Plan(Record):
    """Every case that is owed an answer."""

    schema_version: Literal[1] = 1
    plan_id: str
    """Hash of what decides whether samples may be joined: device and measurement settings, less `rounds`."""
    config: str
    config_sha256: str
    device: Device
    models: tuple[PlannedModel, ...]
    measurement: Measurement
    gates: dict[Precision, Gate]
    report: ReportOptions
    cases: tuple[Case, ...]


# --- export.json -------------------------------------------------------------------------------------------------


class Artifact(Record):
    """A file below the model's folder."""

    path: str
    sha256: str
    size_bytes: int


class OnnxArtifact(Artifact):
    exporter: str
    opset: int
    dtype_census: dict[str, int]
    """Number of weight elements by ONNX element type: what precision the file really holds."""
    external_data: Artifact | None = None
    """Weights in a file of their own beside it, where one file would pass protobuf's limit of 2 GiB."""
    quantisation: str | None = None
    """How an int8 file was quantised and on what calibrated, in words; None for other files."""

    def files(self) -> tuple[Artifact, ...]:
        """The file, and the one beside it where there is one."""
        return (self,) if self.external_data is None else (self, self.external_data)


class TensorSpec(Record):
    """One input or output; a string dimension is dynamic and names its axis (`batch`, `sequence`)."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


class ImagePreparation(Record):
    """JPEG bytes → float32 (3, crop, crop): decode, resize the short side, cut the centre, scale to 0…1, normalise."""

    kind: Literal["image"] = "image"
    resize: Annotated[int, Field(ge=1)]
    crop: Annotated[int, Field(ge=1)]
    resample: Literal["bilinear", "bicubic"]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class TextPreparation(Record):
    """Text → token ids with special tokens, cut to the set's sequence length, and their attention mask."""

    kind: Literal["text"] = "text"
    tokenizer: Artifact
    """The model's own, as the `tokenizers` library reads it."""


Preparation = Annotated[ImagePreparation | TextPreparation, Field(discriminator="kind")]
Answer = Literal["top-5", "embedding", "next token"]
"""What post-processing makes of the outputs: the five likeliest classes, a sentence embedding, or the next token."""


class RawInputs(Record):
    """The samples of an input set as a caller has them, for the e2e boundary."""

    items: Artifact
    """UTF-8 texts or JPEG files, one after the other (harness/zoo/raw.py)."""
    reference: Artifact
    """fp32 reference outputs for these items, prepared as the case prepares them."""
    preparation: Preparation
    answer: Answer


class InputSet(Record):
    """Real inputs of one sequence length (None for images) and the fp32 reference outputs for them."""

    sequence_length: int | None
    samples: int
    inputs: Artifact
    reference: Artifact
    source: str
    """Where the inputs come from, in words."""
    raw: RawInputs | None = None
    """None where no e2e case asked for them, or the model's preprocessing is not known."""

    def files(self, boundary: Boundary | None = None) -> tuple[Artifact, ...]:
        """What a case of that boundary loads; None: all."""
        plain = (self.inputs, self.reference)
        if self.raw is None or boundary not in ("e2e", None):
            return plain
        text = self.raw.preparation
        return (*plain, self.raw.items, self.raw.reference, *([text.tokenizer] if text.kind == "text" else []))


class OnnxCheck(Record):
    """One run of an exported file against torch."""

    precision: Precision
    batch_size: int
    sequence_length: int | None
    relative_l2: float
    max_abs: float


class Work(Record):
    """Arithmetic and memory traffic of one forward pass, for the roofline."""

    sequence_length: int | None
    flops_per_item: int
    """2 per multiply-add, counted by torch's FlopCounterMode with the attention's products included."""
    parameters: int
    """Weights that every pass reads at least once, whatever the batch: lookup tables are not among them."""
    input_bytes_per_item: int
    output_elements_per_item: int
    winograd_flops_per_item: int = 0
    """Of flops_per_item, in convolutions that Winograd's algorithm can do with fewer products."""
    uncounted: tuple[str, ...] = ()
    """Operators that the counter does not know, by name."""


class ExportRecord(Record):
    """What `export` made of one model."""

    schema_version: Literal[1] = 1
    request_sha256: str
    """Hash of what was asked for; an unchanged request with intact files is not exported again."""
    model: str
    slug: str
    weights: Weights
    weight_source: str
    kind: Kind
    classifier: bool
    """True where output 0 is (batch, classes) logits, so that top-1 means something."""
    parameters: int | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    module: Artifact | None
    """Weights for the PyTorch backends; None for a user's ONNX file, which has no module."""
    onnx: dict[Precision, OnnxArtifact]
    onnx_variants: dict[str, OnnxArtifact] = {}
    """Further forms of those files by `<precision>-<variant>`: `fp16-fused` (attention and normalisations as ONNX
    Runtime's own operators), which only some backends read."""
    work: tuple[Work, ...] = ()
    """What one item costs at least, by sequence length; empty where nothing could be counted."""
    input_sets: tuple[InputSet, ...]
    checks: tuple[OnnxCheck, ...]
    versions: dict[str, str]
    seconds: dict[str, float]
    """Wall seconds by step: load, inputs, reference, work, onnx, onnx-fp16, calibration, onnx-int8, check."""


# --- engines/<name>.json ------------------------------------------------------------------------------------------


class Profile(Record):
    """Range of one input's shapes that an engine takes, and the one it was tuned for."""

    minimum: tuple[int, ...]
    optimum: tuple[int, ...]
    maximum: tuple[int, ...]


class EngineRequest(Record):
    """What decides an engine, apart from where it is built."""

    onnx: str
    """Name of the ONNX file in the model's folder."""
    onnx_sha256: str
    precision: Precision
    profiles: dict[str, Profile]
    """By input name."""
    dynamic: bool = False
    """For all shapes of a plan, though there may be only one; else for exactly one."""
    workspace_bytes: int | None = None
    optimization_level: int | None = None
    hardware_compatible: bool = False
    version_compatible: bool = False
    fp16_io: bool = False
    """Inputs and outputs in fp16, so that no cast and half the traffic is needed at the ends."""


class EngineRecord(Record):
    """A TensorRT engine and where it may run: only on the GPU, driver and TensorRT that it was built with."""

    schema_version: Literal[1] = 1
    key: str
    """Hash of the request and of all that follows up to `driver`: an engine is built anew only when it changes."""
    request: EngineRequest
    tensorrt: str
    gpu: str
    sm: str
    """Compute capability, `9.0`."""
    driver: str
    engine: Artifact
    """Path below the model's folder: `engines/<name>.plan`."""
    build_s: float
    parity: Parity
    """Of the finished engine against the fp32 reference, over all inputs of its optimum shape."""
    kept_fp32: tuple[str, ...]
    """Layers that were kept in fp32 because their fp16 form failed the parity check; empty where none had to be."""
    layers: int
    precisions: dict[str, int]
    """Layers by the precision of their output, as the engine's own inspector tells."""
    timing_cache_sha256: str | None
    builder: dict[str, str]
    """Flags and tactic sources that the builder was given, in words."""


# --- roof.json ---------------------------------------------------------------------------------------------------


class Roof(Record):
    """Measured limits of one device: nothing that runs on it is faster."""

    schema_version: Literal[1] = 1
    created_at: str
    environment_id: str
    device: str
    """Name of the GPU."""
    uuid: str
    flops: dict[Precision, float]
    """Best matrix product, FLOP/s, 2 a multiply-add."""
    copy_bytes_per_s: float
    """Best device-to-device copy, bytes read plus bytes written."""
    launch_ns: float
    """Device time of one more dependent empty kernel in a CUDA graph."""
    h2d_bytes_per_s: float | None = None
    d2h_bytes_per_s: float | None = None
    """Copies from and to pinned host memory."""


# --- environments/<id>.json --------------------------------------------------------------------------------------


class Unavailable(Record):
    """A fact that could not be read, and why: never 0, never an empty string."""

    unavailable: str


class Machine(Record):
    cpu: str
    architecture: str
    logical_cpus: int
    physical_cores: int | Unavailable
    sockets: int | Unavailable
    numa_nodes: int | Unavailable
    smt: str | Unavailable
    microcode: str | Unavailable
    governor: str | Unavailable
    turbo: str | Unavailable
    max_frequency_mhz: int | Unavailable
    cpu_features: tuple[str, ...]
    """Instruction sets that decide what precision a library may choose: avx2, avx512f, avx512_bf16, amx_bf16, …"""
    memory_bytes: int
    hypervisor: str | Unavailable
    os: str
    kernel: str


class Limits(Record):
    affinity: tuple[int, ...]
    cpu_quota: float | None
    """Cores by cgroup quota; None where there is none."""
    memory_limit_bytes: int | None
    threads: int
    """What affinity and quota give: the threads of every backend."""
    container: str | None
    """How a container was recognised, None outside one."""
    image: str | None
    """Name of the container image, as whoever started it told (INFEROMETER_IMAGE)."""
    image_digest: str | None = None
    """Its id or digest (INFEROMETER_IMAGE_DIGEST): a name alone can be moved to another image."""


class Software(Record):
    python: str
    inferometer: str
    git_commit: str | None
    git_dirty: bool | None
    libraries: dict[str, str]
    build: dict[str, str]
    """Build facts that change numbers: torch's parallel backend and oneDNN, ONNX Runtime's build, …"""


class Gpu(Record):
    """The GPU that a case ran on, as NVML tells. Only what does not change while a run goes on."""

    name: str
    uuid: str
    sm: str
    """Compute capability, `9.0`."""
    memory_bytes: int
    driver: str
    cuda: str
    """Newest CUDA version that the driver serves."""
    vbios: str | Unavailable
    persistence: str | Unavailable
    ecc: str | Unavailable
    mig: str | Unavailable
    power_limit_w: float | Unavailable
    power_limit_default_w: float | Unavailable
    max_sm_mhz: int | Unavailable
    max_memory_mhz: int | Unavailable
    pcie: str | Unavailable
    """Generation and width of the link, `gen5 x16`."""
    bar1_bytes: int | Unavailable


class Environment(Record):
    """Where a sample was taken; stored once under its hash, named by every raw file."""

    schema_version: Literal[1] = 1
    machine: Machine
    limits: Limits
    software: Software
    gpu: Gpu | None = None
    """None where the case did not run on one."""


# --- raw/<case_id>/<round>.json ----------------------------------------------------------------------------------


class Clock(Record):
    name: str
    resolution_ns: float
    overhead_ns: int
    """Median of two reads back to back."""


class Block(Record):
    """One stretch of the timed loop without anything but inferences in it."""

    iterations: int
    wall_ns: int
    device_ns: int | None = None
    """Offline mode on a GPU: between events before the first and behind the last inference of the block."""
    enqueue_ns: int | None = None
    """Offline mode on a GPU: host time until the last submission returned."""


class Parity(Record):
    """Distance of a case's outputs from the fp32 reference (harness/parity.py)."""

    samples: int
    relative_l2: float | None
    """None when an output is not finite."""
    max_abs: float | None
    cosine: float | None
    top1_agreement: float | None
    """Share of equal arg-max answers; None where the model is no classifier."""
    nonfinite: int


class Placement(Record):
    """What really ran, read from the session, graph or module; never from the request."""

    device: str
    precision: str
    provider: str
    settings: dict[str, str | int | float | bool]
    """Settings that decide speed: threads, streams, layout, graph breaks, …"""
    dtype_census: dict[str, int]
    """Operators or weight elements by element type."""


class Memory(Record):
    peak_rss_bytes: int
    """Peak resident set of the process: interpreter, libraries, model, inputs."""
    baseline_rss_bytes: int
    """Resident set after imports and before load."""


class ColdCosts(Record):
    """Time until the first answer; `None` where the backend has no such step."""

    load: int
    compile: int | None
    compile_cached: bool | None
    """True when a compile cache of an earlier process was found, so that `compile` is not the full cost."""
    first_inference: int


class RawBase(Record):
    schema_version: Literal[1] = 1
    case_id: str
    round: int
    plan_id: str
    started_at: str
    environment_id: str | None


class SplitSamples(Record):
    """The three parts of each e2e sample, in ns: together they are the sample."""

    preprocess: tuple[int, ...]
    inference: tuple[int, ...]
    postprocess: tuple[int, ...]


class DeviceSamples(Record):
    """The same samples as a GPU's event clock and the submitting host saw them, in ns (harness/measure/device.py)."""

    clock: Clock
    """Name, resolution, and the device time between two events recorded back to back."""
    device_ns: tuple[int, ...]
    """Between two events on the backend's own stream, around all that one sample enqueues."""
    enqueue_ns: tuple[int, ...]
    """Host time until the submission returned."""
    h2d_ns: tuple[int, ...] = ()
    """Transfer boundary: copy from pinned host memory, the pass, and the copy back. Together they are device_ns."""
    compute_ns: tuple[int, ...] = ()
    d2h_ns: tuple[int, ...] = ()


class Measured(RawBase):
    status: Literal["measured"] = "measured"
    artifacts: dict[str, str]
    """sha256 by file name of what was loaded."""
    threads: int
    clock: Clock
    warmup_ns: tuple[int, ...]
    latency_ns: tuple[int, ...]
    """Empty in offline mode, which waits for a block and not for a batch: its blocks are its samples."""
    split_ns: SplitSamples | None = None
    """For the e2e boundary."""
    device: DeviceSamples | None = None
    """On a GPU; its tuples are empty in offline mode, whose blocks carry their own."""
    blocks: tuple[Block, ...]
    steady: bool
    """The three warm-up windows agreed."""
    stop: Literal["converged", "time limit", "sample limit"]
    parity_before: Parity | None
    """All inputs, before timing. None where the backend computes nothing (noop)."""
    parity_timed: Parity | None
    """Outputs of timed iterations, taken between blocks."""
    placement: Placement
    memory: Memory
    cold_ns: ColdCosts
    notes: tuple[str, ...] = ()


class Failed(RawBase):
    status: Literal["failed"] = "failed"
    error: str
    hint: str
    phase: str
    """Where it happened: start, load, compile, reference check, warm-up, measure, outputs check."""
    stderr_tail: str


RawRecord = Annotated[Measured | Failed, Field(discriminator="status")]


# --- raw/<case_id>/<round>.usage.json ----------------------------------------------------------------------------


class GpuSample(Record):
    """One reading of the whole card by NVML; None where it does not tell (the reason stands in Usage.unavailable)."""

    sm_mhz: int | None
    memory_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    utilisation_percent: int | None
    memory_used_bytes: int | None
    reasons: tuple[str, ...]
    """Why the clock is held back, by NVML's names: `hw_slowdown`, `sw_power_cap`, `sw_thermal`, …"""
    other_processes: int | None
    """Compute processes that are not the case's; None where process ids cannot be told apart."""


class UsageSample(Record):
    """What the machine and the case's process did since the sample before; None where it cannot be read."""

    at_ns: int
    """Since the process was first seen."""
    phase: str
    cpu_percent: float
    """CPU time of the case's process; 100 is one CPU."""
    others_percent: float
    """CPU time of everything else, the monitor's own left out; 100 is one CPU."""
    steal_percent: float | None
    """Time that the hypervisor gave to other guests; 100 is one CPU."""
    rss_bytes: int
    major_faults: int
    minor_faults: int
    read_bytes: int | None
    written_bytes: int | None
    frequency_mhz: float | None
    temperature_c: float | None
    throttled_periods: int | None
    """Periods in which the cgroup's CPU quota held its processes back."""
    thermal_events: int | None = None
    """Times that heat lowered the clock, as the processor itself counts them."""
    gpu: GpuSample | None = None


class Usage(Record):
    """What the monitor saw of one process; written by a process of its own."""

    schema_version: Literal[1] = 1
    case_id: str
    round: int
    plan_id: str
    interval_ns: int
    samples: tuple[UsageSample, ...]
    pss_peak_bytes: int | None
    """Proportional set size (shared pages by share), read once, after the timed loop: reading it stops the process."""
    gpu_memory_before_bytes: int | None = None
    """Memory in use on the whole card before the case's process came to it."""
    unavailable: dict[str, str]
    """Why a field is None."""
    monitor_cpu_ns: int
    """CPU time that the monitor itself took while it watched."""
    watched_ns: int


# --- energy/<case_id>.json ---------------------------------------------------------------------------------------


class Energy(Record):
    """What one inference of a case costs in electricity: measured back to back, in a pass of its own."""

    schema_version: Literal[1] = 1
    case_id: str
    plan_id: str
    created_at: str
    environment_id: str | None
    gpu: str
    uuid: str
    batch_size: int
    idle_w: float
    """Mean power of the card over `idle_ns`, before the first case came to it."""
    idle_ns: int
    energy_j: float
    """By the card's own counter over the window: everything, idle power included."""
    window_ns: int
    """From the first timed inference to the last, with what little lies between the blocks."""
    busy_ns: int
    """The blocks' part of it."""
    batches: int
    joules_per_inference: float
    """Of one batch: (energy_j - idle_w x window) / batches."""
    joules_per_item: float


# --- summary.json ------------------------------------------------------------------------------------------------


class Interval(Record):
    low: float
    high: float


class Latency(Record):
    """Statistics of one row, in nanoseconds; what cannot be known from the samples is None.

    A row in offline mode has no latency. Its figures are wall time per batch, one a process: median, ci95, mean and
    process_medians are those of it, n counts batches, and everything that needs single latencies is None.
    """

    median: float
    """Median of the process medians: the headline."""
    ci95: Interval | None
    """Over processes; None with one round."""
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    max: float | None
    mean: float
    iqr: float | None
    cv: float | None
    lag1_autocorrelation: float | None
    n: int
    rounds: int
    process_medians: tuple[float, ...]
    percentile_ci95: dict[str, Interval] = {}
    """By name (p50, p90, p95, p99): order statistics of the pooled samples; absent where they cannot give one."""


class Part(Record):
    """One part of an e2e latency."""

    median_ns: float
    """Median of the process medians."""
    share: float
    """Of the time of all samples; the three shares add up to 1."""


class Split(Record):
    """Where the time of an e2e row goes."""

    preprocess: Part
    inference: Part
    postprocess: Part


class Speedup(Record):
    """Ratio baseline / this row, of same-round medians."""

    ratio: float
    ci95: Interval | None
    baseline: str


class GpuUsage(Record):
    """What the card did while a row was timed, over all its rounds."""

    sm_mhz_min: int | None
    sm_mhz_mean: float | None
    sm_mhz_max: int | None
    memory_mhz_mean: float | None
    temperature_c_max: int | None
    power_w_mean: float | None
    power_w_max: float | None
    utilisation_percent_mean: float | None
    memory_peak_bytes: int | None
    """Growth of the memory in use on the whole card since before the process: NVML cannot see into PID namespaces."""
    reasons: dict[str, float]
    """Share of the samples in which the clock was held back, by reason."""
    other_processes_max: int | None
    samples: int = 0
    """Looks at the card in the timed windows together."""
    memory_before_bytes: int | None = None
    """In use on the whole card before the case's process came to it; the most of all rounds."""


class UsageSummary(Record):
    """What the monitor saw while a row was timed (phase `measure`), over all its rounds. 100% is one CPU."""

    rounds: int
    """Rounds that were watched."""
    watched_ns: int
    """Length of the timed windows together."""
    cpu_percent_mean: float
    cpu_percent_peak: float | None
    """Peaks are None where no sample was long enough to be read on its own (the kernel counts in ticks of 10 ms)."""
    others_percent_mean: float
    others_percent_peak: float | None
    steal_percent_mean: float | None
    steal_percent_peak: float | None
    rss_peak_bytes: int
    pss_peak_bytes: int | None
    major_faults: int
    minor_faults: int
    read_bytes: int | None
    written_bytes: int | None
    frequency_mhz_min: float | None
    frequency_mhz_mean: float | None
    frequency_mhz_max: float | None
    temperature_c_max: float | None
    throttled_periods: int | None
    thermal_events: int | None
    unavailable: dict[str, str]
    """Why a figure is None, by the name of the counter."""
    monitor_share: float
    """CPU time that the monitor itself took, as a share of the time it watched; the largest of the rounds."""
    gpu: GpuUsage | None = None


class DeviceTimes(Record):
    """A row by the GPU's event clock: medians of the process medians, in nanoseconds a batch."""

    clock: Clock
    device: float
    device_ci95: Interval | None
    enqueue: float
    h2d: float | None = None
    compute: float | None = None
    d2h: float | None = None
    """The parts of the transfer boundary."""
    overlap: float | None = None
    """Share of the copies' time that was hidden behind computing: 0 one after the other, 1 all of it."""


class Roofline(Record):
    """A row against what its device can do at most."""

    flops: int
    """Of one batch."""
    bytes: int
    """Least memory traffic of one batch: weights, inputs and outputs once."""
    flops_share: float
    """Achieved FLOP/s over the best measured matrix product of that precision."""
    bytes_share: float
    """Least traffic over device time, over the best measured copy."""
    limit: Literal["compute", "memory", "launch", "host"]
    """What bounds the row."""


class Flag(Record):
    """Why a row is not grade A, and what to do about it."""

    name: str
    detail: str
    remedy: str


class Row(Record):
    case_id: str
    model: str
    backend: str
    device: Device
    precision: Precision
    batch_size: int
    sequence_length: int | None
    boundary: Boundary
    mode: Mode
    weights: Weights
    setting: str = "default"
    kind: Kind
    status: Status
    grade: Grade | None
    reason: str | None
    """Why a row is skipped, failed or missing."""
    hint: str | None
    latency_ns: Latency | None
    split: Split | None = None
    """For the e2e boundary."""
    device_ns: DeviceTimes | None = None
    """On a GPU."""
    roofline: Roofline | None = None
    tried: bool = False
    """True for a setting that was measured to choose among several and is not the fastest of its backend."""
    throughput_per_s: float | None
    """Items per second of wall time of the timed loop."""
    speedup: Speedup | None
    parity: Parity | None
    placement: Placement | None
    memory_bytes: int | None
    cold_ns: ColdCosts | None
    threads: int | None
    """What really ran, so that conditions come from the samples and not from the plan."""
    clock: Clock | None
    """Of the first round; its overhead is what BELOW_TIMER is judged by."""
    artifacts: dict[str, str]
    """sha256 by file name of what was loaded: tells rows apart later, and which ones needed an ONNX export."""
    flags: tuple[Flag, ...]
    usage: UsageSummary | None = None
    """None where nobody watched."""
    stopped: Stopped | None = None
    """Why there are no more rounds; None where there are none at all."""


class Summary(Record):
    """A row for every planned case, and the conditions they share."""

    schema_version: Literal[1] = 1
    plan_id: str
    config: str
    config_sha256: str | None = None
    title: str
    baseline_backend: str
    latency_limit_ms: float | None = None
    charts: bool
    """From the configuration: whether the report draws any."""
    created_at: str
    measured_from: str | None
    measured_to: str | None
    environments: dict[str, Environment]
    rounds: int
    exports: dict[str, ExportRecord]
    """By model name: what the rows were measured on, and the export's own cost."""
    engines: dict[str, EngineRecord] = {}
    """By the path that rows name among their artifacts, below the model's folder, with the slug before it."""
    roof: Roof | None = None
    notes: tuple[str, ...]
    """Damaged or foreign files that were left out, by name."""
    rows: tuple[Row, ...]


# --- comparison.json ---------------------------------------------------------------------------------------------


class Side(Record):
    """One of the two summaries."""

    path: str
    plan_id: str
    rounds: int
    measured_from: str | None
    measured_to: str | None


class Difference(Record):
    """A fact that is not the same on both sides."""

    name: str
    baseline: str
    current: str
    refuses: bool
    """True where it makes latencies incomparable: another machine, or more or less of it to use."""


class ComparedRow(Record):
    """A row of either summary. Ratios are current / baseline latency: above 1 is slower."""

    case_id: str
    model: str
    backend: str
    precision: Precision
    batch_size: int
    sequence_length: int | None
    boundary: Boundary
    mode: Mode
    weights: Weights
    verdict: Verdict
    reason: str | None
    """Why it was not compared, or what would decide an ambiguous row."""
    baseline_ns: float | None
    current_ns: float | None
    """Headline latencies; None where there is none or the row is void."""
    ratio: float | None
    """current_ns / baseline_ns."""
    ci95: Interval | None
    p_holm: float | None
    """Welch's p on log process medians, Holm-adjusted over the comparison."""
    fails: bool
    """SLOWER by more than was allowed."""
    changed: tuple[str, ...]
    """What the row ran on that is not the same: artifacts, provider, settings."""


class Judgement(Record):
    """One row held against one threshold."""

    threshold: str
    case_id: str
    outcome: Literal["PASS", "FAIL", "UNKNOWN"]
    """UNKNOWN: the figure is withheld, void or was never measured; it fails too."""
    quantity: Quantity
    value: float | None
    limit: float
    ci95: Interval | None
    clear: bool | None
    """True where the whole interval lies on the value's side of the limit; None without an interval."""
    reason: str | None


class Comparison(Record):
    """A summary against an earlier one, against thresholds, or both."""

    schema_version: Literal[1] = 1
    created_at: str
    baseline: Side | None
    """None where only thresholds were asked for."""
    current: Side
    equivalence: float
    max_regression: float
    common_ratio: float | None
    """Middle ratio of the compared rows: what they all share moved by this much. None with fewer than three."""
    differences: tuple[Difference, ...]
    rows: tuple[ComparedRow, ...]
    judgements: tuple[Judgement, ...]


# --- selftest.json -----------------------------------------------------------------------------------------------


class SelfTestRow(Record):
    """Work of known duration and what was reported for it."""

    case_id: str
    nominal_ns: int
    reported_ns: float
    allowed_ns: float
    """Largest bias of the target: 1% + 2 × timer overhead."""
    within: bool


class SelfTest(Record):
    """What trials on known work proved about the harness on one machine."""

    schema_version: Literal[1] = 1
    created_at: str
    machine: Machine
    rounds: int
    slowdown: float
    rows: tuple[SelfTestRow, ...]
    false_alarms: int
    equal_trials: int
    missed: int
    slowed_trials: int
    passed: bool
