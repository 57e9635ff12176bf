"""What trials on work of known duration prove about the harness: bias, false alarms, missed slow-downs (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from harness.core.schemas import ComparedRow, SelfTestRow, Summary
from harness.measure.stats import median

MAX_BIAS = 0.01
"""METHOD §2.12: known-duration work is reported within 1% + 2 × timer overhead."""

MIN_RIGHT = 0.95
"""METHOD §2.12: two equal cells are called SAME or AMBIGUOUS, and a 5% slow-down SLOWER, in at least 95% of trials."""


def bias_rows(expected_ns: Mapping[str, int], summaries: Sequence[Summary]) -> list[SelfTestRow]:
    """One row for each known duration (case id → ns): the median of the headlines that the summaries report.

    Raises ValueError when no summary has measured a case.
    """
    rows = []
    for case_id, nominal_ns in expected_ns.items():
        found = [row for summary in summaries for row in summary.rows if row.case_id == case_id and row.latency_ns]
        if not found:
            raise ValueError(f"{case_id} was never measured")
        reported_ns = median([row.latency_ns.median for row in found if row.latency_ns])
        overhead_ns = max(row.clock.overhead_ns for row in found if row.clock)
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


def false_alarms(rows: Iterable[ComparedRow]) -> tuple[int, int]:
    """(alarms, trials) over comparisons of equal work: only SAME and AMBIGUOUS are right."""
    verdicts = [row.verdict for row in rows]
    return sum(verdict not in {"SAME", "AMBIGUOUS"} for verdict in verdicts), len(verdicts)


def missed(rows: Iterable[ComparedRow]) -> tuple[int, int]:
    """(missed, trials) over comparisons with work that was slowed on purpose: only SLOWER is right."""
    verdicts = [row.verdict for row in rows]
    return sum(verdict != "SLOWER" for verdict in verdicts), len(verdicts)


def right_often_enough(wrong: int, trials: int) -> bool:
    """Whether the share of right verdicts meets the target; never without a trial."""
    return trials > 0 and (trials - wrong) / trials >= MIN_RIGHT
