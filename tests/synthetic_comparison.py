"""A comparison of which everything is known: a summary against itself, its rows made faster and slower in turn."""

from __future__ import annotations

from harness.compare import judge
from harness.comparison.verdicts import EQUIVALENCE, Margins
from harness.core.schemas import Comparison, Row, Side, Summary
from harness.reporting.thresholds import parse_all


def with_itself(summary: Summary, *thresholds: str) -> Comparison:
    """Of three rows one is slower than its baseline, one faster and one the same; all of five rounds."""
    summary = summary.model_copy(update={"rows": tuple(_of_five(row) for row in summary.rows)})
    rows = tuple(_taking(row, (0.7, 0.9999, 1.3)[at % 3]) for at, row in enumerate(summary.rows))
    side = Side(
        path="results/summary.json",
        plan_id=summary.plan_id,
        rounds=5,
        measured_from=summary.measured_from,
        measured_to=summary.measured_to,
    )
    baseline = summary.model_copy(update={"rows": rows})
    return judge(baseline, summary, (side, side), Margins(EQUIVALENCE, 0.05), parse_all(thresholds))


def _of_five(row: Row) -> Row:
    """Two processes more where there are three, one on either side of the headline, which stays."""
    if row.latency_ns is None:
        return row
    more = (row.latency_ns.median * 0.999, row.latency_ns.median * 1.001)
    update = {"process_medians": (*row.latency_ns.process_medians, *more), "rounds": row.latency_ns.rounds + 2}
    return row.model_copy(update={"latency_ns": row.latency_ns.model_copy(update=update)})


def _taking(row: Row, factor: float) -> Row:
    if row.latency_ns is None:
        return row
    times = {"median": row.latency_ns.median * factor}
    medians = {"process_medians": tuple(value * factor for value in row.latency_ns.process_medians)}
    return row.model_copy(update={"latency_ns": row.latency_ns.model_copy(update={**times, **medians})})
