"""Whether the rows of a matrix that was spread over devices were disturbed by their neighbours (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from harness.aggregation.scaling import DISTURBED_ABOVE, Disturbance, disturbance
from harness.core.schemas import NeighbourSample, Row, Summary
from harness.reporting import units
from harness.reporting.labels import Line, ends, per, where, who
from harness.reporting.table import Column, Table, words
from harness.reporting.tables.scaling_table import case_label, devices_in_words
from harness.statistics.estimators import median


def neighbours_table(summary: Summary) -> Table[NeighbourSample] | None:
    """A row for each case that was measured alone again; None where no matrix was spread."""
    check = summary.neighbours
    if check is None:
        return None
    rows = {row.case_id: row for row in summary.rows}
    samples = [sample for sample in check.samples if sample.case_id in rows and disturbance(sample)]
    unit = units.time_unit([median(sample.alone_ns) for sample in samples])
    columns = [
        words("case", lambda sample: case_label(rows[sample.case_id])),
        words("device", lambda sample: check.slots[sample.slot].name),
        Column(f"beside others {unit.name}", lambda sample: units.in_unit(median(sample.spread_ns), unit)),
        Column(f"alone {unit.name}", lambda sample: units.in_unit(median(sample.alone_ns), unit)),
        Column("beside ÷ alone", lambda sample: f"{found_of(sample).value:.3f}"),
        Column("95% CI", _ends),
        words("neighbours", lambda sample: found_of(sample).verdict),
    ]
    if not samples:
        columns = [words("case", lambda sample: sample.case_id)]
    whole_s, sum_s = check.wall_s, sum(check.busy_s)
    conditions = (
        f"The cases were spread over {devices_in_words(check.slots)}: {units.duration(whole_s * 1e9)} of wall time for "
        f"{units.duration(sum_s * 1e9)} of measuring. {units.count(len(samples), 'case')} at random were measured "
        "alone again, on the same device and CPUs."
    )
    note = (
        f"Not disturbed: the whole interval lies within ±{DISTURBED_ABOVE - 1:.0%}; disturbed: it lies above. Rows of "
        "one model may be of different devices; rows that are compared by speed-up are of one."
    )
    return Table(columns, samples, conditions, note)


def neighbour_lines(summary: Summary) -> list[Line]:
    """A line for each case that was measured alone again."""
    check = summary.neighbours
    rows: Mapping[str, Row] = {row.case_id: row for row in summary.rows}
    return [
        {
            **who(rows[sample.case_id]),
            "name": check.slots[sample.slot].name,
            "beside_latency_s": per(median(sample.spread_ns), units.SECOND),
            "alone_latency_s": per(median(sample.alone_ns), units.SECOND),
            "beside_over_alone": found.value,
            **ends("beside_over_alone", found.ci95, None),
            "verdict": found.verdict,
            **where(summary),
        }
        for sample in (check.samples if check else ())
        if check and sample.case_id in rows and (found := disturbance(sample))
    ]


def found_of(sample: NeighbourSample) -> Disturbance:
    """The slow-down of a sample that was measured on both sides."""
    found = disturbance(sample)
    if found is None:
        raise ValueError(f"{sample.case_id} was not measured on both sides")
    return found


def _ends(sample: NeighbourSample) -> str:
    return units.interval(found_of(sample).ci95, end=lambda end: f"{end:.3f}")
