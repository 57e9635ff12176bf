"""summary.csv and environments.csv: a line per row or fact, a flat column per figure, empty where absent (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import cast

from pydantic import BaseModel

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


def _reader(path: str) -> Callable[[Row], Value]:
    first, *names = path.split(".")
    part, name, last = attrgetter(first), names[0], names[-1]

    def read(row: Row) -> Value:
        holder = part(row)
        return None if holder is None else cast(Value, getattr(holder, name))

    def read_below(row: Row) -> Value:
        holder = read(row)
        return None if holder is None else cast(Value, getattr(holder, last))

    return read if len(names) == 1 else read_below


def _percentile_end(name: str, end: str) -> Callable[[Row], Value]:
    def read(row: Row) -> Value:
        interval = row.latency_ns.percentile_ci95.get(name) if row.latency_ns else None
        return cast(Value, getattr(interval, end, None))

    return read


def _held_back(row: Row) -> Value:
    """Reason and share of the samples, `sw_power_cap 0.250`; several reasons are separated by spaces."""
    gpu = row.usage.gpu if row.usage else None
    return " ".join(f"{name} {share:.3f}" for name, share in gpu.reasons.items()) if gpu else None


def _busiest(row: Row) -> Value:
    """`cc1plus 4711 87%`; several programs are separated by semicolons."""
    busiest = row.usage.busiest if row.usage else ()
    return "; ".join(f"{process.name} {process.pid} {process.cpu_percent:.0f}%" for process in busiest) or None


_NOT_FLAT = ("rounds", "unavailable", "gpu", "busiest")
"""Fields of the usage that are no figures; those of the GPU have separate columns."""

COLUMNS: dict[str, Callable[[Row], Value]] = {
    **{name: attrgetter(name) for name in _PLAIN},
    **{
        _column(name, path): _reader(f"{_ATTRIBUTE.get(name, name)}.{path}")
        for name, paths in _NESTED.items()
        for path in paths
    },
    **{f"{name}_median_ns": _reader(f"split.{name}.median_ns") for name in PARTS},
    **{f"{name}_share": _reader(f"split.{name}.share") for name in PARTS},
    "throughput_per_s": attrgetter("throughput_per_s"),
    **{f"throughput_ci95_{end}_per_s": _reader(f"throughput_ci95.{end}") for end in ("low", "high")},
    "memory_bytes": attrgetter("memory_bytes"),
    "threads": attrgetter("threads"),
    "stopped": attrgetter("stopped"),
    **{f"latency_{name}_ci95_{end}_ns": _percentile_end(name, end) for name in PERCENTILES for end in ("low", "high")},
    **{name: _reader(f"usage.{name}") for name in UsageSummary.model_fields if name not in _NOT_FLAT},
    **{f"gpu_{name}": _reader(f"usage.gpu.{name}") for name in GpuUsage.model_fields if name != "reasons"},
    "gpu_clock_held_back": _held_back,
    "busiest": _busiest,
    "checks": lambda row: " ".join(f"{name} {check.rounds}/{check.of}" for name, check in row.checks.items()),
    "flags": lambda row: " ".join(dict.fromkeys(flag.name for flag in row.flags)),
}
"""Column name → the figure. Absent figures are empty, never 0."""


def columns_of(summary: Summary) -> dict[str, Callable[[Row], Value]]:
    """The columns of a summary, with those of its plugins' metrics."""
    return {**COLUMNS, **csv_columns(summary)}


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
