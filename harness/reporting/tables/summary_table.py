"""summary.csv and environments.csv: a line per row or fact, a flat column per figure, empty where absent (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, cast

from pydantic import BaseModel

from harness.aggregation.grades import names_of
from harness.core.schemas import GpuUsage, Row, Summary, Unavailable, UsageSummary
from harness.reporting.csv_identity import Line
from harness.reporting.figures import Value
from harness.reporting.prose.boundaries import PARTS
from harness.reporting.tables.custom_metrics_table import csv_columns

PERCENTILES = ("p50", "p90", "p95", "p99")

_PLAIN = (
    "case_id", "model", "backend", "device", "precision", "batch_size", "sequence_length", "boundary", "mode",
    "weights", "setting", "kind", "status", "grade", "tried", "reason", "hint",
)  # fmt: skip

_NESTED = {
    "latency_ns": ("median", "ci95.low", "ci95.high", "p50", "p90", "p95", "p99", "max", "mean", "iqr"),
    "latency": ("cv", "lag1_autocorrelation", "n", "rounds"),
    "speedup": ("ratio", "ci95.low", "ci95.high", "baseline", "baseline_grade"),
    "parity": (
        "samples",
        "relative_l2",
        "max_abs",
        "cosine",
        "top1_agreement",
        "nonfinite",
        "item_relative_l2",
        "item_cosine",
    ),
    "placement": ("device", "precision", "provider"),
    "cold_ns": ("load", "compile", "first_inference", "compile_cached"),
    "device_ns": ("device", "device_ci95.low", "device_ci95.high", "enqueue", "h2d", "compute", "d2h"),
    "device": ("overlap",),
    "roofline": ("flops", "bytes", "flops_share", "bytes_share", "limit"),
}
"""Fields below a row's records; a dot separates levels."""

_ATTRIBUTE = {"latency": "latency_ns", "device": "device_ns"}
"""Name in a column → attribute of a row: figures without a unit must not have a column name with a unit."""


def _column(name: str, path: str) -> str:
    stem = name.removesuffix("_ns")
    tail = path.replace(".", "_")
    timed = name.endswith("_ns") and path != "compile_cached"
    return f"{stem}_{tail}_ns" if timed else f"{stem}_{tail}"


def _percentile_end(name: str, end: str) -> Callable[[Row], Value]:
    def read(row: Row) -> Value:
        interval = row.latency_ns.percentile_ci95.get(name) if row.latency_ns else None
        return cast(Value, getattr(interval, end, None))

    return read


def _throttling_text(row: Row) -> Value:
    """Reason and share of the samples, `sw_power_cap 0.250`; several reasons are separated by spaces."""
    gpu = row.usage.gpu if row.usage else None
    return " ".join(f"{name} {share:.3f}" for name, share in gpu.reasons.items()) if gpu else None


def _busiest(row: Row) -> Value:
    """`cc1plus 4711 87%`; several programs are separated by semicolons."""
    busiest = row.usage.busiest if row.usage else ()
    return "; ".join(f"{process.name} {process.pid} {process.cpu_percent:.0f}%" for process in busiest) or None


_NOT_FLAT = ("rounds", "unavailable", "gpu", "busiest")
"""Fields of the usage that are no figures; those of the GPU have separate columns."""

COLUMNS: dict[str, str | Callable[[Row], Value]] = {
    **{name: name for name in _PLAIN},
    **{
        _column(name, path): f"{_ATTRIBUTE.get(name, name)}.{path}" for name, paths in _NESTED.items() for path in paths
    },
    **{f"{name}_median_ns": f"split.{name}.median_ns" for name in PARTS},
    **{f"{name}_share": f"split.{name}.share" for name in PARTS},
    "throughput_per_s": "throughput_per_s",
    **{f"throughput_ci95_{end}_per_s": f"throughput_ci95.{end}" for end in ("low", "high")},
    "memory_bytes": "memory_bytes",
    "threads": "threads",
    "stopped": "stopped",
    **{f"latency_{name}_ci95_{end}_ns": _percentile_end(name, end) for name in PERCENTILES for end in ("low", "high")},
    **{name: f"usage.{name}" for name in UsageSummary.model_fields if name not in _NOT_FLAT},
    **{f"gpu_{name}": f"usage.gpu.{name}" for name in GpuUsage.model_fields if name != "reasons"},
    "gpu_clock_held_back": _throttling_text,
    "busiest": _busiest,
    "checks": lambda row: " ".join(f"{name} {check.rounds}/{check.of}" for name, check in row.checks.items()),
    "flags": lambda row: " ".join(names_of(row.flags)),
}
"""Column name → the path of the figure in a row, or how to compute it. Absent figures are empty, never 0."""


def columns_of(summary: Summary) -> dict[str, Sequence[Value]]:
    """The values of each column of a summary, with those of its plugins' metrics."""
    return values_of({**COLUMNS, **csv_columns(summary)}, summary.rows)


def values_of(columns: Mapping[str, str | Callable[[Row], Value]], rows: Sequence[Row]) -> dict[str, Sequence[Value]]:
    """The values of each column. columns: as COLUMNS."""
    names: dict[str, dict[str, str]] = {}
    for name, figure in columns.items():
        if isinstance(figure, str):
            holder, _, last = figure.rpartition(".")
            names.setdefault(holder, {})[name] = last
    values: dict[str, Sequence[Value]] = {}
    for holder, fields in names.items() if rows else ():
        values |= zip(fields, _fields_below(rows, holder, list(fields.values())), strict=True)
    return {
        name: values.get(name, ()) if isinstance(figure, str) else [figure(row) for row in rows]
        for name, figure in columns.items()
    }


def _fields_below(rows: Sequence[Row], path: str, fields: Sequence[str]) -> Iterable[Sequence[Value]]:
    """The values of some fields of a record in each row; None where the record is absent."""
    records: Sequence[Any] = rows
    for name in filter(None, path.split(".")):
        records = [None if record is None else getattr(record, name) for record in records]
    read, absent = attrgetter(*fields, fields[0]), (None,) * (len(fields) + 1)  # of a single field it reads no tuple
    return islice(zip(*(absent if record is None else read(record) for record in records), strict=True), len(fields))


def environment_lines(summary: Summary) -> list[Line]:
    """A line for each fact of each environment; facts that could not be read are empty, with the reason."""
    return [
        {"environment_id": name, "fact": fact, **_as_line(value), "plan_id": summary.plan_id}
        for name, environment in summary.environments.items()
        for part in ("machine", "limits", "gpu", "software")
        for fact, value in _facts(part, getattr(environment, part))
    ]


def _facts(name: str, value: object) -> Iterator[tuple[str, object]]:
    """(path with dots, value) of all fields below; a field's name contains its unit."""
    if isinstance(value, BaseModel) and not isinstance(value, Unavailable):
        for field in type(value).model_fields:
            yield from _facts(f"{name}.{field}", getattr(value, field))
    elif isinstance(value, Mapping):
        for key, inner in sorted(value.items()):
            yield f"{name}.{key}", inner
    elif value is not None:
        yield name, value


def _as_line(value: object) -> Line:
    if isinstance(value, Unavailable):
        return {"value": None, "not_available": value.unavailable}
    plain: Value = value if isinstance(value, (str, int, float)) else " ".join(map(str, value))  # type: ignore[call-overload]
    return {"value": plain, "not_available": None}
