"""The figures of a row, and of a row of generation, each declared once: key, kind, label, value, interval (pure).

CSV columns, MLflow metrics, Prometheus gauges, the metrics of thresholds and columns of tables are views of them. A
figure that also needs an export, an engine or another row is a column of its table. Times are in nanoseconds, sizes in
bytes, energies in joules. Definitions of the figures of generation: docs/generation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, Literal, TypeVar

from harness.aggregation.roofline import pass_ns
from harness.core import units
from harness.core.schemas import (
    ColdCosts,
    Energy,
    GenerationRow,
    Interval,
    Latency,
    LoadedPoint,
    LoadPercentile,
    LoadRow,
    PredictedPoint,
    Roofline,
    Row,
    TokenTimes,
)
from harness.core.schemas.load_record import Bounded
from harness.reporting import ranking
from harness.reporting.load_groups import (
    bounded_percentile,
    highest_load,
    infinite_ns,
    knee_of,
    of_enough,
    peak_point,
    percentile_ns,
    single_point,
)
from harness.reporting.prose.boundaries import PARTS
from harness.statistics.estimators import P90_MIN_SAMPLES, P95_MIN_SAMPLES, P99_MIN_SAMPLES

Value = str | int | float | bool | None

Kind = Literal[
    "time", "rate", "bytes", "energy", "power", "efficiency", "ratio", "share", "count", "price", "text", "mark"
]
"""Kind of a figure, which decides its unit in each format. An efficiency is samples per energy; a price is in the
currency of the user's PRICE; a mark is a True or False about another figure."""

Thing = TypeVar("Thing")
"""Type that has the figure: a row, or the record of its energy."""

_Of = Callable[[Row], Value]
_Part = TypeVar("_Part")


@dataclass(frozen=True)
class Figure(Generic[Thing]):
    """One figure of a row, or of a record that a row has.

    key: its name in every format, without the unit. doc: one line, as Prometheus shows it. of: its value, None where it
    is unknown. interval: its 95% interval over processes. applies: False for rows whose boundary, mode or
    device has no such figure. label: its name in tables, without the unit. latency_table: whether that table has a
    column of it, always or where any row has a value. cell: its text in tables, where the kind's (table.py) does not
    suit.
    """

    key: str
    kind: Kind
    doc: str
    of: Callable[[Thing], Value]
    interval: Callable[[Thing], Interval | None] | None = None
    applies: Callable[[Thing], bool] = lambda _thing: True
    label: str = ""
    latency_table: Literal["never", "where known", "always"] = "never"
    cell: Callable[[float | None], str] | None = None

    def value(self, of: Thing) -> Value:
        """The value for a row; None where it is unknown."""
        return self.of(of)

    def ends(self, of: Thing) -> Interval | None:
        """The interval of a row; None where there is none."""
        return self.interval(of) if self.interval is not None and self.value(of) is not None else None

    def number(self, of: Thing) -> float | None:
        """The value if it is a number, else None."""
        value = self.value(of)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _within(part: Callable[[Row], _Part | None], figure: Callable[[_Part], Value]) -> _Of:
    def of(row: Row) -> Value:
        part_of_row = part(row)
        return None if part_of_row is None else figure(part_of_row)

    return of


def _has_latency(row: Row) -> bool:
    """The mode offline times blocks of batches."""
    return row.mode != "offline"


def _is_offline(row: Row) -> bool:
    return row.mode == "offline"


def _on_gpu(row: Row) -> bool:
    return row.device != "cpu"


def _has_copies(row: Row) -> bool:
    return _on_gpu(row) and row.boundary == "transfer"


def _has_parts(row: Row) -> bool:
    return row.boundary == "e2e"


def _latency_of(row: Row) -> Latency | None:
    return row.latency_ns if _has_latency(row) else None


def _batch_time_of(row: Row) -> Latency | None:
    return row.latency_ns if _is_offline(row) else None


