"""raw/<case_id>/<round>.json and .usage.json: what one process measured, what the monitor saw. No statistics."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.schemas.vocabulary import Format2, Record, SettingsId, Told, ToldLines


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
    """Distance of a case's outputs from the fp32 reference (harness/statistics/parity.py)."""

    samples: int
    relative_l2: float | None
    """None when an output is not finite."""
    max_abs: float | None
    cosine: float | None
    top1_agreement: float | None
    """Share of equal arg-max answers; None where the model is no classifier."""
    nonfinite: int
    item_relative_l2: float | None = None
    """The same of the worst single item; None in records from before items were looked at."""
    item_cosine: float | None = None

    @property
    def furthest(self) -> float | None:
        """The distance that a gate is held against: of the worst item, in older records of the worst batch."""
        return self.relative_l2 if self.item_relative_l2 is None else self.item_relative_l2


NO_FLOATS = "integers"
"""Placement.precision of a model in which nothing is a floating-point number: no precision is a wrong label of it."""
FIXED_WHEN_TRACED = "fixed_when_traced"
"""Of Placement.settings: what tracing made a constant, in PyTorch's words, where a backend traces."""


class Placement(Record):
    """What really ran, read from the session, graph or module; never from the request."""

    device: str
    precision: str
    """One of the plan's words, several of them joined by `+`, NO_FLOATS, or in words what ran instead."""
    provider: str
    settings: dict[str, str | int | float | bool]
    """Settings that decide speed: threads, streams, layout, graph breaks, …"""
    dtype_census: dict[str, int]
    """Operators or weight elements by element type."""
    ran_eagerly: str | None = None
    """Why work ran uncompiled under the name of a compiler; None where none did, and where nothing compiles."""


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


class CpuUse(Record):
    """What a process took of its CPUs during warm-up and timed part together, counted by itself at both ends."""

    wall_ns: int
    cpu_ns: int
    """CPU time of all its threads, those that ended meanwhile included."""
    waited_ns: int | None
    """Run-queue delay: how long its threads were ready to run and waited for a CPU, in all (field 2 of
    /proc/self/task/*/schedstat). None where the kernel does not count it."""
    threads: int
    """At the end."""
    threads_ended: int
    """Threads that were there at the start and ended meanwhile: their part of waited_ns is lost."""
    affinity_start: tuple[int, ...]
    affinity_end: tuple[int, ...]
    quota_start: float | None
    """Cores by cgroup quota; None where there is none."""
    quota_end: float | None
    work_ns: tuple[int, ...]
    """A fixed piece of work on one thread, timed after each window of the warm-up and each block: it takes longer where
    the clock is lower or a neighbour uses the same core (harness/timing/clock.py)."""


class Stops(Record):
    """When a process was kept from running from outside, between its load and its last check, by its own count."""

    continued: tuple[str, ...] = ()
    """The phase of each continuation after a stop (SIGCONT after SIGSTOP or SIGTSTP)."""
    suspended_ns: int | None = None
    """How long the machine was suspended; None where its clocks do not show it."""


class RawBase(Record):
    schema_version: Format2 = 2
    case_id: str
    round: int
    settings_id: SettingsId
    started_at: str
    environment_id: str | None


class SplitSamples(Record):
    """The three parts of each e2e sample, in ns: together they are the sample."""

    preprocess: tuple[int, ...]
    inference: tuple[int, ...]
    postprocess: tuple[int, ...]


class DeviceSamples(Record):
    """The same samples as a GPU's event clock and the submitting host saw them, in ns (timing/cuda_events.py)."""

    clock: Clock
    """Name, resolution, and the device time between two events recorded back to back."""
    device_ns: tuple[int, ...]
    """Between two events around all that one sample enqueues, on the backend's own stream or streams."""
    enqueue_ns: tuple[int, ...]
    """Host time until the submission returned."""
    h2d_ns: tuple[int, ...] = ()
    """Transfer boundary: copy from pinned host memory, the pass, and the copy back. In sync mode together device_ns; in
    pipelined mode device_ns also holds their waiting for one another and for other batches."""
    compute_ns: tuple[int, ...] = ()
    d2h_ns: tuple[int, ...] = ()


class Repeats(Record):
    """Passes on stored inputs and on inputs never seen before, in pairs (harness/timing/repeat_check.py), in ns."""

    fresh_ns: tuple[int, ...] = ()
    """On new inputs, written into the memory of stored ones."""
    repeated_ns: tuple[int, ...] = ()
    """On the stored input of the same pair, written again into the same memory."""
    compared: int = 0
    """Pairs whose two answers were compared: of inputs whose reference answers differ."""
    unchanged: int = 0
    """Of these, pairs with the very same answer to both inputs."""
    missing: str | None = None
    """Why there are no pairs."""


class OutputsTime(Record):
    """Host time of outputs() after timed iterations: a backend that computes there hides what an answer takes."""

    outputs_ns: tuple[int, ...]
    copy_ns: tuple[int, ...]
    """Of a plain copy of the same arrays on the host."""
    arrays: int
    """How many outputs there are."""


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
    cpu_use: CpuUse | None = None
    """None in files from before it existed."""
    repeats: Repeats | None = None
    """None in records from before there was the check, and where nothing is computed."""
    outputs_time: OutputsTime | None = None
    """None in records from before it was measured, and where nothing is computed."""
    stops: Stops | None = None
    """None in records from before they were counted."""


class Failed(RawBase):
    status: Literal["failed"] = "failed"
    error: Told
    hint: Told
    phase: str
    """Where it happened: start, load, compile, reference check, warm-up, measure, outputs check."""
    stderr_tail: ToldLines


RawRecord = Annotated[Measured | Failed, Field(discriminator="status")]


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
    allowed_cpus: int | None = None
    """CPUs that the affinity of any of the process's threads lets it use."""
    allowed_cores: int | None = None
    """Cores among them, as this machine shows them: a guest may see each CPU as a core of its own."""
    allowed_others_percent: float | None = None
    """CPU time of everything else on those CPUs, the monitor's own left out; 100 is one CPU."""
    siblings_percent: float | None = None
    """CPU time on their SMT siblings that the process may not use; 100 is one CPU."""
    stopped: bool | None = None
    """The process was stopped or traced when the monitor looked; None in older files."""


class BusyProcess(Record):
    """Another process that used CPU time while a case was warmed up and timed."""

    pid: int
    name: str
    """As the kernel has it, 15 characters at most, without control characters: the process chose it itself."""
    cpu_percent: float
    """Mean; 100 is one CPU."""


class Usage(Record):
    """What the monitor saw of one process; written by a process of its own."""

    schema_version: Format2 = 2
    case_id: str
    round: int
    settings_id: SettingsId
    interval_ns: int
    samples: tuple[UsageSample, ...]
    pss_peak_bytes: int | None
    """Proportional set size (shared pages by share), read once, after the timed loop: reading it stops the process."""
    gpu_memory_before_bytes: int | None = None
    """Memory in use on the whole card before the case's process came to it."""
    busiest: tuple[BusyProcess, ...] = ()
    """The other processes that used most, of those that the system shows and that lived all the while; the busiest
    first. Empty in files from before they were looked for."""
    unavailable: dict[str, str]
    """Why a field is None."""
    monitor_cpu_ns: int
    """CPU time that the monitor itself took while it watched."""
    watched_ns: int
