"""The figures of a row, each declared once: key, kind, value, interval (pure).

CSV columns, MLflow metrics, Prometheus gauges and the metrics of thresholds are views of FIGURES. A figure that also
needs an export, an engine or another row is a column of its table. Times are in nanoseconds, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, TypeVar

from harness.core.schemas import Interval, Latency, Row
from harness.render import ranking, units
from harness.render.csv_writing import Value
from harness.render.ways import PARTS

Kind = Literal["time", "rate", "bytes", "ratio", "share", "count", "text", "mark"]
"""What a figure is, which decides its unit in each format. A mark says True or False about another figure."""

_Of = Callable[[Row], Value]
_Ends = Callable[[Row], Interval | None]
_Part = TypeVar("_Part")


@dataclass(frozen=True)
class Figure:
    """One figure of a row.

    key: its name in every format, without the unit. doc: one line, as Prometheus shows it. of: its value, None where it
    is unknown. interval: its 95% interval over processes. applies: False for rows whose boundary, mode or device has
    no such figure.
    """

    key: str
    kind: Kind
    doc: str
    of: _Of
    interval: _Ends | None = None
    applies: Callable[[Row], bool] = lambda _row: True

    def value(self, row: Row) -> Value:
        """Of a row; None where it is unknown."""
        return self.of(row)

    def ends(self, row: Row) -> Interval | None:
        """The interval of a row; None where there is none."""
        return self.interval(row) if self.interval is not None and self.value(row) is not None else None


def _within(part: Callable[[Row], _Part | None], figure: Callable[[_Part], Value]) -> _Of:
    def of(row: Row) -> Value:
        found = part(row)
        return None if found is None else figure(found)

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


def _median(key: str, doc: str, part: Callable[[Row], Latency | None], applies: Callable[[Row], bool]) -> Figure:
    return Figure(
        key,
        "time",
        doc,
        _within(part, lambda it: it.median),
        lambda row: found.ci95 if (found := part(row)) else None,
        applies=applies,
    )


def _latency(name: str, doc: str) -> Figure:
    def interval(row: Row) -> Interval | None:
        found = _latency_of(row)
        if found is None:
            return None
        return found.ci95 if name == "p50" else found.percentile_ci95.get(name)

    of, percentile = _within(_latency_of, attrgetter(name)), name.startswith("p")
    return Figure(f"latency_{name}", "time", doc, of, interval if percentile else None, applies=_has_latency)


def _device(key: str, name: str, doc: str, kind: Kind = "time", applies: Callable[[Row], bool] = _has_copies) -> Figure:
    return Figure(key, kind, doc, _within(lambda row: row.device_ns, attrgetter(name)), applies=applies)


def _part(name: str) -> tuple[Figure, Figure]:
    part = PARTS[name]
    return (
        Figure(
            f"{name}_median",
            "time",
            f"Boundary e2e: {name}, median of the process medians.",
            _within(lambda row: row.split, lambda split: part(split).median_ns),
            applies=_has_parts,
        ),
        Figure(
            name,
            "share",
            f"Boundary e2e: {name}, share of the time of all samples.",
            _within(lambda row: row.split, lambda split: part(split).share),
            applies=_has_parts,
        ),
    )


def _cold(key: str, doc: str, kind: Kind = "time") -> Figure:
    return Figure(key, kind, doc, _within(lambda row: row.cold_ns, attrgetter(key)))


def _parity(key: str, name: str, kind: Kind, doc: str) -> Figure:
    return Figure(key, kind, doc, _within(lambda row: row.parity, attrgetter(name)))


def _tokens_per_s(row: Row) -> float | None:
    if row.throughput_per_s is None or row.sequence_length is None:
        return None
    return row.throughput_per_s * row.sequence_length


SPEED: tuple[Figure, ...] = (
    _median("latency_median", "Latency of a batch: median of the process medians.", _latency_of, _has_latency),
    _latency("p50", "50th percentile: the same as the median."),
    _latency("p90", "90th percentile, median over processes."),
    _latency("p95", "95th percentile, median over processes."),
    _latency("p99", "99th percentile, median over processes."),
    _latency("max", "The longest of all samples."),
    _latency("mean", "Mean, median over processes."),
    _median("batch_time_median", "Mode offline: time of a block by its batches.", _batch_time_of, _is_offline),
    Figure("rounds", "count", "Processes.", _within(lambda row: row.latency_ns, lambda it: it.rounds)),
    Figure("samples", "count", "Samples of all processes.", _within(lambda row: row.latency_ns, lambda it: it.n)),
    Figure("stopped", "text", "Why there are no more rounds.", lambda row: row.stopped),
    Figure(
        "device_median",
        "time",
        "The same inferences by the GPU's event clock.",
        _within(lambda row: row.device_ns, lambda it: it.device),
        lambda row: row.device_ns.device_ci95 if row.device_ns else None,
        applies=_on_gpu,
    ),
    _device("h2d", "h2d", "Boundary transfer: copies to the GPU."),
    _device("compute", "compute", "Boundary transfer: the pass itself."),
    _device("d2h", "d2h", "Boundary transfer: copies from the GPU."),
    _device("copies_hidden", "overlap", "Share of the copies' time that computing hides.", "share"),
    _device("enqueue", "enqueue", "Host time until a batch was submitted to the GPU.", applies=_on_gpu),
    *(figure for name in PARTS for figure in _part(name)),
    Figure(
        "throughput_items",
        "rate",
        "Items by wall time of the timed loop, median over processes.",
        lambda row: row.throughput_per_s,
        lambda row: row.throughput_ci95,
    ),
    Figure("items", "text", "What an item is.", lambda row: units.ITEMS[row.kind]),
    Figure("throughput_tokens", "rate", "The same in tokens.", _tokens_per_s),
    Figure(
        "speedup",
        "ratio",
        "Median of the baseline backend by that of the row.",
        _within(lambda row: row.speedup, lambda it: it.ratio),
        lambda row: row.speedup.ci95 if row.speedup else None,
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

ANSWERS: tuple[Figure, ...] = (
    _parity("relative_l2", "relative_l2", "ratio", "Distance from fp32 PyTorch."),
    _parity("cosine", "cosine", "ratio", "Cosine to the answers of fp32 PyTorch."),
    Figure(
        "top1_agreement",
        "share",
        "Share of inputs whose likeliest class is that of fp32 PyTorch.",
        # Near-tied logits of random weights flip on rounding alone: their agreement would mislead.
        lambda row: row.parity.top1_agreement if row.parity and row.weights != "seeded" else None,
    ),
)
"""How near the outputs are to those of fp32 PyTorch."""

MEMORY: tuple[Figure, ...] = (
    Figure(
        "peak_memory",
        "bytes",
        "Peak resident memory of the case's process.",
        lambda row: row.memory_bytes,
    ),
)

COLD: tuple[Figure, ...] = (
    _cold("load", "Loading the model in a fresh process."),
    _cold("compile", "Compiling the model."),
    _cold("compile_cached", "1 where compiling was short by an earlier cache; absent elsewhere.", "mark"),
    _cold("first_inference", "The first inference after that."),
)
"""Cold start, in each process."""

FIGURES: tuple[Figure, ...] = (*SPEED, *ANSWERS, *MEMORY, *COLD)

Units = Mapping[Kind, tuple[str, float]]
"""Kind → (end of the name, how many of ours one of them is)."""

CSV_UNITS: Units = {
    "time": ("_ms", units.MILLISECOND.ns),
    "rate": ("_per_s", 1),
    "bytes": ("_bytes", 1),
    "ratio": ("", 1),
    "share": ("_share", 1),
    "count": ("", 1),
}
CSV_SECONDS: Units = {**CSV_UNITS, "time": ("_s", units.SECOND.ns)}
"""Of cold starts."""

BASE_UNITS: Units = {
    "time": ("_seconds", units.SECOND.ns),
    "rate": ("_per_second", 1),
    "bytes": ("_bytes", 1),
    "ratio": ("_ratio", 1),
    "share": ("_share_ratio", 1),
    "count": ("", 1),
}
"""Prometheus asks for base units in names."""


def columns(figures: tuple[Figure, ...], row: Row, wanted: Units) -> dict[str, Value]:
    """Name with its unit → value of each figure, both ends of its interval behind it."""
    line: dict[str, Value] = {}
    for figure in figures:
        end, size = wanted.get(figure.kind, ("", 1))
        line[f"{figure.key}{end}"] = scaled(figure.value(row), size)
        if figure.interval is not None:
            ends = figure.ends(row)
            for name in ("low", "high"):
                line[f"{figure.key}_ci95_{name}{end}"] = scaled(getattr(ends, name, None), size)
    return line


def scaled(value: Value, size: float) -> Value:
    """A number in a unit of that size; 1 changes nothing, not even an integer."""
    return value / size if size != 1 and isinstance(value, (int, float)) and not isinstance(value, bool) else value