def _median(key: str, doc: str, part: Callable[[Row], Latency | None], applies: Callable[[Row], bool]) -> Figure[Row]:
    return Figure(
        key,
        "time",
        doc,
        _within(part, lambda it: it.median),
        lambda row: it.ci95 if (it := part(row)) else None,
        applies=applies,
    )


def _latency(name: str, doc: str) -> Figure[Row]:
    def interval(row: Row) -> Interval | None:
        latency = _latency_of(row)
        if latency is None:
            return None
        return latency.ci95 if name == "p50" else latency.percentile_ci95.get(name)

    of, percentile = _within(_latency_of, attrgetter(name)), name.startswith("p")
    return Figure(
        f"latency_{name}",
        "time",
        doc,
        of,
        interval if percentile else None,
        applies=_has_latency,
        label=name,
        latency_table="always" if name in LEAST_SAMPLES else "never",
    )


def _device(key: str, label: str, name: str, doc: str, applies: Callable[[Row], bool] = _has_copies) -> Figure[Row]:
    of = _within(lambda row: row.device_ns, attrgetter(name))
    return Figure(key, "time", doc, of, applies=applies, label=label, latency_table="where known")


def _part(name: str) -> tuple[Figure[Row], Figure[Row]]:
    part = PARTS[name]
    return (
        Figure(
            f"{name}_median",
            "time",
            f"Boundary e2e: {name}, median of the process medians.",
            _within(lambda row: row.split, lambda split: part(split).median_ns),
            applies=_has_parts,
            label=name,
            latency_table="where known",
        ),
        Figure(
            name,
            "share",
            f"Boundary e2e: {name}, share of the time of all samples.",
            _within(lambda row: row.split, lambda split: part(split).share),
            applies=_has_parts,
        ),
    )


def _cold(key: str, doc: str, kind: Kind = "time", label: str = "") -> Figure[Row]:
    return Figure(key, kind, doc, _within(lambda row: row.cold_ns, attrgetter(key)), label=label)


def until_first_answer_ns(cold: ColdCosts) -> int:
    """Cold start of a new process, in ns; without the export of a file, which happens once, before."""
    return cold.load + (cold.compile or 0) + cold.first_inference


def _limited(key: str, kind: Kind, doc: str, of: Callable[[Roofline], Value]) -> Figure[Row]:
    return Figure(key, kind, doc, _within(lambda row: row.roofline, of))


def _flops_per_s(row: Row) -> float | None:
    time_ns = pass_ns(row)
    return row.roofline.flops / time_ns * 1e9 if row.roofline and time_ns else None


def _tokens_per_s(row: Row) -> float | None:
    if row.throughput_per_s is None or row.sequence_length is None:
        return None
    return row.throughput_per_s * row.sequence_length


LEAST_SAMPLES = {"p90": P90_MIN_SAMPLES, "p95": P95_MIN_SAMPLES, "p99": P99_MIN_SAMPLES}
"""Percentile → samples below which it is withheld."""

DEVICE: tuple[Figure[Row], ...] = (
    Figure(
        "device_median",
        "time",
        "The same inferences by the GPU's event clock.",
        _within(lambda row: row.device_ns, lambda it: it.device),
        lambda row: row.device_ns.device_ci95 if row.device_ns else None,
        applies=_on_gpu,
        label="device",
        latency_table="where known",
    ),
    _device("h2d", "H2D", "h2d", "Boundary transfer: copies to the GPU."),
    _device("compute", "compute", "compute", "Boundary transfer: the pass itself."),
    _device("d2h", "D2H", "d2h", "Boundary transfer: copies from the GPU."),
    Figure(
        "copies_hidden",
        "share",
        "Share of the copies' time that computing hides.",
        _within(lambda row: row.device_ns, lambda it: it.overlap),
        applies=_has_copies,
        label="copies hidden",
        latency_table="where known",
        cell=units.whole_percent,
    ),
    _device("enqueue", "enqueue", "enqueue", "Host time until a batch was submitted to the GPU.", applies=_on_gpu),
)
"""Times by a GPU's own clock, and the parts of a transfer."""

