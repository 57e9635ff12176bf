"""comparison.json: a summary compared with another and with thresholds. ab/states.json: the two states of `ab`."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.load_record import Scenario
from harness.core.schemas.row_parts import Interval
from harness.core.schemas.vocabulary import Boundary, Mode, Precision, Quantity, Record, Verdict, Weights

Design = Literal["separate", "paired", "across"]
"""`separate`: two runs one after the other; `paired`: two states in one run, round by round; `across`: runs of two
machines or versions, for which only ratios over the baseline backend are judged."""


class Side(Record):
    """One of the two summaries."""

    path: str
    plan_id: str
    config: str | None = None
    rounds: int
    measured_from: str | None
    measured_to: str | None
    state: str | None = None
    """State of the code, where two states were measured in turn: a commit, a folder, an interpreter."""


class Difference(Record):
    """A fact that differs between the two sides."""

    name: str
    baseline: str
    current: str
    refuses: bool
    """True where it makes latencies incomparable: another machine, or more or fewer of its resources."""


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
    """Why it was not compared, or how to decide an ambiguous row."""
    baseline_ns: float | None
    current_ns: float | None
    """Headline latencies; None where the row has none or is void."""
    ratio: float | None
    """current_ns / baseline_ns; for design `paired` the median of the rounds' ratios; for `across` see `relative`."""
    ci95: Interval | None
    p_holm: float | None
    """p of the design's t test on logarithms, Holm-adjusted over the comparison."""
    p_rank_holm: float | None = None
    """p of the exact rank test, adjusted in the same way."""
    rounds: tuple[int, int] | None = None
    """Processes of the baseline and of the current run."""
    fails: bool
    """SLOWER by more than the allowed regression."""
    changed: tuple[str, ...]
    """What differs in the row's execution: artifacts, provider, settings."""
    relative: tuple[float, float] | None = None
    """Design `across`: latency over the latency of the report's baseline backend, in the baseline and in the current
    run; `ratio` is the second divided by the first. None otherwise."""


class ComparedLoad(Record):
    """A load case of either summary. Ratios are current / baseline load: above 1 is a higher load."""

    load_id: str
    model: str
    backend: str
    scenario: Scenario
    verdict: Verdict
    """SLOWER: a load that passed before, or a lower one, fails now; FASTER: the other way round."""
    reason: str | None
    baseline: tuple[float | None, float | None]
    """(highest PASS, lowest FAIL) in requests a second."""
    current: tuple[float | None, float | None]
    ratio: float | None
    """Of the predicted peaks; of other scenarios: of the samples a second."""
    ci95: Interval | None
    """Without the scatter between processes, of which each side has one."""
    fails: bool
    """SLOWER."""


class Judgement(Record):
    """One row compared with one threshold."""

    threshold: str
    case_id: str
    outcome: Literal["PASS", "FAIL", "UNKNOWN"]
    """UNKNOWN: the figure is withheld, void or was never measured; this fails too."""
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
    """Median ratio of the compared rows, which shows a change common to all. None with fewer than three rows."""
    differences: tuple[Difference, ...]
    rows: tuple[ComparedRow, ...]
    judgements: tuple[Judgement, ...]
    loads: tuple[ComparedLoad, ...] = ()

    @property
    def fails(self) -> bool:
        """Whether a row or a load regressed, or a threshold is missed."""
        regressed = any(row.fails for row in self.rows) or any(load.fails for load in self.loads)
        return regressed or any(judgement.outcome != "PASS" for judgement in self.judgements)


class State(Record):
    """One state of the code."""

    name: str
    """Name to show: `commit 0a1b2c3`, `working folder`, …"""
    stamp: str
    """Differs where any file of the state may have changed: then none of its measurements is used again."""


class States(Record):
    """The two states; their rounds are measured next to each other."""

    schema_version: Literal[1] = 1
    against: State
    here: State
