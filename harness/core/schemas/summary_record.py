"""summary.json: one row for every planned case, with machine load and the metrics of installed packages."""

from __future__ import annotations

import hashlib
from functools import cache
from operator import is_not
from typing import Any, Literal, TypeVar, get_args

from pydantic import SerializerFunctionWrapHandler, field_serializer, model_validator

from harness.core.schemas.export_record import EngineRecord, ExportRecord
from harness.core.schemas.fleet_record import Copies, NeighbourCheck
from harness.core.schemas.generation_record import GenerationRow
from harness.core.schemas.load_record import LoadRow
from harness.core.schemas.machine_record import CpuRoof, Environment, Roof, Unavailable
from harness.core.schemas.raw_record import (
    Clock,
    ColdCosts,
    Energy,
    Parity,
    Placement,
)
from harness.core.schemas.vocabulary import (
    Bottleneck,
    Boundary,
    Checks,
    Device,
    Flag,
    Format3,
    Grade,
    Identified,
    Interval,
    Kind,
    ModeName,
    Precision,
    Record,
    RelativePath,
    Sha256,
    Status,
    Stopped,
    UsageSummary,
    Weights,
)

Better = Literal["lower", "higher"]


class CustomMetric(Record):
    """A metric of an installed package (harness/aggregation/plugin_metrics.py)."""

    unit: str
    better: Better
    summary: str
    plugin: str
    """Distribution and version of its plugin."""


class Latency(Record):
    """Statistics of one row, in nanoseconds; figures that the samples cannot give are None.

    Every figure but max and n is the median over processes of each process's figure.

    A row in offline mode has no latencies. Each process then has one wall time per batch: median, ci95, mean and
    process_medians are of these times, n counts batches, and every figure that needs single latencies is None.
    """

    median: float
    """The headline: median of the process medians."""
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
    """By name (p50, p90, p95, p99): over processes, as ci95; absent with one round and for a withheld percentile."""


class LatencyPart(Record):
    """One part of an e2e latency."""

    median_ns: float
    """Median of the process medians."""
    share: float
    """Mean over processes of its share of their time; the three shares add up to 1."""


class Split(Record):
    """Times of the three parts of an e2e row."""

    preprocess: LatencyPart
    inference: LatencyPart
    postprocess: LatencyPart


class Speedup(Record):
    """Speed-up of a row over the baseline: the ratio of the two headlines (harness/statistics/ratios.py)."""

    ratio: float
    ci95: Interval | None
    baseline: str
    baseline_grade: Grade | None = None
    """None in older summaries."""


class DeviceTimes(Record):
    """Times of a row by the GPU's event clock: medians of the process medians, in nanoseconds per batch."""

    clock: Clock
    device: float
    device_ci95: Interval | None
    enqueue: float
    h2d: float | None = None
    compute: float | None = None
    d2h: float | None = None
    """The parts of the transfer boundary."""
    overlap: float | None = None
    """Transfer boundary in pipelined mode: share of the copies' time that was hidden behind computation, 0 where all
    steps ran one after the other, 1 where no copy added to the time of a batch (harness/aggregation/row.py)."""


class Roofline(Record):
    """A row compared with the measured limits of its device."""

    flops: int
    """For one batch."""
    bytes: int
    """Least memory traffic of one batch: weights, inputs and outputs once."""
    flops_share: float
    """Achieved FLOP/s as a share of the best measured matrix product of that precision (on a CPU, with the row's
    threads)."""
    bytes_share: float
    """Least traffic divided by the time of the pass, as a share of the best measured copy."""
    limit: Bottleneck | None
    """What bounds the row; None on a GPU where only another batch size could show it, on a CPU where neither arithmetic
    nor memory is near its limit."""
    at_least: bool = False
    """True where operators were not counted: flops and flops_share are lower bounds, and a low share shows no limit."""


