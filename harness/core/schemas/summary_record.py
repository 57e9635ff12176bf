"""summary.json: a row for every planned case, with machine load and metrics of installed packages."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, SerializerFunctionWrapHandler, field_serializer, model_validator

from harness.core.safe_paths import RelativePath
from harness.core.schemas.energy_record import Energy
from harness.core.schemas.environment_record import Environment, Unavailable
from harness.core.schemas.export_record import EngineRecord, ExportRecord
from harness.core.schemas.raw_record import (
    BusyProcess,
    Clock,
    ColdCosts,
    Parity,
    Placement,
)
from harness.core.schemas.roof_record import CpuRoof, Roof
from harness.core.schemas.vocabulary import (
    Boundary,
    Device,
    Format3,
    Grade,
    Identified,
    Kind,
    Limit,
    Mode,
    Precision,
    Record,
    Sha256,
    Status,
    Stopped,
    Weights,
)


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
    """What the monitor saw while a row was warmed up and timed, which is the same work, over all its rounds.

    100% is one CPU.
    """

    rounds: int
    """Rounds that were watched."""
    watched_ns: int
    """Length of the windows together, warm-up and timed part each."""
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
    process_ns: int | None = None
    """Life of a process, loading and checks included: the middle of the rounds. None in older files."""
    allowed_cpus: int | None = None
    """CPUs that the process might use; the fewest of all samples."""
    allowed_cores: int | None = None
    allowed_others_percent_mean: float | None = None
    """CPU time of everything else on those CPUs."""
    siblings_percent_mean: float | None = None
    """CPU time on SMT siblings of those CPUs that the process may not use."""
    busiest: tuple[BusyProcess, ...] = ()
    """Other processes, the busiest first; of several rounds each with its largest share."""
    longest_look_ns: int | None = None
    """Longest time between two looks of the monitor. None in older files."""
    look_interval_ns: int | None = None
    """Time between two looks as the monitor plans it."""
    stopped_looks: int | None = None
    """Looks at which the process was stopped or traced; None where that was not looked at."""


Better = Literal["lower", "higher"]


class CustomMetric(Record):
    """A metric of an installed package (harness/aggregation/plugin_metrics.py)."""

    unit: str
    better: Better
    summary: str
    plugin: str
    """Distribution and version that brought it."""


class Interval(Record):
    low: float
    high: float


class Latency(Record):
    """Statistics of one row, in nanoseconds; what cannot be known from the samples is None.

    Every figure but max and n is the median over processes of the figure of each process.

    A row in offline mode has no latency. Its figures are wall time per batch, one a process: median, ci95, mean and
    process_medians are those of it, n counts batches, and everything that needs single latencies is None.
    """

    median: float
    """Median of the process medians: the headline."""
    ci95: Interval | None
    """Over processes; None with one round."""
    p50: float | None
    """The headline again, for rows that have latencies."""
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
    process_rounds: tuple[int, ...] = ()
    """The round of each process; empty where they are 1, 2, 3, …"""
    percentile_ci95: dict[str, Interval] = {}
    """By name (p50, p90, p95, p99): over processes, as ci95; absent with one round and where one is withheld."""


class Part(Record):
    """One part of an e2e latency."""

    median_ns: float
    """Median of the process medians."""
    share: float
    """Mean over processes of its share of their time; the three shares add up to 1."""


class Split(Record):
    """Where the time of an e2e row goes."""

    preprocess: Part
    inference: Part
    postprocess: Part


class Speedup(Record):
    """How many times as fast as the baseline a row is: the two headlines divided (harness/statistics/ratios.py)."""

    ratio: float
    ci95: Interval | None
    baseline: str
    baseline_grade: Grade | None = None
    """None in summaries that were written before it was recorded."""


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
    """Transfer boundary in pipelined mode: share of the copies' time that was hidden behind computing, 0 where all came
    one after the other, 1 where none added to the time of a batch (harness/aggregation/row.py)."""


class Roofline(Record):
    """A row against what its device can do at most."""

    flops: int
    """Of one batch."""
    bytes: int
    """Least memory traffic of one batch: weights, inputs and outputs once."""
    flops_share: float
    """Achieved FLOP/s over the best measured matrix product of that precision, on a CPU with the row's threads."""
    bytes_share: float
    """Least traffic over the time of the pass, over the best measured copy."""
    limit: Limit | None
    """What bounds the row; None on a GPU where that would take another batch size to tell, on a CPU where neither
    arithmetic nor memory is near."""
    at_least: bool = False
    """Some operators were not counted: flops and flops_share are a part of all, and a low share bounds nothing."""


OLD_FLAGS = {"CI_NOT_MET": "NOT_CONVERGED", "COTENANT": "CPU_SHARED", "NOT_STEADY": "NOT_WARMED_UP"}
"""Names of older versions. COTENANT was of CPUs and of GPUs; the detail of a flag says of which."""


def _flag_of(name: str) -> str:
    return OLD_FLAGS.get(name, name)


FlagName = Annotated[str, AfterValidator(_flag_of)]


