"""What the machine did while the rows of one table were timed: CPU, memory, faults, I/O, clock (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.core.schemas import Row, UsageSummary
from harness.render import units
from harness.render.markdown import escape, table
from harness.render.units import ABSENT

Cell = Callable[[UsageSummary], str]

COLUMNS: dict[str, tuple[Cell, tuple[str, ...]]] = {
    "CPU %": (lambda seen: _pair(seen.cpu_percent_mean, seen.cpu_percent_peak), ()),
    "others %": (lambda seen: _pair(seen.others_percent_mean, seen.others_percent_peak), ()),
    "steal %": (lambda seen: _pair(seen.steal_percent_mean, seen.steal_percent_peak), ("steal_percent_mean",)),
    "RSS MiB": (lambda seen: units.mib(seen.rss_peak_bytes), ()),
    "PSS MiB": (lambda seen: units.mib(seen.pss_peak_bytes), ("pss_peak_bytes",)),
    "page faults": (lambda seen: f"{seen.minor_faults:,} + {seen.major_faults:,}", ()),
    "read MiB": (lambda seen: _mib(seen.read_bytes), ("read_bytes",)),
    "written MiB": (lambda seen: _mib(seen.written_bytes), ("written_bytes",)),
    "clock MHz": (lambda seen: _span(seen.frequency_mhz_min, seen.frequency_mhz_max), ("frequency_mhz_min",)),
    "°C": (lambda seen: _whole(seen.temperature_c_max), ("temperature_c_max",)),
    "throttled": (lambda seen: _count(seen.throttled_periods), ("throttled_periods",)),
}
"""Header → its cell, and the figures without which it is left out: a column of dashes tells nothing."""

EXPLAINED = (
    "Mean / peak over the timed loops of all rounds, as the monitor saw them; 100% is one CPU. Page faults: minor + "
    "major (read from disk). Throttled: periods in which the cgroup's quota held the processes back."
)


def meanwhile_table(rows: Sequence[Row]) -> str:
    """One line a row that was watched, and why a column is missing; empty where nobody watched."""
    watched = [(row, row.usage) for row in rows if row.usage is not None]
    if not watched:
        return ""
    seen = [usage for _, usage in watched]
    shown = {name: cell for name, (cell, needs) in COLUMNS.items() if _known(seen, needs)}
    by_length = any(row.sequence_length for row, _ in watched)
    lines = [
        [
            *(row.backend, row.precision, str(row.batch_size)),
            *([str(row.sequence_length or ABSENT)] if by_length else []),
            *(cell(usage) for cell in shown.values()),
        ]
        for row, usage in watched
    ]
    headers = ["backend", "precision", "batch", *(["seq"] if by_length else []), *shown]
    missing = {name: reason for usage in seen for name, reason in usage.unavailable.items()}
    reasons = [f"{name.replace('_', ' ')}: {escape(reason)}" for name, reason in sorted(missing.items())]
    absent = f" Not available: {'; '.join(reasons)}." if reasons else ""
    return f"{table(headers, lines)}\n\n{EXPLAINED}{absent}"


def monitor_cost(rows: Sequence[Row]) -> str | None:
    """What watching cost at most, as a share of one CPU; None where nobody watched."""
    shares = [row.usage.monitor_share for row in rows if row.usage is not None]
    return f"{100 * max(shares):.2g}%" if shares else None


def _known(seen: Sequence[UsageSummary], needs: Sequence[str]) -> bool:
    return all(any(getattr(usage, name) is not None for usage in seen) for name in needs)


def _pair(mean: float | None, peak: float | None) -> str:
    return ABSENT if mean is None else f"{mean:.0f} / {_whole(peak)}"


def _span(low: float | None, high: float | None) -> str:
    return ABSENT if low is None or high is None else f"{low:,.0f} – {high:,.0f}"


def _whole(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.0f}"


def _count(value: int | None) -> str:
    return ABSENT if value is None else f"{value:,}"


def _mib(size_bytes: int | None) -> str:
    return ABSENT if size_bytes is None else f"{size_bytes / units.MIB:,.1f}"
