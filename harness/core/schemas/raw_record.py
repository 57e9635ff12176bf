"""raw/<case_id>/<round>.json and .usage.json: samples of one process, and readings of the monitor. No statistics.

results/energy/<case_id>.json: energy of an inference in joules, from a separate pass.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model, model_validator

from harness.core.schemas.vocabulary import (
    Amount,
    BusyProcess,
    Count,
    Format2,
    MessageLines,
    MessageText,
    NotNegative,
    Record,
    SettingsId,
    Share,
    Situation,
)


class Clock(Record):
    name: str
    resolution_ns: NotNegative
    overhead_ns: Amount
    """Median of two reads back to back."""


class Block(Record):
    """One part of the timed loop that contains only inferences."""

    iterations: Count
    wall_ns: Amount
    device_ns: Amount | None = None
    """Offline mode on a GPU: between events before the first and after the last inference of the block."""
    enqueue_ns: Amount | None = None
    """Offline mode on a GPU: host time until the last submission returned."""


class TimedWindow(Record):
    """When one block of a process ran that worked beside others (harness/timing/windows.py)."""

    situation: Situation
    start_ns: int
    """By the host's monotonic clock, which all processes of a host share."""
    end_ns: int


class Parity(Record):
    """Distance of a case's outputs from the fp32 reference (harness/statistics/parity.py)."""

    samples: Amount
    relative_l2: NotNegative | None
    """None when an output is not finite."""
    max_abs: NotNegative | None
    cosine: float | None
    top1_agreement: Share | None
    """Share of equal arg-max answers; None where the model is not a classifier."""
    nonfinite: Amount
    item_relative_l2: NotNegative | None = None
    """The same for the worst single sample; None in older records."""
    item_cosine: float | None = None

    @property
    def furthest(self) -> float | None:
        """The distance to compare with a tolerance: of the worst sample, in older records of the worst batch."""
        return self.relative_l2 if self.item_relative_l2 is None else self.item_relative_l2


NO_FLOATS = "integers"
"""Placement.precision of a model without floating-point numbers, for which every precision label is correct."""
REMOVES_PADDING = "removes_padding"
"""Setting of a placement, true where only the tokens that the attention mask shows were computed."""

FIXED_WHEN_TRACED = "fixed_when_traced"
"""Key of Placement.settings where a backend traces: values that tracing made constant, in PyTorch's words."""


class Placement(Record):
    """The actual execution, read from the session, graph or module; never from the request."""

    device: str
    precision: str
    """A precision of the plan, several joined by `+`, NO_FLOATS, or a description of what ran instead."""
    provider: str
    settings: dict[str, str | int | float | bool]
    """Settings that affect speed: threads, streams, layout, graph breaks, …"""
    dtype_census: dict[str, int]
    """Operators or weight elements by element type."""
    ran_eagerly: str | None = None
    """Why a compiling backend ran some work uncompiled; None where it did not, and for other backends."""


class Memory(Record):
    peak_rss_bytes: Amount
    """Peak resident set of the process: interpreter, libraries, model, inputs."""
    baseline_rss_bytes: Amount
    """Resident set after imports and before load."""


class ColdCosts(Record):
    """Cold start: times until the first result; `None` where the backend has no such step."""

    load: Amount
    compile: Amount | None
    compile_cached: bool | None
    """True when a compile cache of an earlier process was used, so that `compile` is not the full cost."""
    first_inference: Amount


class CpuUse(Record):
    """CPU use of a process during warm-up and timed part together, counted by itself at both ends."""

    wall_ns: Count
    cpu_ns: Amount
    """CPU time of all its threads, including threads that ended meanwhile."""
    waited_ns: Amount | None
    """Run-queue delay: total time that its threads were ready to run and waited for a CPU (field 2 of
    /proc/self/task/*/schedstat). None where the kernel does not count it."""
    threads: Count
    """At the end."""
    threads_ended: Amount
    """Threads that existed at the start and ended meanwhile: their part of waited_ns is lost."""
    affinity_start: tuple[int, ...]
    affinity_end: tuple[int, ...]
    quota_start: float | None
    """Cores by cgroup quota; None without a quota."""
    quota_end: float | None
    helpers_ns: Amount = 0
    """CPU time of the processes that it started, and of those that they started."""
    affinity_given: tuple[int, ...] | None = None
    """CPUs that it might use before the backend loaded anything; None in older records."""
    scheduling_given: str | None = None
    """Scheduling policy and nice value at the same moment; None in older records."""
    scheduling_end: str | None = None
    started_ticks: Amount | None = None
    """When the process started, in clock ticks since the machine did; None in older records."""
    work_ns: tuple[Amount, ...]
    """A fixed piece of work on one thread, timed after each window of the warm-up and each block: it takes longer where
    the clock is lower or a neighbour uses the same core (harness/timing/clock.py)."""


