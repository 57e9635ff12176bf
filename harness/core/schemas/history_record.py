"""Files of a store of runs: runs/<run_id>/run.json, decisions/<shift_id>.json, history.json (harness/history.py)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.schemas.vocabulary import FileName, Grade, Interval, Record, Verdict

ShiftState = Literal["candidate", "confirmed", "refuted"]
"""A candidate comes from the history alone; an interleaved A/B run of both commits confirms or refutes it."""


class HistoryPoint(Record):
    """A case in one run."""

    process_medians: Annotated[tuple[float, ...], Field(min_length=1)]
    """Nanoseconds per batch."""
    grade: Grade | None


class HistoryRun(Record):
    """One run in the store, with everything that its series need."""

    schema_version: Literal[1] = 1
    run_id: FileName
    """Its time, and a hash of plan, commit, environments, machine key and time."""
    plan_id: str
    settings_id: str
    config: str
    measured_from: str
    measured_to: str
    commit: str | None
    """State of the measured code; None where it is unknown."""
    machine_key: FileName
    """Hash of the facts of the machine that define a series: processor, CPUs, threads, type of GPU."""
    machine: str
    conditions: dict[str, str]
    """Every further fact of the environment whose change ends a stretch: driver, kernel, libraries, settings."""
    points: dict[str, HistoryPoint]
    """By case id."""


class Shift(Record):
    """A change of level in the series of one case on one machine."""

    shift_id: FileName
    case_id: str
    machine_key: FileName
    before_run: FileName
    """The last run before it."""
    after_run: FileName
    """The first run after it."""
    commits: tuple[str | None, str | None]
    """Of these two runs: it happened after the first commit, up to the second."""
    ratio: float
    """Level after / before: above 1 is slower."""
    ci95: Interval
    p: float
    """Of its stretch, by permutation."""
    trend: bool
    """True where a straight line fits better than one step: a drift."""
    state: ShiftState = "candidate"
    verdict: Verdict | None = None
    """Of the A/B run; None for a candidate."""
    verdict_ratio: float | None = None
    verdict_ci95: Interval | None = None


class Decision(Record):
    """The result of an A/B run about a shift, kept for all later analyses."""

    schema_version: Literal[1] = 1
    created_at: str
    shift: Shift
    against: str | None
    """Names of the two states of the A/B run."""
    here: str | None


class EnvironmentChange(Record):
    """A change of the environment between two runs of one machine."""

    machine_key: FileName
    after_run: FileName
    changes: tuple[str, ...]


class SeriesState(Record):
    """A case on one machine, as of its latest run."""

    case_id: str
    machine_key: FileName
    runs: int
    stretch: int
    """Runs since the latest boundary, change or decision."""
    level_ns: float
    """Median over the stretch."""
    smallest_visible: float | None
    """The smallest shift that would be found within five more runs, as a share; None where the stretch is too short."""
    correlation: float = 0.0
    """Of each run of this machine with the next, over all its series; 0 where it is not more than chance."""


class History(Record):
    """The analysis of a store."""

    schema_version: Literal[1] = 1
    created_at: str
    runs: int
    alpha: float
    """Accepted rate of nights with a false alarm."""
    series: tuple[SeriesState, ...]
    boundaries: tuple[EnvironmentChange, ...]
    shifts: tuple[Shift, ...]