SPEED: tuple[Figure[Row], ...] = (
    _median("latency_median", "Latency of a batch: median of the process medians.", _latency_of, _has_latency),
    _latency("p50", "50th percentile: the same as the median."),
    _latency("p90", "90th percentile, median over processes."),
    _latency("p95", "95th percentile, median over processes."),
    _latency("p99", "99th percentile, median over processes."),
    _latency("max", "The longest of all samples."),
    _latency("mean", "Mean, median over processes."),
    _median("batch_time_median", "Mode offline: time of a block by its batches.", _batch_time_of, _is_offline),
    Figure(
        "rounds",
        "count",
        "Processes.",
        _within(lambda row: row.latency_ns, lambda it: it.rounds),
        label="rounds",
        latency_table="where known",
    ),
    Figure("samples", "count", "Samples of all processes.", _within(lambda row: row.latency_ns, lambda it: it.n)),
    Figure("stopped", "text", "Why there are no more rounds.", lambda row: row.stopped),
    *DEVICE,
    *(figure for name in PARTS for figure in _part(name)),
    Figure(
        "throughput_items",
        "rate",
        "Samples by wall time of the timed loop, median over processes.",
        lambda row: row.throughput_per_s,
        lambda row: row.throughput_ci95,
        latency_table="always",
    ),
    Figure("items", "text", "What a sample is.", lambda row: units.SAMPLE_NAMES[row.kind]),
    Figure(
        "throughput_tokens", "rate", "The same in tokens.", _tokens_per_s, label="tokens/s", latency_table="where known"
    ),
    Figure(
        "speedup",
        "ratio",
        "Median of the baseline backend by that of the row.",
        _within(lambda row: row.speedup, lambda it: it.ratio),
        lambda row: row.speedup.ci95 if row.speedup else None,
        label="speed-up",
        latency_table="always",
    ),
    Figure("speedup_against", "text", "Its baseline.", _within(lambda row: row.speedup, lambda it: it.baseline)),
    Figure(
        "speedup_rests_on_grade_c",
        "mark",
        "1 where the case or its baseline is grade C; absent elsewhere.",
        lambda row: ranking.is_doubtful(row) if row.speedup else None,
    ),
)
"""Times and rates."""

ANSWERS: tuple[Figure[Row], ...] = (
    Figure(
        "relative_l2",
        "ratio",
        "Distance from fp32 PyTorch.",
        _within(lambda row: row.parity, lambda it: it.relative_l2),
        label="rel. L2",
        latency_table="always",
        cell=units.scientific,
    ),
    Figure(
        "cosine",
        "ratio",
        "Cosine to the answers of fp32 PyTorch.",
        _within(lambda row: row.parity, lambda it: it.cosine),
        label="cosine",
        latency_table="where known",
        cell=units.cosine,
    ),
    Figure(
        "top1_agreement",
        "share",
        "Share of inputs whose likeliest class is that of fp32 PyTorch.",
        # Near-tied logits of random weights flip through rounding alone: their agreement would mislead.
        lambda row: row.parity.top1_agreement if row.parity and row.weights != "seeded" else None,
        label="top-1",
        latency_table="where known",
    ),
)
"""Parity with the outputs of fp32 PyTorch."""

MEMORY: tuple[Figure[Row], ...] = (
    Figure(
        "peak_memory",
        "bytes",
        "Peak resident memory of the case's process.",
        lambda row: row.memory_bytes,
        label="peak",
        latency_table="always",
    ),
)