class Stops(Record):
    """Interruptions of a process from outside, between its load and its last check, by its own count."""

    continued: tuple[str, ...] = ()
    """The phase of each continuation after a stop (SIGCONT after SIGSTOP or SIGTSTP)."""
    suspended_ns: Amount | None = None
    """Time that the machine was suspended; None where its clocks do not show it."""


class RawBase(Record):
    schema_version: Format2 = 2
    case_id: str
    round: Count
    settings_id: SettingsId
    started_at: str
    environment_id: str | None


class SplitSamples(Record):
    """The three parts of each e2e sample, in ns: they add up to the sample."""

    preprocess: tuple[Amount, ...]
    inference: tuple[Amount, ...]
    postprocess: tuple[Amount, ...]


class DeviceSamples(Record):
    """Times of the samples by a GPU's event clock and by the submitting host, in ns (timing/cuda_events.py)."""

    clock: Clock
    """Name, resolution, and the device time between two events recorded back to back."""
    device_ns: tuple[Amount, ...]
    """Between two events around all work that one sample enqueues, on the backend's own stream or streams."""
    enqueue_ns: tuple[Amount, ...]
    """Host time until the submission returned."""
    h2d_ns: tuple[int, ...] = ()
    """Transfer boundary: copy from pinned host memory, the pass, and the copy back. In sync mode they add up to
    device_ns; in pipelined mode device_ns also contains their waits for each other and for other batches."""
    compute_ns: tuple[int, ...] = ()
    d2h_ns: tuple[int, ...] = ()


class Repeats(Record):
    """Pairs of passes, on a stored input and on a new input (harness/timing/repeat_check.py), in ns."""

    fresh_ns: tuple[Amount, ...] = ()
    """On new inputs, written into the memory of stored inputs."""
    repeated_ns: tuple[Amount, ...] = ()
    """On the stored input of the same pair, written again into the same memory."""
    compared: Amount = 0
    """Pairs whose two outputs were compared: their inputs have different reference outputs."""
    unchanged: Amount = 0
    """Compared pairs with exactly the same output for both inputs."""
    missing: str | None = None
    """Why there are no pairs."""
    new_l2: tuple[NotNegative, ...] = ()
    """Relative L2 distance of the answer to each new sample that has a reference (NewSamples of the export). Empty
    where there are none, and in older records."""
    new_missing: str | None = None
    """Why no answer to a new sample was compared; None where some were, at the e2e boundary, and in older records."""
    waited_share: NotNegative | None = None
    """How long threads of the process were ready and waited for a CPU meanwhile, by the wall time of the check; None
    in older records, and where the kernel does not count it."""


class OutputsTime(Record):
    """Host time of outputs() after timed iterations: a backend that computes there hides part of its latency."""

    outputs_ns: Annotated[tuple[Amount, ...], Field(min_length=1)]
    copy_ns: Annotated[tuple[Amount, ...], Field(min_length=1)]
    """Time of a plain copy of the same arrays on the host."""
    arrays: Count
    """Number of outputs."""
    waited_ns: tuple[Amount, ...] = ()
    """Of each call, how long its thread waited for a CPU; empty where that is not counted, and in older records."""

    @model_validator(mode="after")
    def _of_one_length(self) -> OutputsTime:
        if self.waited_ns and len(self.waited_ns) != len(self.outputs_ns):
            raise ValueError("it has other numbers of waits and of calls")
        return self


