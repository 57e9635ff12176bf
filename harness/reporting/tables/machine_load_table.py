"""Machine load while the rows of one table were timed: CPU, memory, faults, I/O, clock, GPU (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core import units
from harness.core.schemas import GpuUsage, Row, Summary, UsageSummary
from harness.core.text import plain_name
from harness.core.units import ABSENT
from harness.reporting import ranking
from harness.reporting.csv_identity import Line, case_line
from harness.reporting.table import Column, Table, case_columns, explained, filled_columns, word_column
from harness.reporting.tables.summary_table import COLUMNS as COLUMNS_OF_SUMMARY
from harness.reporting.tables.summary_table import values_of
from harness.reporting.writers.markdown import escape

COLUMNS: Sequence[tuple[Column[UsageSummary], tuple[str, ...]]] = (
    (Column("CPU %", lambda seen: _pair(seen.cpu_percent_mean, seen.cpu_percent_peak)), ()),
    (Column("others %", lambda seen: _pair(seen.others_percent_mean, seen.others_percent_peak)), ()),
    (Column("steal %", lambda seen: _pair(seen.steal_percent_mean, seen.steal_percent_peak)), ("steal_percent_mean",)),
    (Column("RSS MiB", lambda seen: units.mib(seen.rss_peak_bytes)), ()),
    (Column("PSS MiB", lambda seen: units.mib(seen.pss_peak_bytes)), ("pss_peak_bytes",)),
    (Column("page faults", lambda seen: f"{seen.minor_faults:,} + {seen.major_faults:,}"), ()),
    (Column("read MiB", lambda seen: _mib(seen.read_bytes)), ("read_bytes",)),
    (Column("written MiB", lambda seen: _mib(seen.written_bytes)), ("written_bytes",)),
    (Column("clock MHz", lambda seen: _span(seen.frequency_mhz_min, seen.frequency_mhz_max)), ("frequency_mhz_min",)),
    (Column("°C", lambda seen: units.whole_number(seen.temperature_c_max)), ("temperature_c_max",)),
    (Column("throttled", lambda seen: _count(seen.throttled_periods)), ("throttled_periods",)),
)
"""Each column, and the figures that it needs: without them it would have only dashes, and is left out."""

GPU_COLUMNS: Sequence[Column[GpuUsage]] = (
    Column("SM MHz", lambda gpu: _span(gpu.sm_mhz_min, gpu.sm_mhz_max)),
    Column("memory MHz", lambda gpu: _thousands(gpu.memory_mhz_mean)),
    Column("GPU °C", lambda gpu: units.whole_number(gpu.temperature_c_max)),
    Column("GPU W", lambda gpu: _pair(gpu.power_w_mean, gpu.power_w_max)),
    Column("GPU %", lambda gpu: units.whole_number(gpu.utilisation_percent_mean)),
    Column("GPU MiB", lambda gpu: ABSENT if gpu.memory_peak_bytes is None else units.mib(gpu.memory_peak_bytes)),
    word_column(
        "clock held back by", lambda gpu: ", ".join(f"{name} {share:.0%}" for name, share in gpu.reasons.items())
    ),
)
"""Columns for rows that ran on a GPU; left out where no row has figures."""

MEASURED = "Mean / peak over warm-up and timed loop of all rounds, as the monitor saw them; 100% is one CPU."

EXPLAINED = {
    "page faults": "Page faults: minor + major (read from disk).",
    "throttled": "Throttled: periods in which the cgroup's quota held the processes back.",
    "GPU": "GPU columns come from NVML, about four looks a second: SM clock lowest – highest, memory clock and "
    "utilisation mean, temperature highest, power mean / highest, memory as growth on the whole GPU since before the "
    "process.",
    "clock held back by": "Clock held back by: each cause, with its share of the looks.",
}
"""By the beginning of a header."""


def machine_load_table(rows: Sequence[Row]) -> Table[Row] | None:
    """One line per monitored row, and why a column is missing; None where no monitor ran."""
    watched = [row for row in rows if row.usage is not None]
    if not watched:
        return None
    seen = [row.usage for row in watched if row.usage is not None]
    shown = [_usage_column(column) for column, needs in COLUMNS if _has_values(seen, needs)]
    shown += [
        _gpu_column(column)
        for column in filled_columns(GPU_COLUMNS, [usage.gpu for usage in seen if usage.gpu is not None])
    ]
    missing = {name: reason for usage in seen for name, reason in usage.unavailable.items()}
    reasons = [f"{name.replace('_', ' ')}: {escape(reason)}" for name, reason in sorted(missing.items())]
    absent = f" Not available: {'; '.join(reasons)}." if reasons else ""
    note = f"{MEASURED} {explained(shown, EXPLAINED)}{absent}{_others(seen)}"
    return Table([*case_columns(watched), *shown], watched, note=note)


def usage_lines(summary: Summary) -> list[Line]:
    """A line for each monitored row, with the column names of summary.csv."""
    names = [*UsageSummary.model_fields, *(f"gpu_{name}" for name in GpuUsage.model_fields), "gpu_clock_held_back"]
    columns = {name: COLUMNS_OF_SUMMARY[name] for name in names if name in COLUMNS_OF_SUMMARY}
    rows = [row for _, group in ranking.by_table(summary.rows) for row in group if row.usage]
    lines = zip(*values_of(columns, rows).values(), strict=True)
    return [
        case_line(summary, row, dict(zip(columns, line, strict=True))) for row, line in zip(rows, lines, strict=True)
    ]


MAX_NAMED = 5


def _others(seen: Sequence[UsageSummary]) -> str:
    """The other programs, as far as the system shows them; programs choose their own names."""
    largest: dict[tuple[int, str], float] = {}
    for program in (process for usage in seen for process in usage.busiest):
        key = program.pid, plain_name(program.name)
        largest[key] = max(largest.get(key, 0.0), program.cpu_percent)
    named = sorted(largest.items(), key=lambda entry: -entry[1])[:MAX_NAMED]
    programs = [f"{name} (process {pid}) {percent:.0f}%" for (pid, name), percent in named]
    return (
        f"\n\nOther programs, with their largest share of a CPU in any round: {', '.join(programs)}."
        if programs
        else ""
    )


def monitor_cost(rows: Sequence[Row]) -> str | None:
    """Largest cost of the monitor, as a share of one CPU; None where no monitor ran."""
    shares = [row.usage.monitor_share for row in rows if row.usage is not None]
    return f"{100 * max(shares):.2g}%" if shares else None


def _has_values(seen: Sequence[UsageSummary], needs: Sequence[str]) -> bool:
    return all(any(getattr(usage, name) is not None for usage in seen) for name in needs)


def _usage_column(column: Column[UsageSummary]) -> Column[Row]:
    return Column(column.header, lambda row: column.cell(row.usage) if row.usage else ABSENT, column.align)


def _gpu_column(column: Column[GpuUsage]) -> Column[Row]:
    def cell(row: Row) -> str:
        return column.cell(row.usage.gpu) or ABSENT if row.usage and row.usage.gpu else ABSENT

    return Column(column.header, cell, column.align)


def _pair(mean: float | None, peak: float | None) -> str:
    return ABSENT if mean is None else f"{mean:.0f} / {units.whole_number(peak)}"


def _span(low: float | None, high: float | None) -> str:
    return ABSENT if low is None or high is None else f"{low:,.0f} – {high:,.0f}"


def _thousands(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}"


def _count(value: int | None) -> str:
    return ABSENT if value is None else f"{value:,}"


def _mib(size_bytes: int | None) -> str:
    return ABSENT if size_bytes is None else f"{size_bytes / units.MIB:,.1f}"
