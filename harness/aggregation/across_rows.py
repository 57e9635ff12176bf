"""Comparisons across rows (pure): a batch that does not fit its neighbours, the fastest setting, the speed-up over the
baseline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from harness.aggregation.causes import MACHINE
from harness.aggregation.flags import GroupKey, is_calibration, medians_by_round
from harness.aggregation.grades import Finding, finding
from harness.aggregation.roofline import JudgedRoofline, batch_series, rooflines
from harness.aggregation.row import Context, Draft, grade_of
from harness.core.schemas import Case, CpuRoof, ExportRecord, Grade, Roof, Row, Speedup
from harness.core.timestamps import seconds_between
from harness.core.units import duration
from harness.statistics.ratios import ratio_of

FIRST_ROUND = 1
"""The round in which every setting is tried. A median of some hundred inferences scatters by about 1% between
processes: settings that are closer than that are equally good, and the choice between them hardly matters."""


def slower_settings(
    cases: Sequence[Case], medians: Mapping[str, Mapping[int, float]], unsound: Collection[str] = ()
) -> frozenset[str]:
    """Ids of tried cases that were slower in round 1 than another setting of the same backend and shape.

    medians: case id → round → process median in ns. unsound: ids whose outputs or placement are wrong; they neither win
    nor lose. A group without round 1 has no losers yet.
    """
    groups: dict[GroupKey, dict[str, float]] = {}
    for case in cases:
        first = medians.get(case.case_id, {}).get(FIRST_ROUND)
        if case.tuned and first is not None and case.case_id not in unsound:
            groups.setdefault(GroupKey.of(case).without("setting"), {})[case.case_id] = first
    return frozenset(
        name for group in groups.values() for name in group if name != min(group, key=lambda case_id: group[case_id])
    )


def row_contexts(
    drafts: Sequence[Draft],
    cases: Sequence[Case],
    exports: Mapping[str, ExportRecord],
    roof: Roof | CpuRoof | None,
    baseline_backend: str,
) -> list[Context]:
    """A Context for each draft, in their order. drafts, cases: in the plan's order. exports: by model name."""
    judged = rooflines([draft.row for draft in drafts if draft.is_sound and not draft.calibration], exports, roof)
    sound = [draft for draft in drafts if draft.is_sound and not _is_above_roof(draft, judged)]
    beaten = slower_settings(cases, {draft.row.case_id: medians_by_round(draft.row) for draft in sound})
    slower = nonmonotone([draft.row for draft in sound if not draft.calibration])
    bases = baselines([draft.row for draft in sound if draft.row.case_id not in beaten], baseline_backend)
    divisors = {base.case_id for base in bases.values()}
    grades = {
        draft.row.case_id: grade_of(draft, _context(draft.row.case_id, judged, slower, beaten))
        for draft in sound
        if draft.row.case_id in divisors
    }
    ratios = {
        draft.row.case_id: speedup(draft.row, base, grades[base.case_id])
        for draft in sound
        if not draft.calibration and (base := bases.get(_peers(draft.row)))
    }
    apart = measured_apart(sound, bases)
    names = [draft.row.case_id for draft in drafts]
    return [_context(name, judged, slower, beaten, ratios.get(name), apart.get(name, ())) for name in names]


def _is_above_roof(draft: Draft, judged: Mapping[str, JudgedRoofline]) -> bool:
    return draft.row.case_id in judged and bool(judged[draft.row.case_id].findings)


def _context(
    case_id: str,
    judged: Mapping[str, JudgedRoofline],
    slower: Mapping[str, Finding],
    beaten: frozenset[str],
    ratio: Speedup | None = None,
    apart: tuple[Finding, ...] = (),
) -> Context:
    limits = judged.get(case_id, JudgedRoofline(None, (), {}))
    return Context(
        roofline=limits.roofline,
        findings=(*limits.findings, *apart),
        checks=limits.checks,
        slower=slower.get(case_id),
        tried=case_id in beaten,
        speedup=ratio,
    )


def baselines(rows: Iterable[Row], backend: str) -> dict[GroupKey, Row]:
    """The baseline of each model, shape, boundary, mode and device: the backend's first row in fp32.

    rows: sound rows that no other setting beat, in the plan's order. A backend's usual setting comes first there; the
    others are further ways to run the same baseline.
    """
    first_rows: dict[GroupKey, Row] = {}
    for row in rows:
        if row.backend == backend and row.precision == "fp32":
            first_rows.setdefault(_peers(row), row)
    return first_rows