class Measured(RawBase):
    status: Literal["measured"] = "measured"
    artifacts: dict[str, str]
    """sha256 of each loaded file, by file name."""
    threads: Count
    clock: Clock
    warmup_ns: tuple[Amount, ...]
    latency_ns: tuple[Amount, ...]
    """Empty in offline mode, which waits for a block, not for a batch: its blocks are its samples."""
    split_ns: SplitSamples | None = None
    """For the e2e boundary."""
    device: DeviceSamples | None = None
    """On a GPU; its tuples are empty in offline mode, where the blocks have their own times."""
    blocks: Annotated[tuple[Block, ...], Field(min_length=1)]
    steady: bool
    """The three warm-up windows agreed."""
    stop: Literal["converged", "time limit", "sample limit"]
    parity_before: Parity | None
    """For all inputs, before timing. None where the backend computes nothing (noop)."""
    parity_timed: Parity | None
    """For outputs of timed iterations, read between blocks."""
    placement: Placement
    memory: Memory
    cold_ns: ColdCosts
    notes: tuple[str, ...] = ()
    cpu_use: CpuUse | None = None
    """None in older records."""
    repeats: Repeats | None = None
    """None in older records, and where nothing is computed."""
    outputs_time: OutputsTime | None = None
    """None in older records, and where nothing is computed."""
    stops: Stops | None = None
    """None in older records."""
    warmup_wall_ns: Amount | None = None
    """How long the warm-up took, all between its samples included; None in older records."""
    inputs_changed: bool = False
    """Whether the arrays of its inputs had other contents after timing than before loading."""
    windows: tuple[TimedWindow, ...] = ()
    """One for each block, in order, where the blocks were started from outside; else empty."""


class Failed(RawBase):
    status: Literal["failed"] = "failed"
    error: MessageText
    hint: MessageText
    phase: str
    """Phase of the failure: start, load, compile, reference check, warm-up, measure, outputs check."""
    stderr_tail: MessageLines
    refused: bool = False
    """The backend does not run this model, as its file shows: the row is skipped. False in older records."""


RawRecord = Annotated[Measured | Failed, Field(discriminator="status")]


class GpuSample(Record):
    """One reading of the whole GPU by NVML; None where NVML has no value (the reason is in Usage.unavailable)."""

    sm_mhz: int | None
    memory_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    utilisation_percent: int | None
    memory_used_bytes: int | None
    reasons: tuple[str, ...]
    """Why the clock is reduced, by NVML's names: `hw_slowdown`, `sw_power_cap`, `sw_thermal`, …"""
    other_processes: int | None
    """Compute processes of others than the case; None where process ids cannot be distinguished."""


class UsageSample(Record):
    """Use of the machine by the case's process and by others since the previous sample; None where it is unreadable."""

    at_ns: Amount
    """Time since the monitor first saw the process."""
    phase: str
    cpu_percent: NotNegative
    """CPU time of the case's process; 100 is one CPU."""
    others_percent: NotNegative
    """CPU time of everything else except the monitor; 100 is one CPU."""
    steal_percent: float | None
    """Time that the hypervisor gave to other guests; 100 is one CPU."""
    rss_bytes: Amount
    major_faults: int
    minor_faults: int
    read_bytes: int | None
    written_bytes: int | None
    frequency_mhz: float | None
    temperature_c: float | None
    throttled_periods: int | None
    """Periods in which the cgroup's CPU quota throttled its processes."""
    thermal_events: int | None = None
    """How often heat lowered the clock, by the processor's own count."""
    gpu: GpuSample | None = None
    allowed_cpus: int | None = None
    """CPUs that the affinity of any of the process's threads allows."""
    allowed_cores: int | None = None
    """Cores of these CPUs, as this machine shows them: a guest may see each CPU as a separate core."""
    allowed_others_percent: float | None = None
    """CPU time of everything else on those CPUs except the monitor; 100 is one CPU."""
    siblings_percent: float | None = None
    """CPU time on their SMT siblings that the process may not use; 100 is one CPU."""
    stopped: bool | None = None
    """Whether the process was stopped or traced at this reading; None in older files."""