COLD: tuple[Figure[Row], ...] = (
    _cold("load", "Loading the model in a fresh process.", label="load"),
    _cold("compile", "Compiling the model.", label="compile"),
    _cold("compile_cached", "1 where compiling was short by an earlier cache; absent elsewhere.", "mark"),
    _cold("first_inference", "The first inference after that.", label="first inference"),
    Figure(
        "until_first_answer",
        "time",
        "Loading, compiling and the first inference.",
        _within(lambda row: row.cold_ns, until_first_answer_ns),
        label="cold start",
    ),
)
"""Cold start, in each process."""

FIGURES: tuple[Figure[Row], ...] = (*SPEED, *ANSWERS, *MEMORY, *COLD)

ROOFLINE: tuple[Figure[Row], ...] = (
    _limited("flops_per_batch", "count", "Floating-point operations of a batch.", lambda it: it.flops),
    Figure("flops_per_s", "count", "The same by the time of a pass.", _flops_per_s),
    _limited("flops_share_of_best", "ratio", "Share of the best matrix product.", lambda it: it.flops_share),
    _limited("least_bytes_per_batch", "count", "Bytes that a pass moves at least.", lambda it: it.bytes),
    _limited("bytes_share_of_best_copy", "ratio", "Share of the best copy.", lambda it: it.bytes_share),
    _limited("limit", "text", "What limits the row.", lambda it: it.limit),
)
"""A row against the measured limits of its device."""

ENERGY: tuple[Figure[Energy], ...] = (
    Figure(
        "energy_per_batch",
        "energy",
        "Of the GPU alone, its idle power subtracted.",
        lambda it: it.joules_per_inference,
        label="a batch",
    ),
    Figure(
        "energy_per_item",
        "energy",
        "Of the GPU alone, its idle power subtracted.",
        lambda it: it.joules_per_item,
        label="a sample",
    ),
    Figure(
        "throughput_per_watt",
        "efficiency",
        "Samples a second by watt: samples by joule of the GPU alone, its idle power subtracted.",
        lambda it: 1 / it.joules_per_item if it.joules_per_item > 0 else None,
        label="samples/s/W",
    ),
)
"""Energy per batch and per item."""

ENERGY_WINDOW: tuple[Figure[Energy], ...] = (
    Figure(
        "card_mean",
        "power",
        "Mean power of the GPU over the window.",
        lambda it: it.energy_j / (it.window_ns / units.SECOND.ns),
        label="GPU",
    ),
    Figure("card_idle", "power", "Power of the GPU before the first case came to it.", lambda it: it.idle_w),
    Figure("window", "time", "The timed inferences and what lies between them.", lambda it: it.window_ns),
    Figure("batches", "count", "Batches of the window.", lambda it: it.batches),
    Figure("gpu", "text", "The GPU.", lambda it: it.gpu),
)
"""The measurement that the energy is based on."""


def _load_percentile(name: str, doc: str) -> Figure[LoadedPoint]:
    return Figure(
        f"load_point_latency_{name}",
        "time",
        doc,
        lambda point: percentile_ns(point, name),
        lambda point: percentile.interval if (percentile := point.latency.get(name)) else None,
        label=name,
    )


def _token_percentile(of: Bounded, name: str, doc: str) -> Figure[LoadedPoint]:
    def percentile_of(point: LoadedPoint) -> LoadPercentile | None:
        return None if point.tokens is None else bounded_percentile(point, of, name)

    return Figure(
        f"load_point_{of}_{name}",
        "time",
        doc,
        lambda point: infinite_ns(percentile_of(point)),
        lambda point: percentile.interval if (percentile := percentile_of(point)) else None,
        label=f"{of.upper()} {name}",
    )


_WORDS: Mapping[Bounded, str] = {"ttft": "Time to the first token", "itl": "Time between tokens"}


