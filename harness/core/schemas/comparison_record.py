"""comparison.json: a summary compared with another and with limits. ab/states.json: the two states of `ab`."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.summary_record import Interval
from harness.core.schemas.vocabulary import Boundary, Mode, Precision, Quantity, Record, Verdict, Weights

Design = Literal["separate", "paired", "across"]
"""Two runs one after the other; two states in one run, round by round; runs of two machines or versions, of which only
ratios over the baseline backend are judged."""


class Side(Record):
    """One of the two summaries."""

    path: str
    plan_id: str
    config: str | None = None
    rounds: int
    measured_from: str | None
    measured_to: str | None
    state: str | None = None
    """Of the code, where two states were measured in turn: a commit, a folder, an interpreter."""


class Difference(Record):
    """A fact that is not the same on both sides."""

    name: str
    baseline: str
    current: str
    refuses: bool
    """True where it makes latencies incomparable: another machine, or more or less of it to use."""


class ComparedRow(Record):
    """A row of either summary. Ratios are current / baseline latency: above 1 is slower."""

    case_id: str
    model: str
    backend: str
    precision: Precision
    batch_size: int
    sequence_length: int | None
    boundary: Boundary
    mode: Mode
    weights: Weights
    verdict: Verdict
    reason: str | None
    """Why it was not compared, or what would decide an ambiguous row."""
    baseline_ns: float | None
    current_ns: float | None
    """Headline latencies; None where there is none or the row is void."""
    ratio: float | None
    """current_ns / baseline_ns; of pairs the median of the rounds' ratios; across machines see `relative`."""
    ci95: Interval | None
    p_holm: float | None
    """Of the t test on logarithms that the comparison's design has, Holm-adjusted over the comparison."""
    p_rank_holm: float | None = None
    """The exact rank test's p, adjusted alike."""
    rounds: tuple[int, int] | None = None
    """Processes of the baseline and of the current run."""
    fails: bool
    """SLOWER by more than was allowed."""
    changed: tuple[str, ...]
    """What the row ran on that is not the same: artifacts, provider, settings."""
    relative: tuple[float, float] | None = None
    """Across machines: latency over that of the report's baseline backend, of the baseline and of the current run; the
    ratio is the second by the first. None otherwise."""


class Judgement(Record):
    """One row held against one threshold."""

    threshold: str
    case_id: str
    outcome: Literal["PASS", "FAIL", "UNKNOWN"]
    """UNKNOWN: the figure is withheld, void or was never measured; it fails too."""
    quantity: Quantity
    value: float | None
    limit: float
    ci95: Interval | None
    clear: bool | None
    """True where the whole interval lies on the value's side of the limit; None without an interval."""
    reason: str | None


class Comparison(Record):
    """A summary against an earlier one, against thresholds, or both."""

    schema_version: Literal[1] = 1
    design: Design = "separate"
    created_at: str
    baseline: Side | None
    """None where only thresholds were asked for."""
    current: Side
    equivalence: float
    max_regression: float
    common_ratio: float | None
    """Middle ratio of the compared rows: what they all share moved by this much. None with fewer than three."""
    differences: tuple[Difference, ...]
    rows: tuple[ComparedRow, ...]
    judgements: tuple[Judgement, ...]


class State(Record):
    """One state of the code."""

    name: str
    """For a reader: `commit 0a1b2c3`, `working folder`, …"""
    stamp: str
    """Other digits where any of its files may have changed: then nothing that was measured of it is used again."""


class States(Record):
    """Which two; the rounds of both are measured next to each other."""

    schema_version: Literal[1] = 1
    against: State
    here: State