def _peers(row: Row) -> GroupKey:
    return GroupKey.of(row).without("backend", "precision", "setting")


def speedup(row: Row, baseline: Row, grade: Grade | None) -> Speedup | None:
    """The ratio to the baseline. grade: the baseline's final grade: a ratio to a disturbed row is no better than it."""
    if baseline.latency_ns is None or row.latency_ns is None:
        return None
    over, under = baseline.latency_ns, row.latency_ns
    if min(*over.process_medians, *under.process_medians) <= 0:
        return None
    ratio = ratio_of(over.median, over.ci95, under.median, under.ci95)
    interval = None if row is baseline else ratio.ci95
    return Speedup(ratio=ratio.value, ci95=interval, baseline=baseline.case_id, baseline_grade=grade)


MEASURED_APART = "MEASURED_APART"
"""Name of the flag on rows that were not measured in turn with the row that they are compared with."""

TOGETHER_S = 3600.0
"""Rows of one run are measured in turn, and an adaptive one ends long before. Within an hour a machine is still in the
state of the run; after it, or after a restart, its load, clocks and heat are another matter."""


def measured_apart(drafts: Iterable[Draft], bases: Mapping[GroupKey, Row]) -> dict[str, tuple[Finding, ...]]:
    """Case id → MEASURED_APART, for rows whose processes all started more than an hour before or after those of the row
    that they are compared with: the baseline, else the peer that was measured last."""
    groups: dict[GroupKey, list[Draft]] = {}
    for draft in drafts:
        if draft.started and not draft.calibration:
            groups.setdefault(_peers(draft.row), []).append(draft)
    findings: dict[str, tuple[Finding, ...]] = {}
    for key, group in groups.items():
        base = bases.get(key)
        chosen = next((draft for draft in group if base is not None and draft.row.case_id == base.case_id), None)
        other = chosen or max(group, key=lambda draft: max(draft.started))
        for draft in group:
            if _gap_s(draft.started, other.started) > TOGETHER_S:
                findings[draft.row.case_id] = (_measured_apart_finding(draft, other),)
    return findings


def _gap_s(first: Sequence[str], second: Sequence[str]) -> float:
    """Seconds between two spans of time; negative where they overlap."""
    return max(seconds_between(max(second), min(first)), seconds_between(max(first), min(second)))


def _measured_apart_finding(draft: Draft, other: Draft) -> Finding:
    started, other_started = (min(entry.started)[:16].replace("T", " ") for entry in (draft, other))
    detail = f"measured from {started} UTC on, and {other.row.case_id} from {other_started} UTC on: not in turn"
    return finding("B", MEASURED_APART, detail, "Measure them in one run: `make run FORCE=1`.")


def nonmonotone(rows: Iterable[Row]) -> dict[str, Finding]:
    """Case id → NONMONOTONE, for rows that take longer than a larger batch of the same case, beyond both intervals.

    It caps at B and not below: a library may really choose a better kernel for the larger batch (PyTorch took 6.2 ms at
    batch 1 and 3.9 ms at batch 8 in a first look at an H100). So the number can be right, and deserves a second look.
    """
    timed = [row for row in rows if row.latency_ns is not None and not is_calibration(row)]
    pairs = [pair for series in batch_series(timed) for pair in pairwise(series)]
    return {small.case_id: _finding(small, large) for small, large in pairs if _is_above(small, large)}


def _is_above(small: Row, large: Row) -> bool:
    small_interval = small.latency_ns.ci95 if small.latency_ns else None
    large_interval = large.latency_ns.ci95 if large.latency_ns else None
    return small_interval is not None and large_interval is not None and small_interval.low > large_interval.high


def _finding(row: Row, larger: Row) -> Finding:
    assert row.latency_ns is not None and larger.latency_ns is not None  # noqa: PT018, S101 - nonmonotone chose them
    detail = (
        f"batch {row.batch_size} takes {duration(row.latency_ns.median)} and batch {larger.batch_size} only "
        f"{duration(larger.latency_ns.median)}"
    )
    remedy = f"Use batch {larger.batch_size} with padding if this lasts; `make run FORCE=1` shows whether it does."
    return finding("B", "NONMONOTONE", detail, remedy, MACHINE)