def _peak_figure(of: Bounded, name: str) -> Figure[LoadRow]:
    """A percentile of generation at the highest load that passed, or at the only one."""

    def percentile_of(row: LoadRow) -> LoadPercentile | None:
        point = peak_point(row)
        return None if point is None or point.tokens is None else bounded_percentile(point, of, name)

    return Figure(
        f"load_{of}_{name}",
        "time",
        f"{_WORDS[of]}, {name}: at the only load, or at the highest that passed.",
        lambda row: infinite_ns(percentile_of(row)),
        lambda row: percentile.interval if (percentile := percentile_of(row)) else None,
        applies=lambda row: row.new_tokens is not None,
    )


def _only(name: str) -> Figure[LoadRow]:
    """A percentile of a row with a single point: streams, one after the other."""

    def of(row: LoadRow) -> float | None:
        return percentile_ns(point, name) if (point := single_point(row)) else None

    return Figure(
        f"load_latency_{name}",
        "time",
        f"Single-stream, multi-stream: {name} of a query, from its start; median over replications.",
        of,
        lambda row: (
            percentile.interval if (point := single_point(row)) and (percentile := point.latency.get(name)) else None
        ),
        applies=lambda row: row.scenario in ("single-stream", "multi-stream"),
    )


def _is_server(row: LoadRow) -> bool:
    return row.scenario == "server"


LOAD: tuple[Figure[LoadRow], ...] = (
    Figure(
        "load_peak", "rate", "Highest load that passed the bound.", lambda row: row.peak_pass_per_s, applies=_is_server
    ),
    Figure("load_fail", "rate", "Lowest load that failed it.", lambda row: row.peak_fail_per_s, applies=_is_server),
    Figure(
        "load_predicted_peak",
        "rate",
        "Peak that replay of the measured service times predicts.",
        lambda row: row.predicted_peak_per_s,
        lambda row: row.predicted_interval,
        applies=_is_server,
    ),
    Figure("load_knee", "rate", "Load with the largest rate by mean latency.", knee_of, applies=_is_server),
    Figure("load_capacity", "rate", "All workers always busy.", lambda row: row.capacity_per_s, applies=_is_server),
    Figure(
        "load_throughput",
        "rate",
        "Closed loops and offline: samples a second, of the best number of clients.",
        lambda row: None if _is_server(row) else highest_load(row) or None,
        applies=lambda row: row.scenario != "server",
    ),
    _only("p50"),
    _only("p90"),
    _only("p99"),
    *(_peak_figure(of, name) for of in _WORDS for name in ("p50", "p99")),
    Figure(
        "load_tokens",
        "rate",
        "Tokens of completed requests a second, at the same load.",
        lambda row: point.tokens.tokens_per_s if (point := peak_point(row)) and point.tokens else None,
        applies=lambda row: row.new_tokens is not None,
    ),
    Figure(
        "load_peak_memory",
        "bytes",
        "Peak resident memory of the process of a load case.",
        lambda row: row.memory_bytes,
    ),
    Figure("load_cost_per_million", "price", "Price of a million requests.", lambda row: row.cost_per_million),
    Figure(
        "load_energy_per_request", "energy", "Energy of a request, where measured.", lambda row: row.joules_per_request
    ),
)
"""A load case: its verified and predicted peak, and what a request costs there."""

_NAMED = ("p50", "p90", "p99")

