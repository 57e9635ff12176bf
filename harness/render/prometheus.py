"""Summary → gauges in Prometheus's text format, for node_exporter's textfile collector (pure).

Units are base units: seconds, bytes, joules. A row of grade F and one that was not measured have no gauge at all, so
that a series ends where its figure does; `inferometer_cases` counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from harness.core.schemas import DeviceTimes, Interval, Latency, Row, Summary
from harness.core.timestamps import since_1970_s
from harness.render.csv_lines import sound_rows, where, who
from harness.render.ranking import is_doubtful
from harness.render.units import SECOND

Figure = Callable[[Row], float | None]

_PREFIX = "inferometer_"


def metrics_text(summary: Summary) -> bytes:
    """Everything, in the summary's order: the same summary gives the same bytes."""
    registry = CollectorRegistry()
    rows = sound_rows(summary)
    for name, (text, figure) in GAUGES.items():
        found = [(row, value) for row in rows if (value := figure(row)) is not None]
        _fill(registry, name, text, [(_labels(row), value) for row, value in found])
    joules = [(row, summary.energies[row.case_id]) for row in rows if row.case_id in summary.energies]
    for name, text, field in _ENERGIES:
        _fill(registry, name, text, [(_labels(row), getattr(energy, field)) for row, energy in joules])
    _fill(registry, "custom", "Metrics of plugins, by their name and in their unit.", _custom(summary, rows))
    _fill(registry, "case_info", "Grade and flags of a case, to join with.", [(_graded(row), 1) for row in rows])
    _fill(registry, "run_info", "Where it was measured, and from which plan.", [(_run(summary), 1)])
    if summary.measured_to:
        _fill(registry, "measured_timestamp_seconds", "When it was.", [({}, since_1970_s(summary.measured_to))])
    counts = Counter((row.status, row.grade or "") for row in summary.rows)
    cases = [({"status": status, "grade": grade}, number) for (status, grade), number in sorted(counts.items())]
    _fill(registry, "cases", "Planned cases by what became of them.", cases)
    return generate_latest(registry)


def _fill(
    registry: CollectorRegistry, name: str, text: str, samples: Sequence[tuple[Mapping[str, str], float]]
) -> None:
    """A family of gauges; none where there are no samples."""
    if not samples:
        return
    gauge = Gauge(_PREFIX + name, text, [*samples[0][0]], registry=registry)
    for labels, value in samples:
        (gauge.labels(**labels) if labels else gauge).set(value)


def _custom(summary: Summary, rows: Sequence[Row]) -> list[tuple[Mapping[str, str], float]]:
    return [
        ({**_labels(row), "metric": name, "unit": metric.unit}, found)
        for name, metric in summary.custom.items()
        for row in rows
        if isinstance(found := row.custom.get(name), float)
    ]


def _run(summary: Summary) -> dict[str, str]:
    """Without the dates, or each run would start another series."""
    return {name: text for name, text in _texts(where(summary)).items() if not name.startswith("measured_")}


def _labels(row: Row) -> dict[str, str]:
    """What tells a series from others; its grade does not, or a disturbed run would start another series."""
    return {name: text for name, text in _texts(who(row)).items() if name != "grade"}


def _graded(row: Row) -> dict[str, str]:
    flags = " ".join(dict.fromkeys(flag.name for flag in row.flags))
    return {**_labels(row), "grade": row.grade or "", "flags": flags}


def _texts(found: Mapping[str, object]) -> dict[str, str]:
    return {name: "" if value is None else str(value) for name, value in found.items()}


def _seconds(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / SECOND.ns


def _latency(figure: Callable[[Latency], float | None]) -> Figure:
    """Of rows whose batches have one."""

    def read(row: Row) -> float | None:
        return _seconds(figure(row.latency_ns)) if row.latency_ns and row.mode != "offline" else None

    return read


def _batch_time(row: Row) -> float | None:
    return _seconds(row.latency_ns.median) if row.latency_ns and row.mode == "offline" else None


def _device(figure: Callable[[DeviceTimes], float | None]) -> Figure:
    return lambda row: _seconds(figure(row.device_ns)) if row.device_ns else None


def _cold(name: str) -> Figure:
    return lambda row: _seconds(getattr(row.cold_ns, name)) if row.cold_ns else None


def _end(found: Interval | None, name: str) -> float | None:
    return getattr(found, name) if found else None


GAUGES: Mapping[str, tuple[str, Figure]] = {
    "latency_median_seconds": ("Latency of a batch: median of the process medians.", _latency(lambda it: it.median)),
    "latency_median_ci95_low_seconds": ("Its 95% interval over processes.", _latency(lambda it: _end(it.ci95, "low"))),
    "latency_median_ci95_high_seconds": (
        "Its 95% interval over processes.",
        _latency(lambda it: _end(it.ci95, "high")),
    ),
    "latency_p50_seconds": ("The same as the median.", _latency(lambda it: it.p50)),
    "latency_p90_seconds": ("90th percentile, median over processes.", _latency(lambda it: it.p90)),
    "latency_p95_seconds": ("95th percentile, median over processes.", _latency(lambda it: it.p95)),
    "latency_p99_seconds": ("99th percentile, median over processes.", _latency(lambda it: it.p99)),
    "batch_time_seconds": ("Offline mode: what a batch takes of a block's time.", _batch_time),
    "device_median_seconds": ("The same inferences by the GPU's event clock.", _device(lambda it: it.device)),
    "enqueue_seconds": ("Host time until a batch was submitted to the GPU.", _device(lambda it: it.enqueue)),
    "throughput_items_per_second": (
        "Items by wall time of the timed loop, median over processes.",
        lambda row: row.throughput_per_s,
    ),
    "speedup_ratio": ("Against the baseline backend.", lambda row: row.speedup.ratio if row.speedup else None),
    "speedup_rests_on_grade_c_info": (
        "1 where the case or its baseline is grade C; absent elsewhere.",
        lambda row: 1.0 if is_doubtful(row) else None,
    ),
    "relative_l2_ratio": ("Distance from fp32 PyTorch.", lambda row: row.parity.relative_l2 if row.parity else None),
    "peak_memory_bytes": ("Peak resident memory of the case's process.", lambda row: row.memory_bytes),
    "load_seconds": ("Loading the model in a fresh process.", _cold("load")),
    "compile_seconds": ("Compiling the model.", _cold("compile")),
    "first_inference_seconds": ("The first inference after that.", _cold("first_inference")),
}
"""Name behind the prefix → help and figure."""

_ENERGIES = (
    ("energy_per_batch_joules", "Of the GPU alone, its idle power subtracted.", "joules_per_inference"),
    ("energy_per_item_joules", "Of the GPU alone, its idle power subtracted.", "joules_per_item"),
)
