"""Shifts of a history, and what its series could show, as tables (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from harness.core import units
from harness.core.schemas import EnvironmentChange, History, HistoryRun, Shift
from harness.core.units import ABSENT
from harness.reporting.table import Column, Table, word_column
from harness.reporting.writers.markdown import table_text

SHORT = 10
"""Digits of a commit."""
MAX_NAMED = 20
"""Shifts in the terminal; the page has all."""


def shifts_table(history: History, runs: Sequence[HistoryRun]) -> Table[Shift] | None:
    """A row for each shift: confirmed first, then candidates, then refuted; None without any."""
    if not history.shifts:
        return None
    order = ("confirmed", "candidate", "refuted")
    by_id = {run.run_id: run for run in runs}
    rows = sorted(history.shifts, key=lambda shift: (order.index(shift.state), -abs(shift.ratio - 1)))
    columns = [
        word_column("shift", lambda shift: shift.shift_id),
        word_column("state", state_in_words),
        word_column("case", lambda shift: shift.case_id),
        Column("change", lambda shift: f"{shift.ratio - 1:+.1%}"),
        Column("95% CI", lambda shift: f"[{shift.ci95.low - 1:+.1%}, {shift.ci95.high - 1:+.1%}]"),
        word_column("after commit", lambda shift: short_commit(shift.commits[0])),
        word_column("up to commit", lambda shift: short_commit(shift.commits[1])),
        word_column("first run after it", lambda shift: _date(by_id.get(shift.after_run))),
        word_column("A/B run", _evidence),
    ]
    return Table(columns, rows)


def state_in_words(shift: Shift) -> str:
    """The state; with `drift` where a line fits better than a step."""
    return f"{shift.state}, drift" if shift.trend and shift.state == "candidate" else shift.state


def changes_table(history: History, runs: Sequence[HistoryRun]) -> Table[EnvironmentChange] | None:
    """A row for each change of environment; None without any."""
    if not history.boundaries:
        return None
    by_id = {run.run_id: run for run in runs}
    columns: list[Column[EnvironmentChange]] = [
        word_column("first run after it", lambda change: _date(by_id.get(change.after_run))),
        word_column("machine", lambda change: by_id[change.after_run].machine if change.after_run in by_id else ABSENT),
        word_column("changes", lambda change: "; ".join(change.changes)),
    ]
    return Table(columns, history.boundaries)


def visible_in_words(history: History) -> str:
    """The smallest shifts that the series could show."""
    known = [series.smallest_visible for series in history.series if series.smallest_visible is not None]
    unknown = len(history.series) - len(known)
    parts = []
    if known:
        parts.append(
            f"Smallest visible shift, found within five more runs in 90% of cases: {min(known):.1%} to "
            f"{max(known):.1%}, middle {median(known):.1%}."
        )
    if unknown:
        few = units.count(unknown, "series has", "series have")
        parts.append(f"{few} too few runs since the latest change to show a shift within five more.")
    return " ".join(parts)


def terminal_history(history: History, runs: Sequence[HistoryRun]) -> str:
    """The state of the store in a few lines."""
    counts: Mapping[str, int] = {
        state: sum(shift.state == state for shift in history.shifts) for state in ("confirmed", "candidate", "refuted")
    }
    states = ", ".join(f"{number} {state}" for state, number in counts.items() if number) or "none"
    lines = [
        f"{units.count(history.runs, 'run')}, {units.count(len(history.series), 'series', 'series')}, "
        f"{units.count(len(history.boundaries), 'change')} of environment. Shifts: {states}.",
        visible_in_words(history),
    ]
    table = shifts_table(history, runs)
    if table is not None:
        lines += ["", table_text(Table(table.columns, table.rows[:MAX_NAMED]))]
        lines += [
            f"Decide {shift.shift_id}: {how_to_decide(shift)}"
            for shift in table.rows[:MAX_NAMED]
            if shift.state == "candidate" and None not in shift.commits and shift.commits[0] != shift.commits[1]
        ]
        if any(shift.state == "candidate" and shift.commits[0] == shift.commits[1] for shift in history.shifts):
            lines.append("A candidate between runs of one commit is a change of the machine, not of the code.")
    return "\n".join(line for line in lines if line)


def how_to_decide(shift: Shift) -> str:
    """The commands of the A/B run that confirms or refutes a candidate."""
    before, after = shift.commits
    return f"git checkout {after}; make ab AGAINST={before}; make history STORE=… CONFIRM={shift.shift_id}"


def short_commit(commit: str | None) -> str:
    """The first digits of a commit; absent where it is unknown."""
    return commit[:SHORT] if commit else ABSENT


def _date(run: HistoryRun | None) -> str:
    return run.measured_from[:16].replace("T", " ") if run else ABSENT


def _evidence(shift: Shift) -> str:
    if shift.verdict is None or shift.verdict_ratio is None:
        return ABSENT
    ends = shift.verdict_ci95
    interval = f" [{ends.low - 1:+.1%}, {ends.high - 1:+.1%}]" if ends else ""
    return f"{shift.verdict} {shift.verdict_ratio - 1:+.1%}{interval}"