LOADED: tuple[Figure[LoadedPoint], ...] = (
    Figure("load_factor", "ratio", "Load by the predicted peak.", lambda it: it.factor),
    Figure("load_asked", "rate", "Requests asked for.", lambda it: it.asked_per_s),
    Figure("load_scheduled", "rate", "Requests of the drawn schedules.", lambda it: it.scheduled_per_s),
    Figure("load_achieved", "rate", "Requests completed, to the last completion.", lambda it: it.achieved_per_s),
    Figure("load_samples", "rate", "The same in samples.", lambda it: it.samples_per_s),
    Figure("load_replications", "count", "Replications.", lambda it: it.replications),
    Figure("load_requests", "count", "Scheduled requests of all replications.", lambda it: it.requests),
    Figure("load_failed", "count", "Failed or not served in time: infinite latency.", lambda it: it.failed),
    _load_percentile("p50", "From the scheduled instant (closed loop: from the start); median over replications."),
    _load_percentile("p90", "The same."),
    _load_percentile("p99", "The same."),
    *(_token_percentile("ttft", name, "From the scheduled instant; median over replications.") for name in _NAMED),
    *(_token_percentile("itl", name, "Of all requests of a replication; median over them.") for name in _NAMED),
    Figure(
        "load_point_tokens",
        "rate",
        "Tokens of completed requests.",
        lambda it: it.tokens.tokens_per_s if it.tokens else None,
    ),
    Figure(
        "load_useful_tokens",
        "share",
        "Tokens that were asked for of those that the batches computed.",
        lambda it: it.tokens.useful_share if it.tokens else None,
    ),
    Figure("load_verdict", "text", "PASS, FAIL or UNDECIDED, one-sided 99%.", lambda it: it.verdict),
    Figure("load_over", "share", "Scheduled requests over the bound.", lambda it: it.over_share),
    Figure("load_over_explained", "share", "Variance of it that replay explains.", lambda it: it.over_explained),
    Figure("load_over_low", "share", "Its lower end, one-sided 99%.", lambda it: it.over_low),
    Figure("load_over_high", "share", "Its upper end, one-sided 99%.", lambda it: it.over_high),
    Figure(
        "load_judged",
        "text",
        "Each bound with its share over and its verdict, where there are several or it is on tokens.",
        lambda it: "; ".join(f"{bound.bound} {bound.over_share:.2%} {bound.verdict}" for bound in it.judged) or None,
    ),
    Figure("load_goodput", "share", "Scheduled requests within every bound.", lambda it: it.goodput),
    Figure(
        "load_good",
        "rate",
        "Requests within the bound a second: of the schedule, or of a closed loop.",
        lambda it: it.goodput_per_s,
    ),
    Figure("load_mean_batch", "ratio", "Requests of a batch.", lambda it: it.mean_batch),
    Figure(
        "load_queue_p99",
        "time",
        "Scheduled instant to start of the batch.",
        lambda it: of_enough(it, it.queue_p99_ns),
    ),
    Figure("load_compute_p50", "time", "Start of a batch to its end.", lambda it: it.compute_p50_ns),
    Figure("load_compute_p99", "time", "The same.", lambda it: of_enough(it, it.compute_p99_ns)),
    Figure("load_dispatch_p99", "time", "Lateness of a start from idle.", lambda it: it.dispatch_p99_ns),
    Figure(
        "load_unseen_p99",
        "time",
        "One thread that issues on a GPU: by how much the end of a batch was noticed late at most.",
        lambda it: of_enough(it, it.unseen_p99_ns),
    ),
    Figure("load_added_p99", "time", "What harness and system added.", lambda it: of_enough(it, it.added_p99_ns)),
    Figure("load_reality_by_replay_p50", "ratio", "p50 by its replay.", lambda it: it.reality_over_replay.get("p50")),
    Figure(
        "load_reality_by_replay_p99",
        "ratio",
        "p99 by its replay.",
        lambda it: of_enough(it, it.reality_over_replay.get("p99")),
    ),
    Figure("load_in_band", "count", "Replications with p99 in the 90% band of replay.", lambda it: it.in_band),
    Figure("load_loadgen", "text", "The rule of MLPerf LoadGen.", lambda it: it.loadgen),
    Figure("load_loadgen_estimate", "time", "LoadGen's upper estimate.", lambda it: it.loadgen_estimate_ns),
)
"""One load of a load case: all its replications."""

