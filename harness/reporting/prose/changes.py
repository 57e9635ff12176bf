"""One row of a comparison, or one threshold, in words: the same in tables, JUnit and annotations (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from harness.core.schemas import ComparedLoad, ComparedRow, Interval, Judgement, Quantity, Verdict
from harness.reporting import units

_ORDER: tuple[Verdict, ...] = ("SLOWER", "AMBIGUOUS", "SAME", "FASTER", "GONE", "NEW", "NOT COMPARABLE")


def worst_first(rows: Iterable[ComparedRow]) -> list[ComparedRow]:
    """Failing rows first, then by verdict, and within one verdict the slowest first."""
    return sorted(rows, key=lambda row: (not row.fails, _ORDER.index(row.verdict), -(row.ratio or 0), row.case_id))


def percent(ratio: float) -> str:
    """A ratio as a change: +5.0%, -3.2%, and ×12.3 where a percentage would be hard to read."""
    # Adding 0.0 removes the sign of a zero.
    return f"×{units.significant(ratio)}" if ratio >= 10 else f"{round(100 * (ratio - 1), 1) + 0.0:+.1f}%"


def interval(found: Interval | None) -> str:
    """Both ends as changes."""
    return units.interval(found, end=percent)


def in_words(row: ComparedRow) -> str:
    """The change of a row, with its numbers."""
    if row.ratio is not None and row.relative is not None:
        before, after = (f"{units.significant(one)} of the baseline backend's time" for one in row.relative)
    elif row.ratio is not None and row.baseline_ns is not None and row.current_ns is not None:
        before, after = units.duration(row.baseline_ns), units.duration(row.current_ns)
    else:
        return row.reason or {"NEW": "not in the baseline", "GONE": "only in the baseline"}.get(row.verdict, "")
    parts = [f"{before} → {after}, {percent(row.ratio)}, 95% CI {interval(row.ci95)}", note(row)]
    return "; ".join(part for part in parts if part)


def load_in_words(load: ComparedLoad) -> str:
    """Both peaks, the change of the prediction, and the reason of the verdict."""
    peaks = [peak for side in (load.baseline, load.current) if (peak := peak_ends(side))]
    moved = f"prediction {percent(load.ratio)}" if load.ratio is not None else ""
    return "; ".join(part for part in (" → ".join(peaks), moved, load.reason or "") if part)


def peak_ends(side: tuple[float | None, float | None]) -> str:
    """`[59.6, 72.8]/s`: highest PASS and lowest FAIL; empty without either."""
    passed, failed = side
    if passed is None and failed is None:
        return ""
    return f"[{units.significant(passed)}, {units.significant(failed)}]/s"


def note(row: ComparedRow) -> str:
    """Remarks beside the numbers: tolerance, doubt, and changes of the software or hardware that the row ran on."""
    tolerated = "within --max-regression" if row.verdict == "SLOWER" and not row.fails else ""
    return "; ".join(part for part in (tolerated, row.reason or "", ", ".join(row.changed)) if part)


def figure(value: float, quantity: Quantity) -> str:
    """A value of a threshold with its unit."""
    match quantity:
        case "ns":
            return units.duration(value)
        case "per_s":
            return f"{units.significant(value)}/s"
        case "bytes":
            return f"{units.mib(round(value))} MiB"
        case "ratio":
            return f"{units.significant(value)}x"


def judged(judgement: Judgement) -> str:
    """The figure that was compared with a threshold, and whether noise could change the outcome."""
    if judgement.value is None:
        return judgement.reason or "no figure"
    said = figure(judgement.value, judgement.quantity)
    if judgement.ci95 is None or judgement.clear is None:
        return f"{said}, no interval"
    interval = units.interval(judgement.ci95, end=lambda end: figure(end, judgement.quantity))
    return f"{said}, 95% CI {interval} {'clear of the limit' if judgement.clear else 'reaches across the limit'}"