class Void(Record):
    """Figures of a row of grade F: the timed work was not what its label says, so they are not figures of its case."""

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
    """One case. A row of grade F has no times and no rates: they are in `void`, so that no reader uses them as figures
    of the case. The fields that show why it is void (parity, placement, memory, usage) stay."""

    case_id: str
    model: str
    backend: str
    device: Device
    precision: Precision
    batch_size: int
    sequence_length: int | None
    boundary: Boundary
    mode: ModeName
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
    """True where several settings of a backend were tried and this is not the fastest."""
    throughput_per_s: float | None = None
    """Samples per second of wall time of the timed loop: median over processes."""
    throughput_ci95: Interval | None = None
    """Over processes; None with one round."""
    speedup: Speedup | None = None
    parity: Parity | None = None
    placement: Placement | None = None
    memory_bytes: int | None = None
    cold_ns: ColdCosts | None = None
    threads: int | None = None
    """Actual number of threads, from the samples and not from the plan."""
    clock: Clock | None = None
    """Clock of the first round; its overhead decides BELOW_TIMER."""
    artifacts: dict[str, str] = {}
    """sha256 of each loaded file, by file name: distinguishes rows later, and shows which needed an ONNX export."""
    flags: tuple[Flag, ...] = ()
    checks: Checks = {}
    """Every check that applies to the row; empty where nothing was measured."""
    usage: UsageSummary | None = None
    """None where the row was not monitored."""
    stopped: Stopped | None = None
    """Why there are no more rounds; None where there are no rounds at all."""
    plugin: str | None = None
    """Distribution and version of the backend's plugin; None for a built-in backend and where nothing was measured."""
    custom: dict[str, float | Unavailable] = {}
    """By the name of a metric in Summary.custom: its figure, or why there is none."""
    void: Void | None = None
    """Only for a row of grade F."""

    @model_validator(mode="after")
    def _without_void_figures(self) -> Row:
        # Formats 1 and 2 have them in the row itself. A validator before would make Python objects of the JSON first.
        if self.grade == "F" and self.void is None:
            figures = {name: figure for name in Void.model_fields if (figure := getattr(self, name)) is not None}
            absent: dict[str, Any] = {name: {} if name == "custom" else None for name in figures}
            self.__dict__.update(absent, void=Void(**figures))  # it is new: nothing else refers to it
        return self


class Summary(Identified):
    """A row for every planned case, and the conditions that the rows share."""

    schema_version: Format3 = 3
    config: str
    config_sha256: str | None = None
    title: str
    baseline_backend: str
    latency_limit_ms: float | None = None
    charts: bool
    """From the configuration: whether the report draws charts."""
    created_at: str
    measured_from: str | None
    measured_to: str | None
    environments: dict[str, Environment]
    rounds: int
    exports: dict[str, ExportRecord]
    """By model name: the export that the rows were measured on, with the time that it took."""
    engines: dict[str, EngineRecord] = {}
    """By the path in the rows' artifacts, below the model's folder, with the slug in front."""
    roof: Roof | CpuRoof | None = None
    custom: dict[str, CustomMetric] = {}
    """By name: metrics of plugins."""
    energies: dict[str, Energy] = {}
    """By case id: measurements of `make energy` with this plan's settings."""
    loads: tuple[LoadRow, ...] = ()
    """A row for every planned load case; empty in older files."""
    copies: dict[str, Copies] = {}
    """By case id: cases that ran on all devices at once (LAYOUT=copies), with this plan's settings."""
    neighbours: NeighbourCheck | None = None
    """Where the cases were spread over devices (LAYOUT=cases)."""
    inputs: dict[RelativePath, Sha256] = {}
    """sha256, without the seal, of every record that it was computed from, by path below the results folder, or below
    `models/` (core/file_sums.py); empty in older files."""
    notes: tuple[str, ...]
    """Names of damaged or foreign files that were left out."""
    rows: tuple[Row, ...]
    generations: tuple[GenerationRow, ...] = ()
    """A row for every planned case of generation."""

    @field_serializer("rows", "loads", "generations", mode="wrap")
    def _rows_of_any_cpu(self, rows: tuple[Record, ...], serialise: SerializerFunctionWrapHandler) -> Any:
        return rounded(serialise(rows))

    def as_stored(self) -> Summary:
        """The summary with the digits that its file has, so that everything made of it is equal on every processor."""
        return type(self).model_validate_json(self.model_dump_json())

    @property
    def digest(self) -> str:
        """sha256 of everything except the date of writing."""
        return hashlib.sha256(self.model_dump_json(exclude={"created_at"}).encode()).hexdigest()


