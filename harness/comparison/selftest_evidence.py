"""Evidence about the harness from trials on work of known duration: bias, false alarms, missed slow-downs (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from harness.core.schemas import ComparedRow, SelfTestRow, Summary
from harness.statistics.binomial import upper_limit
from harness.statistics.estimators import median

MAX_BIAS = 0.01
"""Work of known duration is reported within 1% + 2 × timer overhead: a choice, the margin of a verdict SAME."""

CONFIDENCE = 0.95
"""Confidence that excludes a rate of wrong verdicts: a harness with that rate passes at most 5% of self-tests."""

DEFAULT_RATE = 0.10
"""Rate of wrong verdicts that the self-test excludes. Excluding 5% needs twice as many trials
(docs/decisions/0025-self-test.md)."""


def bias_rows(expected_ns: Mapping[str, int], summaries: Sequence[Summary]) -> list[SelfTestRow]:
    """One row for each known duration (case id → ns): the median of the headlines that the summaries report.

    Raises ValueError when no summary has measured a case.
    """
    rows = []
    for case_id, nominal_ns in expected_ns.items():
        measured = [row for summary in summaries for row in summary.rows if row.case_id == case_id and row.latency_ns]
        if not measured:
            raise ValueError(f"{case_id} was never measured")
        reported_ns = median([row.latency_ns.median for row in measured if row.latency_ns])
        overhead_ns = max(row.clock.overhead_ns for row in measured if row.clock)
        allowed_ns = MAX_BIAS * nominal_ns + 2 * overhead_ns
        rows.append(
            SelfTestRow(
                case_id=case_id,
                nominal_ns=nominal_ns,
                reported_ns=reported_ns,
                allowed_ns=allowed_ns,
                within=abs(reported_ns - nominal_ns) <= allowed_ns,
            )
        )
    return rows


def false_alarms(rows: Iterable[ComparedRow], may_refuse: bool = False) -> tuple[int, int]:
    """(alarms, trials) over comparisons of equal work: only SAME and AMBIGUOUS are right.

    may_refuse: NOT COMPARABLE is right too, where processes may differ so much that a row is too uncertain to compare.
    """
    right = {"SAME", "AMBIGUOUS", *(("NOT COMPARABLE",) if may_refuse else ())}
    verdicts = [row.verdict for row in rows]
    return sum(verdict not in right for verdict in verdicts), len(verdicts)


def refused_count(rows: Iterable[ComparedRow]) -> int:
    """Number of rows that were not compared."""
    return sum(row.verdict == "NOT COMPARABLE" for row in rows)


def missed_count(rows: Iterable[ComparedRow]) -> tuple[int, int]:
    """(missed, trials) over comparisons with work that was slowed down on purpose: only SLOWER is right."""
    verdicts = [row.verdict for row in rows]
    return sum(verdict != "SLOWER" for verdict in verdicts), len(verdicts)


def excluded_rate(wrong: int, trials: int) -> float:
    """The rate of wrong verdicts above which the trials exclude every rate, at CONFIDENCE; 1 where they exclude none.

    At this rate, at most `wrong` of so many verdicts are wrong in 5% of cases.
    """
    return upper_limit(wrong, trials, CONFIDENCE)


def trials_for(rate: float) -> int:
    """Smallest number of trials that exclude a rate if none is wrong: 29 for 10%, 59 for 5%."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-rate))
