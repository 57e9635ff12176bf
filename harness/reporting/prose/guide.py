"""The section “How to read this”: the meaning and the estimation of each column, from the constants that decide it."""

from __future__ import annotations

from harness.aggregation import flags
from harness.core.schemas import Summary
from harness.reporting import ranking, units
from harness.reporting.prose import boundaries
from harness.reporting.tables import custom_metrics_table as custom
from harness.reporting.tables.latency_table import guide_lines
from harness.reporting.tables.machine_load_table import monitor_cost
from harness.statistics import estimators


def guide(summary: Summary) -> str:
    """The explanation below the tables."""
    least = (estimators.P90_MIN_SAMPLES, estimators.P95_MIN_SAMPLES, estimators.P99_MIN_SAMPLES)
    further = any((row.latency_ns.rounds if row.latency_ns else 0) > summary.rounds for row in summary.rows)
    rounds = f"{summary.rounds} or more" if further else f"{summary.rounds}"
    processes = f"{rounds} process" if rounds == "1" else f"{rounds} processes"
    lines = [
        f"**median**: the median of {rounds} process medians; each round of a case is a fresh process, and "
        "the rounds of all cases are mixed in random order.",
        f"**95% CI**: of the median over processes ({processes}, not thousands of iterations: those of one process are "
        "not independent). Student's t on the logarithms of the process medians; from "
        f"{estimators.MIN_ORDERED} processes on order statistics, which need no shape. One round has no interval.",
        f"**p90, p95, p99**: {estimators.PERCENTILE_ESTIMATOR} in each process, and the median of these; below "
        f"{least[0]}, {least[1]} and {least[2]} samples, or a third of that in any process, they are withheld, after "
        "MLPerf LoadGen's early stopping at 99% confidence. Their 95% intervals, over processes as the median's, are "
        "in summary.csv.",
        "**images/s, sequences/s, tokens/s**: samples divided by the wall time of the timed loop, not by a mean "
        "latency; the median over processes. Tokens count padding.",
        f"**speed-up**: the median of {summary.baseline_backend} fp32 divided by this row's; its interval follows from "
        "the two medians' (MOVER).",
        "**rel. L2, top-1**: distance of the outputs from the fp32 PyTorch reference, the worst of a check of all "
        "inputs before timing and of outputs taken while timing. Top-1 is shown for trained classifiers only, the "
        "**cosine** for all others, where rows differ in precision. **file MiB**: "
        f"the ONNX file{', engine' if summary.engines else ''} or weights loaded.",
        "**peak MiB**: resident memory of the whole process at its peak, interpreter and libraries included, "
        "also those that only other models of the backend need.",
        "**until first answer**: load + compile + first inference of a new process, without the imports of its "
        "libraries. **break-even**: batches until the time saved repays what comes on top of the baseline's start, "
        "export included; its interval is that of the difference of both medians (MOVER), the costs taken as measured, "
        "and where it is wide its upper end alone is shown (*at most*). *not proven*: these rounds leave open that "
        "nothing is saved.",
        "**bold**: the fastest of its shape: its interval lies below all others', and no row of grade C reads as fast. "
        "Without bold there is no clear winner. *Italics*: grade C, not ranked.",
        "**grade**: A every check that applies was made and passed; the table of checks says for how many rounds · "
        f"B less certain than asked (interval beyond ±{flags.MAX_INTERVAL_HALF_WIDTH:.0%} of the median, fewer "
        "rounds, or a check that was not made) · C disturbed, or an interval beyond "
        f"±{flags.MAX_RANKED_HALF_WIDTH:.0%}: not ranked · F void: wrong outputs, or something else ran than "
        "the label says.",
        f"**{ranking.DOUBT}**: before a ratio that is based on a row of grade C, this one or the baseline. "
        f"**{units.WIDE}**: the upper end of the interval is more than {flags.MAX_PRINTED_FACTOR:g} times the lower "
        "one, so that its digits would say nothing; summary.csv has them.",
    ]
    lines += [*boundaries.guide_lines(summary.rows), *guide_lines(summary.rows)]
    lines += custom.guide_lines(summary)
    if cost := monitor_cost(summary.rows):
        lines.append(
            "**machine load**: a separate process reads a few kernel counters four times a second and at each change "
            f"of phase while a case runs. It took {cost} of one CPU at most (the largest share of any process's life)."
        )
    return "\n".join(f"- {line}" for line in lines)