class RowGroup(Record):
    """The rows of one model in summary.parquet (core/packed.py)."""

    model: str
    rows: int
    measured: int
    sha256: Sha256
    """Of the rows as JSON, a line each."""


class PackedSummary(Summary):
    """summary.json of a run that is too large for JSON: its rows are in summary.parquet beside it."""

    schema_version: Literal[4] = 4  # type: ignore[assignment]  # a reader of format 3 would find no rows
    rows: tuple[Row, ...] = ()
    """Empty in the file; core/store.py fills it from summary.parquet."""
    row_groups: tuple[RowGroup, ...]

    @property
    def digest(self) -> str:
        """As Summary.digest; row_groups has the sums of the rows."""
        return hashlib.sha256(self.model_dump_json(exclude={"created_at", "rows"}).encode()).hexdigest()


DIGITS = 12
"""Significant digits of a figure in a file. The 16th differs between processors, whose vector units add in different
orders, and `verify` compares files."""


def rounded(value: Any) -> Any:
    """A JSON value with its floats in DIGITS significant digits."""
    kind = type(value)
    if kind is float:
        return float(f"{value:.{DIGITS}g}")
    if kind is dict:
        return {key: entry if type(entry) in _UNROUNDED else rounded(entry) for key, entry in value.items()}
    if kind is list or kind is tuple:
        return [entry if type(entry) in _UNROUNDED else rounded(entry) for entry in value]
    return value


_UNROUNDED = frozenset({str, int, bool, type(None)})

_HALVES = 10.0 ** (DIGITS - 1)
"""Below it whole and half numbers have no more than DIGITS digits."""

R = TypeVar("R", bound=Record)


def rounded_record(record: R) -> R:
    """The record as it is read back from its rounded JSON, made without JSON in between: large runs have many
    records."""
    values, changed = record.__dict__, {}
    for name in _names_with_floats(type(record)):
        value = values[name]
        if type(value) not in _UNROUNDED and (new := _rounded_part(value)) is not value:
            changed[name] = new
    return _fast_copy(record, changed) if changed else record


def _fast_copy(record: R, changed: dict[str, Any]) -> R:
    """model_copy without its care for private attributes, which no record has."""
    copy = record.__class__.__new__(record.__class__)
    object.__setattr__(copy, "__dict__", {**record.__dict__, **changed})
    object.__setattr__(copy, "__pydantic_fields_set__", record.__pydantic_fields_set__)
    object.__setattr__(copy, "__pydantic_extra__", None)
    object.__setattr__(copy, "__pydantic_private__", None)
    return copy


def _rounded_part(value: Any) -> Any:
    """rounded_record for the value of a field; the value itself where nothing changes."""
    kind = type(value)
    if kind is float:
        if abs(value) < _HALVES and (2 * value).is_integer():  # it has few digits, and writing it costs ten times this
            return value
        new = float(f"{value:.{DIGITS}g}")
        return value if new == value else new
    if kind in _UNROUNDED:
        return value
    if kind is dict:
        changed = {key: new for key, entry in value.items() if (new := _rounded_part(entry)) is not entry}
        return {**value, **changed} if changed else value
    if kind is tuple:
        entries = tuple(map(_rounded_part, value))
        return entries if any(map(is_not, entries, value)) else value
    return rounded_record(value)


@cache
def _names_with_floats(kind: type[Record]) -> tuple[str, ...]:
    """The fields of a record that may contain a float."""
    return tuple(name for name, field in kind.model_fields.items() if _has_floats(field.annotation))


def _has_floats(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return bool(_names_with_floats(annotation))
    return annotation is float or any(map(_has_floats, get_args(annotation)))