REPLAYED: tuple[Figure[PredictedPoint], ...] = (
    Figure("replayed_rate", "rate", "Simulated load.", lambda it: it.rate_per_s),
    Figure("replayed_p50", "time", "Median over simulated replications.", lambda it: it.p50_ns),
    Figure(
        "replayed_p50_band_low", "time", "90% of single replications lie in the band.", lambda it: it.p50_band_ns.low
    ),
    Figure("replayed_p50_band_high", "time", "The same.", lambda it: it.p50_band_ns.high),
    Figure("replayed_p99", "time", "Median over simulated replications.", lambda it: it.p99_ns),
    Figure(
        "replayed_p99_band_low", "time", "90% of single replications lie in the band.", lambda it: it.p99_band_ns.low
    ),
    Figure("replayed_p99_band_high", "time", "The same.", lambda it: it.p99_band_ns.high),
    Figure("replayed_mean", "time", "Mean latency.", lambda it: it.mean_ns),
    Figure("replayed_over", "share", "Requests over the bound.", lambda it: it.over_share),
    Figure("replayed_good", "rate", "Requests within the bound a second.", lambda it: it.goodput_per_s),
    Figure("replayed_mean_batch", "ratio", "Requests of a batch.", lambda it: it.mean_batch),
    Figure("replayed_utilisation", "share", "Busy share of the workers.", lambda it: it.utilisation),
)
"""One simulated load."""

Units = Mapping[Kind, tuple[str, float]]
"""Kind → (end of the name, size of the format's unit in our unit)."""

CSV_UNITS: Units = {
    "time": ("_ms", units.MILLISECOND.ns),
    "rate": ("_per_s", 1),
    "bytes": ("_bytes", 1),
    "energy": ("_j", 1),
    "power": ("_w", 1),
    "efficiency": ("_items_per_j", 1),
    "ratio": ("", 1),
    "share": ("_share", 1),
    "count": ("", 1),
    "price": ("", 1),
}
CSV_SECONDS: Units = {**CSV_UNITS, "time": ("_s", units.SECOND.ns)}
"""Units of cold starts and of long windows."""

BASE_UNITS: Units = {
    "time": ("_seconds", units.SECOND.ns),
    "rate": ("_per_second", 1),
    "bytes": ("_bytes", 1),
    "energy": ("_joules", 1),
    "power": ("_watts", 1),
    "efficiency": ("_items_per_joule", 1),
    "ratio": ("_ratio", 1),
    "share": ("_share_ratio", 1),
    "count": ("", 1),
    "price": ("", 1),
}
"""Prometheus asks for base units in names."""


def columns(figures: tuple[Figure[Thing], ...], of: Thing, wanted: Units) -> dict[str, Value]:
    """Name with unit → value of each figure, followed by both ends of its interval."""
    line: dict[str, Value] = {}
    for figure in figures:
        end, size = wanted.get(figure.kind, ("", 1))
        line[f"{figure.key}{end}"] = scaled(figure.value(of), size)
        if figure.interval is not None:
            ends = figure.ends(of)
            for name in ("low", "high"):
                line[f"{figure.key}_ci95_{name}{end}"] = scaled(getattr(ends, name, None), size)
    return line


def scaled(value: Value, size: float) -> Value:
    """A number in a unit of that size; 1 changes nothing, not even an integer."""
    return value / size if size != 1 and isinstance(value, (int, float)) and not isinstance(value, bool) else value


TimesOf = Callable[[GenerationRow], TokenTimes | None]


