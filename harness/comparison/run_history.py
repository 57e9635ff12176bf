"""Runs of a store → series by case and machine, known boundaries, and shifts with their states (pure)."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.aggregation import admission
from harness.core.schemas import (
    Comparison,
    Decision,
    Environment,
    EnvironmentChange,
    History,
    HistoryPoint,
    HistoryRun,
    Interval,
    Row,
    SeriesState,
    Shift,
    ShiftState,
    Summary,
)
from harness.statistics.change_points import (
    ALPHA,
    ChangePoint,
    RunSeries,
    changes_of_a_night,
    noises_of,
    segments,
    smallest_visible_shift,
)
from harness.statistics.estimators import median

KEY_FACTS = (
    *("machine.cpu", "machine.architecture", "machine.logical_cpus", "limits.threads", "limits.cpu_quota"),
    *("gpu.name", "gpu.memory_bytes"),
)
"""Facts of the machine that define a series: runs that differ in one have nothing to do with each other."""

PASSING = ("machine.memory_bytes", "machine.max_frequency_mhz", "limits.image", "limits.image_digest")
"""Facts that differ between starts of one machine, or name a file whose content the libraries show."""

MEDIAN_EFFICIENCY = math.pi / 2
"""Variance of a median of normal values, relative to that of their mean, for large numbers."""


Points = dict[str, HistoryPoint]


def points_of(rows: Iterable[Row]) -> Points:
    """The points that a history keeps of the rows with figures."""
    return {
        row.case_id: HistoryPoint(process_medians=row.latency_ns.process_medians, grade=row.grade)
        for row in rows
        if row.latency_ns is not None
    }


def run_of(summary: Summary, commit: str | None, points: Points | None = None) -> HistoryRun | None:
    """The record of a run; None where nothing was measured. commit: of the measured code, if not Inferometer's own.
    points: of a summary whose rows are in a file of their own."""
    points = points_of(summary.rows) if points is None else points
    if not points or summary.measured_from is None or summary.measured_to is None:
        return None
    environments = list(summary.environments.values())
    facts = _joined_facts(admission.all_facts(environment) for environment in environments)
    key = {name: facts.pop(name) for name in KEY_FACTS if name in facts}
    machine_key = _hash(*map(repr, sorted(key.items())))
    commit = commit or _commit(environments)
    parts = (summary.plan_id, commit or "", *sorted(summary.environments), machine_key, summary.measured_from)
    time = "".join(letter for letter in summary.measured_from[:19] if letter.isalnum())
    conditions = {name: text for name, text in facts.items() if name not in PASSING}
    return HistoryRun(
        run_id=f"{time}-{_hash(*parts)}",
        plan_id=summary.plan_id,
        settings_id=summary.settings_id,
        config=summary.config,
        measured_from=summary.measured_from,
        measured_to=summary.measured_to,
        commit=commit,
        machine_key=machine_key,
        machine=key.get("gpu.name") or key["machine.cpu"],
        conditions={**conditions, "settings of the measurement": summary.settings_id},
        points=points,
    )


def _commit(environments: Sequence[Environment]) -> str | None:
    commits = {environment.software.git_commit for environment in environments if not environment.software.git_dirty}
    return commits.pop() if len(commits) == 1 else None


def _joined_facts(facts: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Facts of all environments of a run: a backend may have an interpreter, and so libraries, of its own."""
    texts: dict[str, dict[str, None]] = {}
    for mapping in facts:
        for name, value in mapping.items():
            texts.setdefault(name, {})[str(value)] = None
    return {name: " and ".join(sorted(values)) for name, values in sorted(texts.items())}


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class CaseSeries:
    """The runs of one case on one machine, in order of time.

    boundaries: index of the first run after each known boundary.
    """

    case_id: str
    machine_key: str
    runs: tuple[HistoryRun, ...]
    boundaries: tuple[int, ...]

    @property
    def levels_ns(self) -> list[float]:
        """One latency per run: the median of its process medians."""
        return [median(run.points[self.case_id].process_medians) for run in self.runs]

    @property
    def measured(self) -> RunSeries:
        """The series as the statistics take it."""
        runs = [run.run_id for run in self.runs]
        return RunSeries(self.levels_ns, self.within, self.boundaries, self.machine_key, runs)

    @property
    def within(self) -> list[float]:
        """Variance of the logarithm of each level, from the processes of its run; 0 where a run has only one."""
        return [_variance(run.points[self.case_id].process_medians) for run in self.runs]


def _variance(medians: Sequence[float]) -> float:
    if len(medians) < 2 or min(medians) <= 0:
        return 0.0
    logs = [math.log(value) for value in medians]
    mean = math.fsum(logs) / len(logs)
    return MEDIAN_EFFICIENCY * math.fsum((log - mean) ** 2 for log in logs) / (len(logs) - 1) / len(logs)


def boundaries_of(runs: Sequence[HistoryRun]) -> list[EnvironmentChange]:
    """The changes of environment between consecutive runs of each machine."""
    boundaries: list[EnvironmentChange] = []
    latest: dict[str, HistoryRun] = {}
    for run in _ordered_runs(runs):
        before = latest.get(run.machine_key)
        if before is not None and before.conditions != run.conditions:
            names = sorted({*before.conditions, *run.conditions})
            changes = tuple(
                f"{name}: {before.conditions.get(name, 'absent')} → {run.conditions.get(name, 'absent')}"
                for name in names
                if before.conditions.get(name) != run.conditions.get(name)
            )
            boundaries.append(EnvironmentChange(machine_key=run.machine_key, after_run=run.run_id, changes=changes))
        latest[run.machine_key] = run
    return boundaries