class Flag(Record):
    """Why a row is not grade A, and what to do about it."""

    name: FlagName
    detail: str
    remedy: str
    caps_at: Grade | None = None
    """Best grade of a row that has it; None in summaries that were written before it was recorded."""

    @model_validator(mode="before")
    @classmethod
    def _of_a_gpu(cls, found: Any) -> Any:
        if (
            isinstance(found, dict)
            and found.get("name") == "COTENANT"
            and re.search("card|GPU", str(found.get("detail")))
        ):
            return {**found, "name": "GPU_SHARED"}
        return found

    @property
    def is_note(self) -> bool:
        """True where it costs no grade: a fact to know, no reason for doubt."""
        return self.caps_at == "A"


class Check(Record):
    """In how many of its rounds one check was made that applies to a row (harness/aggregation/checks.py)."""

    rounds: int
    of: int
    missing: str | None = None
    """Why not in the others; None where it was made in all."""


class Void(Record):
    """What was timed of a row of grade F: something else than its label says, so these are no figures of its case."""

    latency_ns: Latency | None = None
    split: Split | None = None
    device_ns: DeviceTimes | None = None
    roofline: Roofline | None = None
    throughput_per_s: float | None = None
    throughput_ci95: Interval | None = None
    speedup: Speedup | None = None
    cold_ns: ColdCosts | None = None
    custom: dict[str, float | Unavailable] = {}


class Row(Record):
    """One case. A row of grade F has no times and no rates: they are in `void`, so that no reader takes them for
    figures of the case. What shows why it is void (parity, placement, memory, usage) stays."""

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
    grade: Grade | None = None
    reason: str | None = None
    """Why a row is skipped, failed or missing."""
    hint: str | None = None
    latency_ns: Latency | None = None
    split: Split | None = None
    """For the e2e boundary."""
    device_ns: DeviceTimes | None = None
    """On a GPU."""
    roofline: Roofline | None = None
    tried: bool = False
    """True for a setting that was measured to choose among several and is not the fastest of its backend."""
    throughput_per_s: float | None = None
    """Items per second of wall time of the timed loop: median over processes."""
    throughput_ci95: Interval | None = None
    """Over processes; None with one round."""
    speedup: Speedup | None = None
    parity: Parity | None = None
    placement: Placement | None = None
    memory_bytes: int | None = None
    cold_ns: ColdCosts | None = None
    threads: int | None = None
    """What really ran, so that conditions come from the samples and not from the plan."""
    clock: Clock | None = None
    """Of the first round; its overhead is what BELOW_TIMER is judged by."""
    artifacts: dict[str, str] = {}
    """sha256 by file name of what was loaded: tells rows apart later, and which ones needed an ONNX export."""
    flags: tuple[Flag, ...] = ()
    checks: dict[FlagName, Check] = {}
    """By the name of the flag: every check that applies to the row; empty where nothing was measured."""
    usage: UsageSummary | None = None
    """None where nobody watched."""
    stopped: Stopped | None = None
    """Why there are no more rounds; None where there are none at all."""
    plugin: str | None = None
    """Distribution and version that brought the backend; None for a built-in one and where nothing was measured."""
    custom: dict[str, float | Unavailable] = {}
    """By the name of a metric in Summary.custom: its figure, or why there is none."""
    void: Void | None = None
    """Of a row of grade F alone."""

    @model_validator(mode="before")
    @classmethod
    def _without_void_figures(cls, found: Any) -> Any:
        # Formats 1 and 2 have them among the row's own.
        if not isinstance(found, dict) or found.get("grade") != "F" or found.get("void") is not None:
            return found
        figures = {name: found[name] for name in Void.model_fields if found.get(name) is not None}
        return {**{name: value for name, value in found.items() if name not in figures}, "void": figures}


class Summary(Identified):
    """A row for every planned case, and the conditions they share."""

    schema_version: Format3 = 3
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
    roof: Roof | CpuRoof | None = None
    custom: dict[str, CustomMetric] = {}
    """By name: metrics that plugins brought."""
    energies: dict[str, Energy] = {}
    """By case id: what `make energy` measured with this plan's settings."""
    inputs: dict[RelativePath, Sha256] = {}
    """sha256 of every record that it was computed from, without its seal, by path below the results folder, or below
    `models/` (core/chain.py); empty in older files."""
    notes: tuple[str, ...]
    """Damaged or foreign files that were left out, by name."""
    rows: tuple[Row, ...]

    @field_serializer("rows", mode="wrap")
    def _rows_of_any_cpu(self, rows: tuple[Row, ...], serialise: SerializerFunctionWrapHandler) -> Any:
        return _rounded(serialise(rows))

    @property
    def digest(self) -> str:
        """sha256 of everything but when it was written."""
        return hashlib.sha256(self.model_dump_json(exclude={"created_at"}).encode()).hexdigest()


DIGITS = 12
"""Significant digits of a figure in a file. The 16th differs between processors, whose vector units add in other
orders, and `verify` compares files."""


def _rounded(value: Any) -> Any:
    """A JSON value with its floats in DIGITS significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list | tuple) else value
