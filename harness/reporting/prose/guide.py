"""The section “How to read this”: the meaning and the estimation of each column, from the constants that decide it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.aggregation import flags
from harness.core import units
from harness.core.schemas import Row, Summary
from harness.reporting import ranking
from harness.reporting.prose import boundaries
from harness.reporting.prose.conditions import rounds_text
from harness.reporting.tables import custom_metrics_table as custom
from harness.reporting.tables.latency_table import guide_lines, has_percentiles
from harness.reporting.tables.machine_load_table import monitor_cost
from harness.statistics import estimators


def guide(summary: Summary, has_wide: bool) -> str:
    """The explanation of what this report shows; empty where it has nothing to explain.

    has_wide: whether units.WIDE occurs in it.
    """
    rows = [row for _, of_table in ranking.by_table(summary.rows) for row in of_table]
    lines = [*(_latency_lines(summary, rows) if rows else ()), *_grade_lines(summary, rows)]
    if has_wide:
        lines.append(units.wide_means("summary.csv"))
    if rows:
        lines += [*boundaries.guide_lines(rows), *guide_lines(rows), *custom.guide_lines(summary)]
    if cost := monitor_cost(summary.rows):
        lines.append(
            "**machine load**: a separate process reads a few kernel counters four times a second and at each change "
            f"of phase while a case runs. It took {cost} of one CPU at most (the largest share of any process's life)."
        )
    return "\n".join(f"- {line}" for line in lines)


def _latency_lines(summary: Summary, rows: Sequence[Row]) -> Iterable[str]:
    """The columns of the latency and cold start tables."""
    least = (estimators.P90_MIN_SAMPLES, estimators.P95_MIN_SAMPLES, estimators.P99_MIN_SAMPLES)
    names = list(dict.fromkeys(f"{units.SAMPLE_NAMES[row.kind]}/s" for row in rows))
    tokens = any(row.sequence_length for row in rows)
    yield (
        f"**median**: the median of the process medians ({rounds_text(summary, rows)} of each case, each a fresh "
        "process; the rounds of all cases are mixed in random order)."
    )
    yield (
        "**95% CI**: of the median over processes, not over iterations: those of one process are not independent. "
        "Student's t on the logarithms of the process medians; from "
        f"{estimators.MIN_ORDERED} processes on order statistics, which need no shape. One round has no interval."
    )
    if any(row.speedup for row in rows):
        yield (
            f"**speed-up**: the median of {summary.baseline_backend} fp32 divided by this row's; its interval follows "
            "from the two medians' (MOVER)."
        )
    if has_percentiles(rows):
        yield (
            f"**p90, p95, p99**: {estimators.PERCENTILE_ESTIMATOR} in each process, and the median of these; below "
            f"{least[0]}, {least[1]} and {least[2]} samples, or a third of that in any process, they are withheld, "
            "after MLPerf LoadGen's early stopping at 99% confidence. Their 95% intervals, over processes as the "
            "median's, are in summary.csv."
        )
    yield (
        f"**{', '.join([*names, *(['tokens/s'] if tokens else [])])}**: samples divided by the wall time of the timed "
        f"loop, not by a mean latency; the median over processes.{' Tokens count padding.' if tokens else ''}"
    )
    yield _answer_lines(summary, rows)
    yield (
        "**peak MiB**: resident memory of the whole process at its peak, interpreter and libraries included, "
        "also those that only other models of the backend need."
    )
    if any(row.cold_ns for row in rows):
        yield (
            "**cold start**: load + compile + first inference of a new process, without the imports of its "
            "libraries. **break-even**: requests, a batch each, until the time saved repays what comes on top of the "
            "baseline's start, export included; its interval is that of the difference of both medians (MOVER), the "
            "costs taken as measured, and where it is wide its upper end alone is shown (*at most*). *at once*: "
            "nothing comes on top. *not proven*: these rounds leave open that nothing is saved."
        )
    marks = {
        "**bold**: the fastest of its shape: its interval lies below all others', and no row of grade C reads as fast. "
        "Without bold there is no clear winner.": len({(ranking.table_key(row), *ranking.shape(row)) for row in rows})
        < len(rows),
        "*Italics*: grade C, not ranked.": any(row.grade == ranking.UNRANKED for row in rows),
    }
    if any(marks.values()):
        yield " ".join(text for text, occurs in marks.items() if occurs)
    if any(map(ranking.is_doubtful, rows)):
        yield f"**{ranking.DOUBT}**: before a ratio that is based on a row of grade C, this one or the baseline."


def _answer_lines(summary: Summary, rows: Sequence[Row]) -> str:
    """How the outputs were compared."""
    reduced = any(row.precision != "fp32" for row in rows)
    parts = {
        "**rel. L2**: distance of the outputs from the fp32 PyTorch reference, the worst of a check of all inputs "
        "before timing and of outputs taken while timing.": True,
        "The values at padding mean nothing and are not compared.": any(
            made.text_share is not None for export in summary.exports.values() for made in export.input_sets
        ),
        "**top-1**: share of inputs with the reference's answer, of trained classifiers.": any(map(_has_top1, rows)),
        "**cosine**: to the reference, of models without it.": reduced and not all(map(_has_top1, rows)),
        f"**file MiB**: the ONNX file{', engine' if summary.engines else ''} or weights loaded.": reduced,
    }
    return " ".join(text for text, shown in parts.items() if shown)


def _has_top1(row: Row) -> bool:
    return row.parity is not None and row.parity.top1_agreement is not None and row.weights != "seeded"


def _grade_lines(summary: Summary, rows: Sequence[Row]) -> Iterable[str]:
    """Grades of every kind of row."""
    if rows or any(row.grade for row in summary.generations):
        yield (
            "**grade**: A every check that applies was made and passed; the table of checks says for how many rounds · "
            f"B less certain than asked (interval beyond ±{flags.MAX_INTERVAL_HALF_WIDTH:.0%} of the median, fewer "
            "rounds, or a check that was not made) · C disturbed, or an interval beyond "
            f"±{flags.MAX_RANKED_HALF_WIDTH:.0%}: not ranked · F void: wrong outputs, or something else ran than "
            "the label says."
        )