def _times(key: str, times: TimesOf, words: str) -> tuple[Figure[GenerationRow], ...]:
    """p50, p95, p99 and the largest of one kind of time."""

    def part(name: str) -> Callable[[GenerationRow], Value]:
        return lambda row: getattr(times(row), name, None)

    def over_processes(row: GenerationRow) -> Interval | None:
        token_times = times(row)
        return None if token_times is None else token_times.ci95

    def over_requests(name: str) -> Callable[[GenerationRow], Interval | None]:
        def interval(row: GenerationRow) -> Interval | None:
            token_times = times(row)
            return None if token_times is None else token_times.requests_ci95.get(name)

        return interval

    return (
        Figure(f"{key}_p50", "time", f"{words}: median of the process medians.", part("p50"), over_processes),
        Figure(f"{key}_p95", "time", f"{words}: 95th percentile.", part("p95"), over_requests("p95")),
        Figure(f"{key}_p99", "time", f"{words}: 99th percentile.", part("p99"), over_requests("p99")),
        Figure(f"{key}_max", "time", f"{words}: the longest.", part("max")),
        Figure(f"{key}_values", "count", f"{words}: number of values.", part("n")),
    )


def _rate(key: str, name: str, doc: str) -> Figure[GenerationRow]:
    return Figure(key, "rate", doc, lambda row: getattr(row.rates, name, None))


def _quarter(number: int) -> Figure[GenerationRow]:
    def of(row: GenerationRow) -> Value:
        quarters = None if row.context is None else row.context.quarters
        return None if quarters is None else quarters[number]

    return Figure(f"itl_quarter_{number + 1}", "time", f"Mean ITL in quarter {number + 1} of the output.", of)


GENERATION: tuple[Figure[GenerationRow], ...] = (
    *_times("ttft", lambda row: row.ttft_ns, "Time to the first token"),
    *_times("itl", lambda row: row.itl_ns, "Time between tokens"),
    Figure(
        "tpot",
        "time",
        "Time per token after the first: (t_N - t_1) / (N - 1) of a request, median of the process medians.",
        lambda row: getattr(row.tpot_ns, "p50", None),
        lambda row: getattr(row.tpot_ns, "ci95", None),
    ),
    *map(_quarter, range(4)),
    Figure(
        "itl_slope",
        "time",
        "Growth of the ITL with each 1,000 tokens of context.",
        lambda row: getattr(row.context, "slope_ns_per_1000", None),
        lambda row: getattr(row.context, "slope_ci95", None),
    ),
    Figure(
        "tokens",
        "rate",
        "All tokens of timed requests by the time from the first prompt to the last token.",
        lambda row: getattr(row.rates, "total", None),
        lambda row: getattr(row.rates, "total_ci95", None),
    ),
    _rate("sequence_tokens", "per_sequence", "Tokens of one sequence after its first one."),
    _rate("decode_tokens", "decode", "The same of the whole batch."),
    _rate("prefill_tokens", "prefill", "Prompt tokens of a batch by the time to its first tokens."),
    Figure(
        "cache",
        "bytes",
        "Keys and values after the last token, measured.",
        lambda row: getattr(row.cache, "measured", None),
    ),
    Figure("cache_formula", "bytes", "The same, computed.", lambda row: getattr(row.cache, "formula", None)),
    Figure(
        "memory_roof", "share", "Share of the best measured copy that a decode step reads.", lambda row: row.roof_share
    ),
    Figure(
        "energy_per_token",
        "energy",
        "Of the GPU alone, its idle power subtracted.",
        lambda row: getattr(row.energy, "joules_per_token", None),
    ),
    Figure(
        "forced_relative_l2",
        "ratio",
        "Distance of logits from fp32 eager with the same inputs, the worst step.",
        lambda row: getattr(row.parity, "relative_l2", None),
    ),
    Figure(
        "first_difference",
        "count",
        "Earliest token that differs from fp32 eager's.",
        lambda row: getattr(row.parity, "first_difference", None),
    ),
    Figure(
        "generation_peak_memory", "bytes", "Peak resident memory of the case's process.", lambda row: row.memory_bytes
    ),
)
"""In the order of the CSV file."""

LIMITS = {
    "tokens": "tokens_per_s",
    "sequence_tokens": "sequence_tokens_per_s",
    "decode_tokens": "decode_tokens_per_s",
    "prefill_tokens": "prefill_tokens_per_s",
}
"""Names of thresholds where they are not the figure's key."""