def series_of(
    runs: Sequence[HistoryRun], boundaries: Sequence[EnvironmentChange], decisions: Sequence[Decision]
) -> list[CaseSeries]:
    """Every series, in the order of its first run. A decided shift is a known boundary of its series."""
    by_series: dict[tuple[str, str], list[HistoryRun]] = {}
    for run in _ordered_runs(runs):
        for case_id, point in run.points.items():
            if min(point.process_medians) > 0:
                by_series.setdefault((case_id, run.machine_key), []).append(run)
    time = {run.run_id: run.measured_from for run in runs}
    series = []
    for (case_id, key), own in by_series.items():
        starts = [boundary.after_run for boundary in boundaries if boundary.machine_key == key]
        decided = [decision.shift for decision in decisions]
        starts += [shift.after_run for shift in decided if (shift.case_id, shift.machine_key) == (case_id, key)]
        # A boundary may be at a run without this case: its stretch begins with the next run that has it.
        places = {
            sum((run.measured_from, run.run_id) < (time[start], start) for run in own)
            for start in starts
            if start in time
        }
        series.append(CaseSeries(case_id, key, tuple(own), tuple(sorted(places - {0, len(own)}))))
    return series


def _ordered_runs(runs: Iterable[HistoryRun]) -> list[HistoryRun]:
    return sorted(runs, key=lambda run: (run.measured_from, run.run_id))


def analyse(runs: Sequence[HistoryRun], decisions: Sequence[Decision], created_at: str) -> History:
    """The whole analysis: candidates, decided shifts, boundaries, and what each series could show."""
    boundaries = boundaries_of(runs)
    series = series_of(runs, boundaries, decisions)
    measured = [case.measured for case in series]
    changes, noises = changes_of_a_night(measured), noises_of(measured)
    shifts = [_shift(case, split) for case, splits in zip(series, changes, strict=True) for split in splits]
    return History(
        created_at=created_at,
        runs=len(runs),
        alpha=ALPHA,
        series=tuple(
            _state(case, splits, len(series), noises[case.machine_key].correlation)
            for case, splits in zip(series, changes, strict=True)
        ),
        boundaries=tuple(boundaries),
        shifts=(*(decision.shift for decision in decisions), *shifts),
    )


def _shift(series: CaseSeries, split: ChangePoint) -> Shift:
    before, after = series.runs[split.at - 1], series.runs[split.at]
    return Shift(
        shift_id=_hash(series.case_id, series.machine_key, after.run_id)[:8],
        case_id=series.case_id,
        machine_key=series.machine_key,
        before_run=before.run_id,
        after_run=after.run_id,
        commits=(before.commit, after.commit),
        ratio=split.shift,
        ci95=Interval(low=split.low, high=split.high),
        p=split.p,
        trend=split.trend,
    )


def _state(series: CaseSeries, splits: Sequence[ChangePoint], number: int, correlation: float) -> SeriesState:
    ends = sorted({*series.boundaries, *(split.at for split in splits)})
    low, high = segments(len(series.runs), ends)[-1]
    latest = series.levels_ns[low:high]
    return SeriesState(
        case_id=series.case_id,
        machine_key=series.machine_key,
        runs=len(series.runs),
        stretch=high - low,
        level_ns=median(latest),
        smallest_visible=smallest_visible_shift(latest, number, correlation),
        correlation=correlation,
    )


_NAMED = re.compile(r"^(?:commit|working folder at) ([0-9a-f]{7,40})(?!.*, changed)")
"""A commit in the name of a state of an A/B run (harness/processes/code_states.py)."""


def with_decision(shift: Shift, comparison: Comparison) -> Shift | str:
    """The shift with the state that an A/B run of its two commits gives it, or why it gives none."""
    if comparison.design != "paired" or comparison.baseline is None:
        return "the comparison is no A/B run"
    for commit, side in zip(shift.commits, (comparison.baseline, comparison.current), strict=True):
        named = _NAMED.search(side.state or "")
        if commit is None:
            return "the history does not know the commits of its runs"
        if named is None or not commit.startswith(named[1]):
            return f"it measured {side.state}, and the shift is between {' and '.join(map(str, shift.commits))}"
    row = next((row for row in comparison.rows if row.case_id == shift.case_id), None)
    if row is None or row.ratio is None:
        return f"it has no result for {shift.case_id}"
    states: Mapping[str, ShiftState] = {
        "SLOWER": "confirmed" if shift.ratio > 1 else "refuted",
        "FASTER": "confirmed" if shift.ratio < 1 else "refuted",
        "SAME": "refuted",
    }
    if row.verdict not in states:
        return f"its verdict on {shift.case_id} is {row.verdict}: {row.reason or 'more rounds would decide'}"
    update = {"state": states[row.verdict], "verdict": row.verdict, "verdict_ratio": row.ratio}
    return shift.model_copy(update={**update, "verdict_ci95": row.ci95})
