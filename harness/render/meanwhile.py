"""What the machine did while the rows of one table were timed: CPU, memory, faults, I/O, clock, GPU (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.core.sanitize import plain_name
from harness.core.schemas import GpuUsage, Row, UsageSummary
from harness.render import units
from harness.render.markdown import escape, table
from harness.render.series import setting_columns
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

GPU_COLUMNS: dict[str, Callable[[GpuUsage], str]] = {
    "SM MHz": lambda card: _span(card.sm_mhz_min, card.sm_mhz_max),
    "memory MHz": lambda card: _thousands(card.memory_mhz_mean),
    "GPU °C": lambda card: _whole(card.temperature_c_max),
    "GPU W": lambda card: _pair(card.power_w_mean, card.power_w_max),
    "GPU %": lambda card: _whole(card.utilisation_percent_mean),
    "GPU MiB": lambda card: ABSENT if card.memory_peak_bytes is None else units.mib(card.memory_peak_bytes),
    "clock held back by": lambda card: ", ".join(f"{name} {share:.0%}" for name, share in card.reasons.items()),
}
"""Header → its cell, of rows that ran on a GPU; left out where no row fills it."""

EXPLAINED = (
    "Mean / peak over warm-up and timed loop of all rounds, as the monitor saw them; 100% is one CPU. Page faults: "
    "minor + major (read from disk). Throttled: periods in which the cgroup's quota held the processes back."
)

EXPLAINED_GPU = (
    " GPU columns come from NVML, about four looks a second: SM clock lowest – highest, memory clock and utilisation "
    "mean, temperature highest, power mean / highest, memory as growth on the whole GPU since before the process; what "
    "held the clock back in what share of the looks."
)


def meanwhile_table(rows: Sequence[Row]) -> str:
    """One line a row that was watched, and why a column is missing; empty where nobody watched."""
    watched = [(row, row.usage) for row in rows if row.usage is not None]
    if not watched:
        return ""
    seen = [usage for _, usage in watched]
    shown = {name: cell for name, (cell, needs) in COLUMNS.items() if _known(seen, needs)}
    shown |= _card_columns(seen)
    by_length = any(row.sequence_length for row, _ in watched)
    settings = setting_columns([row for row, _ in watched])
    lines = [
        [
            *(row.backend, row.precision, *(cell(row) for cell in settings.values()), str(row.batch_size)),
            *([str(row.sequence_length or ABSENT)] if by_length else []),
            *(cell(usage) for cell in shown.values()),
        ]
        for row, usage in watched
    ]
    headers = ["backend", "precision", *settings, "batch", *(["seq"] if by_length else []), *shown]
    missing = {name: reason for usage in seen for name, reason in usage.unavailable.items()}
    reasons = [f"{name.replace('_', ' ')}: {escape(reason)}" for name, reason in sorted(missing.items())]
    absent = f" Not available: {'; '.join(reasons)}." if reasons else ""
    card = EXPLAINED_GPU if any(usage.gpu for usage in seen) else ""
    return f"{table(headers, lines)}\n\n{EXPLAINED}{card}{absent}{_others(seen)}"


MAX_NAMED = 5


def _others(seen: Sequence[UsageSummary]) -> str:
    """The other programs by name, as far as the system shows them; their names are their own choice."""
    largest: dict[tuple[int, str], float] = {}
    for one in (process for usage in seen for process in usage.busiest):
        key = one.pid, plain_name(one.name)
        largest[key] = max(largest.get(key, 0.0), one.cpu_percent)
    named = sorted(largest.items(), key=lambda entry: -entry[1])[:MAX_NAMED]
    said = [f"{name} (process {pid}) {percent:.0f}%" for (pid, name), percent in named]
    return f"\n\nOther programs, with their largest share of a CPU in any round: {', '.join(said)}." if said else ""


def monitor_cost(rows: Sequence[Row]) -> str | None:
    """What watching cost at most, as a share of one CPU; None where nobody watched."""
    shares = [row.usage.monitor_share for row in rows if row.usage is not None]
    return f"{100 * max(shares):.2g}%" if shares else None


def _known(seen: Sequence[UsageSummary], needs: Sequence[str]) -> bool:
    return all(any(getattr(usage, name) is not None for usage in seen) for name in needs)


def _card_columns(seen: Sequence[UsageSummary]) -> dict[str, Cell]:
    cards = [usage.gpu for usage in seen if usage.gpu is not None]
    filled = {name: cell for name, cell in GPU_COLUMNS.items() if any(cell(card) not in ("", ABSENT) for card in cards)}
    return {name: _of_card(cell) for name, cell in filled.items()}


def _of_card(cell: Callable[[GpuUsage], str]) -> Cell:
    return lambda seen: ABSENT if seen.gpu is None else cell(seen.gpu) or ABSENT


def _pair(mean: float | None, peak: float | None) -> str:
    return ABSENT if mean is None else f"{mean:.0f} / {_whole(peak)}"


def _span(low: float | None, high: float | None) -> str:
    return ABSENT if low is None or high is None else f"{low:,.0f} – {high:,.0f}"


def _whole(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.0f}"


def _thousands(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}"


def _count(value: int | None) -> str:
    return ABSENT if value is None else f"{value:,}"


def _mib(size_bytes: int | None) -> str:
    return ABSENT if size_bytes is None else f"{size_bytes / units.MIB:,.1f}"
