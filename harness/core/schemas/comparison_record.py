"""Results compared: comparison.json (a summary with another and with thresholds), ab/states.json (the two states of
`ab`), published results as data, and reproduction.json (a published result compared with measurements made here).

And over time, in a store of runs: runs/<run_id>/run.json, decisions/<shift_id>.json, history.json (harness/history.py).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from harness.core.schemas.load_record import Scenario
from harness.core.schemas.plan_record import Measurement, Tolerance
from harness.core.schemas.vocabulary import (
    Boundary,
    Device,
    FileName,
    Grade,
    Interval,
    ModeName,
    NotNegative,
    Precision,
    Quantity,
    Record,
    RelativePath,
    Verdict,
    Weights,
)

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
    mode: ModeName
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
    """Whether the verdict is SLOWER."""


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

    @property
    def is_empty(self) -> bool:
        """Whether no row or load was compared and no threshold judged."""
        ratios = [*(row.ratio for row in self.rows), *(load.ratio for load in self.loads)]
        return not self.judgements and all(ratio is None for ratio in ratios)


class StateId(Record):
    """One state of the code."""

    name: str
    """Name to show: `commit 0a1b2c3`, `working folder`, …"""
    stamp: str
    """Differs where any file of the state may have changed: then none of its measurements is used again."""


class States(Record):
    """The two states; their rounds are measured next to each other."""

    schema_version: Literal[1] = 1
    against: StateId
    here: StateId


Text = Annotated[str, Field(min_length=1, max_length=400)]
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class PublishedSource(Record):
    """The publication of a result."""

    title: Text
    url: Text | None = None
    date: Text | None = None
    """As exact as the source gives it."""


class Differing(Record):
    """A condition that differs between the publication and this machine."""

    name: Text
    published: Text
    here: Text
    refuses: bool = False
    """True where absolute values are not comparable because of it; ratios and orders are judged, and it is named."""


class ClaimedModel(Record):
    """A model by its name here, and by the source's name where that differs."""

    name: Text
    published: Text | None = None
    weights: Weights = "seeded"
    """Speed does not depend on them, and random weights need no network."""
    gates: dict[Precision, Tolerance] = {}


class PublishedCase(Record):
    """The case that the source measured, in this project's words."""

    model: Text
    backend: Text
    precision: Precision
    batch_size: Count
    sequence_length: Count | None = None
    boundary: Boundary = "compute"
    mode: ModeName = "sync"
    setting: Text | None = None
    """A named setting of the backend; None: its usual setting."""


class ClaimedValue(PublishedCase):
    """One published figure: the latency of a batch, or samples per second."""

    name: Text
    latency_ms: Positive | None = None
    items_per_s: Positive | None = None
    ci95_ms: Interval | None = None
    """Of latency_ms, where the source gives an interval."""
    tolerance: Share | None = None
    """Relative, where the source gives a tolerance."""

    @model_validator(mode="after")
    def _has_one_figure(self) -> ClaimedValue:
        if (self.latency_ms is None) == (self.items_per_s is None):
            raise ValueError("give either latency_ms or items_per_s")
        if self.ci95_ms is not None and not self.ci95_ms.low <= self.batch_ms <= self.ci95_ms.high:
            raise ValueError("ci95_ms does not contain the latency")
        return self

    @property
    def batch_ms(self) -> float:
        """Time of one batch, from either figure."""
        return self.latency_ms or self.batch_size / (self.items_per_s or 1) * 1e3

    @property
    def sample_ms(self) -> float:
        """Time per sample, which is comparable where the two sides of a ratio have different batch sizes."""
        return self.batch_ms / self.batch_size


class ClaimedRatio(Record):
    """How many times faster, per sample, one value is than another; the two values give the figure."""

    faster: Text
    than: Text
    tolerance: Share | None = None


class Substitute(Record):
    """Replaces parts of the published case on a device that cannot run it; named beside the verdict."""

    precision: Precision | None = None
    batch_size: Count | None = None
    sequence_length: Count | None = None


class Claim(Record):
    """A published result, with the cases that measure it here."""

    title: Text
    source: PublishedSource
    cards: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Driver's names of the GPU that it was measured on, or the name of the processor."""
    device: Device | None = None
    """The only device on which it is measured; None: any."""
    conditions: dict[str, Text] = {}
    """Further facts of the source about the measurement; shown, never compared."""
    versions: dict[str, Text] = {}
    """Libraries, by the name of their distribution."""
    differs: tuple[Differing, ...] = ()
    """Known differences that apply here on any machine."""
    context: Text | None = None
    """Why it is never compared; None: it is compared."""
    models: tuple[ClaimedModel, ...] = ()
    values: tuple[ClaimedValue, ...] = ()
    ratios: tuple[ClaimedRatio, ...] = ()
    orders: tuple[Annotated[tuple[Text, ...], Field(min_length=2)], ...] = ()
    """Names of values, fastest first."""
    substitutes: dict[Device, Substitute] = {}
    measurement: Measurement = Measurement(rounds=5)
    results: RelativePath | None = None
    """A published results folder of this project, in place of `models`, `values` and `measurement`."""

    @model_validator(mode="after")
    def _is_whole(self) -> Claim:
        if (self.results is None) == (not self.values):
            raise ValueError("give either values or results")
        names = [value.name for value in self.values]
        if len(set(names)) < len(names):
            raise ValueError("two values have the same name")
        compared = [*self.orders, *((ratio.faster, ratio.than) for ratio in self.ratios)]
        if any(len(set(group)) < len(group) for group in compared):
            raise ValueError("a value is compared with itself")
        if unknown := sorted({name for group in compared for name in group} - set(names)):
            raise ValueError(f"no value is named {unknown[0]}")
        if unlisted := sorted({value.model for value in self.values} - {model.name for model in self.models}):
            raise ValueError(f"{unlisted[0]} is not in models")
        return self


Reproduced = Literal["REPRODUCED", "NOT REPRODUCED", "NOT COMPARABLE"]


class ReproducedRow(Record):
    """One published value, ratio or order, and its verdict here."""

    kind: Literal["value", "ratio", "order"]
    name: str
    unit: Literal["ms", "items/s", "x", "order"]
    published: float | None
    """None for an order, which `name` describes."""
    published_ci95: Interval | None
    """As the source gives it."""
    measured: float | None
    ci95: Interval | None
    verdict: Reproduced
    reason: str | None
    differences: tuple[Differing, ...]
    """Every condition that differs; listed beside a verdict too, because a ratio is judged despite differences."""
    case_ids: tuple[str, ...]


class Reproduction(Record):
    """A claim compared with one summary."""

    schema_version: Literal[1] = 1
    created_at: str
    claim: str
    title: str
    source: PublishedSource
    card: str
    """The GPU or processor of the published result."""
    conditions: dict[str, str]
    here: str | None
    """The machine and method of the measurement here; None where nothing was measured."""
    plan_id: str | None
    rows: tuple[ReproducedRow, ...]


ShiftState = Literal["candidate", "confirmed", "refuted"]
"""A candidate comes from the history alone; an interleaved A/B run of both commits confirms or refutes it."""


class HistoryPoint(Record):
    """A case in one run."""

    process_medians: Annotated[tuple[NotNegative, ...], Field(min_length=1)]
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