class Usage(Record):
    """Readings of one process by the monitor, which is a separate process."""

    schema_version: Format2 = 2
    case_id: str
    round: int
    settings_id: SettingsId
    interval_ns: Count
    samples: tuple[UsageSample, ...]
    pss_peak_bytes: int | None
    """Proportional set size (shared pages by share), read once, after the timed loop: reading it stops the process."""
    gpu_memory_before_bytes: int | None = None
    """Memory in use on the whole GPU before the case's process used it."""
    busiest: tuple[BusyProcess, ...] = ()
    """The other processes with most CPU time, the busiest first, among those that the system shows and that ran the
    whole time. Empty in older files."""
    unavailable: dict[str, str]
    """Why a field is None."""
    started_ticks: Amount | None = None
    """As in CpuUse: which process was watched. None in older files."""
    monitor_cpu_ns: Amount
    """CPU time of the monitor itself during its readings."""
    watched_ns: Amount

    @property
    def by_column(self) -> dict[str, tuple[Any, ...]]:
        """The values of each field of its samples; empty without samples."""
        return dict(zip(UsageSample.model_fields, zip(*map(_values_of, self.samples), strict=True), strict=False))

    @property
    def last(self) -> UsageSample | None:
        """The last sample."""
        return self.samples[-1] if self.samples else None


_values_of = attrgetter(*UsageSample.model_fields)

if TYPE_CHECKING:
    SampleColumns = Record
else:
    SampleColumns = create_model(
        "SampleColumns",
        __base__=Record,
        **{
            name: (tuple[field.annotation, ...], ...)
            if field.is_required()
            else (tuple[field.annotation, ...] | None, None)
            for name, field in UsageSample.model_fields.items()
        },
    )
    """A tuple for each field of UsageSample; None where every sample has the field's default, which is None."""


class PackedUsage(Usage):
    """A Usage with its samples by column, as core/packed.py writes it: a reader makes one object of them all."""

    samples: SampleColumns  # type: ignore[assignment]

    @classmethod
    def of(cls, usage: Usage) -> PackedUsage:
        """The packed form of a Usage."""
        if isinstance(usage, PackedUsage):
            return usage
        columns = {name: [getattr(sample, name) for sample in usage.samples] for name in UsageSample.model_fields}
        given = {
            name: values
            for name, values in columns.items()
            if UsageSample.model_fields[name].is_required() or set(values) != {None}
        }
        return cls.model_construct(**{**dict(usage), "samples": SampleColumns(**given)})

    @model_validator(mode="after")
    def _of_one_length(self) -> PackedUsage:
        if len({len(values) for values in self.samples.__dict__.values() if values is not None}) > 1:
            raise ValueError("the columns of its samples have different lengths")
        return self

    @property
    def by_column(self) -> dict[str, tuple[Any, ...]]:
        """As Usage.by_column."""
        columns = self.samples.__dict__
        absent = (None,) * len(columns["at_ns"])
        return {name: absent if values is None else values for name, values in columns.items()} if absent else {}

    @property
    def last(self) -> UsageSample | None:
        """As Usage.last."""
        columns = self.by_column
        return UsageSample(**{name: values[-1] for name, values in columns.items()}) if columns else None


class Energy(Record):
    """Electrical energy of one inference of a case: measured back to back, in a separate pass."""

    schema_version: Format2 = 2
    case_id: str
    settings_id: SettingsId
    created_at: str
    environment_id: str | None
    gpu: str
    uuid: str
    batch_size: Count
    idle_w: NotNegative
    """Mean power of the GPU over `idle_ns`, before the first case used it."""
    idle_ns: Count
    energy_j: NotNegative
    """From the GPU's own counter over the window: all energy, idle power included."""
    window_ns: Count
    """From the first timed inference to the last, with the short gaps between the blocks."""
    busy_ns: Amount
    """The part of `window_ns` inside the blocks."""
    batches: Count
    joules_per_inference: float
    """Of one batch: (energy_j - idle_w x window) / batches."""
    joules_per_item: float

    @model_validator(mode="after")
    def _adds_up(self) -> Energy:
        net_j = self.energy_j - self.idle_w * self.window_ns / 1e9
        figures = (self.joules_per_inference * self.batches, self.joules_per_item * self.batches * self.batch_size)
        if net_j <= 0 or not all(math.isclose(figure, net_j, rel_tol=1e-4) for figure in figures):
            raise ValueError("its figures do not follow from its readings")
        return self
