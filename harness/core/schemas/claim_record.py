"""A published result as data, and reproduction.json: that result beside what was measured here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from harness.core.safe_paths import RelativePath
from harness.core.schemas.plan_record import Gate, Measurement
from harness.core.schemas.summary_record import Interval
from harness.core.schemas.vocabulary import Boundary, Device, Mode, Precision, Record, Weights

Text = Annotated[str, Field(min_length=1, max_length=400)]
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class PublishedSource(Record):
    """Where it was published."""

    title: Text
    url: Text | None = None
    date: Text | None = None
    """As far as the source tells."""


class Differing(Record):
    """A condition that is not the same there and here."""

    name: Text
    published: Text
    here: Text
    refuses: bool = False
    """True where absolute values are not comparable across it; ratios and orders are judged with it named."""


class ClaimedModel(Record):
    """A model by our name, and by the source's where that is another."""

    name: Text
    published: Text | None = None
    weights: Weights = "seeded"
    """Speed does not depend on them, and seeded ones need no network."""
    gates: dict[Precision, Gate] = {}


class Cell(Record):
    """What was measured, in this project's words."""

    model: Text
    backend: Text
    precision: Precision
    batch_size: Count
    sequence_length: Count | None = None
    boundary: Boundary = "compute"
    mode: Mode = "sync"
    setting: Text | None = None
    """A named setting of the backend; None: its usual one."""


class ClaimedValue(Cell):
    """One published figure: the latency of a batch, or items per second."""

    name: Text
    latency_ms: Positive | None = None
    items_per_s: Positive | None = None
    ci95_ms: Interval | None = None
    """Of latency_ms, where the source gives one."""
    tolerance: Share | None = None
    """Relative, where the source gives one."""

    @model_validator(mode="after")
    def _has_one_figure(self) -> ClaimedValue:
        if (self.latency_ms is None) == (self.items_per_s is None):
            raise ValueError("give either latency_ms or items_per_s")
        return self

    @property
    def batch_ms(self) -> float:
        """Time of one batch, whatever the figure is."""
        return self.latency_ms or self.batch_size / (self.items_per_s or 1) * 1e3

    @property
    def item_ms(self) -> float:
        """Time of one item: what the two sides of a ratio share where their batches differ."""
        return self.batch_ms / self.batch_size


class ClaimedRatio(Record):
    """How many times faster, per item, one value is than another; the figure follows from the two."""

    faster: Text
    than: Text
    tolerance: Share | None = None


class Substitute(Record):
    """What is measured in place of the published cell on a device that cannot do it; named beside the verdict."""

    precision: Precision | None = None
    batch_size: Count | None = None
    sequence_length: Count | None = None


class Claim(Record):
    """A published result."""

    title: Text
    source: PublishedSource
    cards: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Names by which its driver knows the card that it was measured on, or the name of the processor."""
    device: Device | None = None
    """Where alone it is measured; None: anywhere."""
    conditions: dict[str, Text] = {}
    """Whatever else the source says about how it was measured; shown, never compared."""
    versions: dict[str, Text] = {}
    """Libraries, by the name of their distribution."""
    differs: tuple[Differing, ...] = ()
    """What is known beforehand to be different here, whatever machine this is."""
    context: Text | None = None
    """Why it is never compared; None: it is."""
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
        named = {name for order in self.orders for name in order}
        named |= {name for ratio in self.ratios for name in (ratio.faster, ratio.than)}
        if unknown := sorted(named - set(names)):
            raise ValueError(f"no value is named {unknown[0]}")
        if unlisted := sorted({value.model for value in self.values} - {model.name for model in self.models}):
            raise ValueError(f"{unlisted[0]} is not in models")
        return self


Reproduced = Literal["REPRODUCED", "NOT REPRODUCED", "NOT COMPARABLE"]


class ReproducedRow(Record):
    """One published value, ratio or order, and what became of it."""

    kind: Literal["value", "ratio", "order"]
    name: str
    unit: Literal["ms", "items/s", "x", "order"]
    published: float | None
    """None for an order, whose words stand in `name`."""
    published_ci95: Interval | None
    """As the source gives it."""
    measured: float | None
    ci95: Interval | None
    verdict: Reproduced
    reason: str | None
    differences: tuple[Differing, ...]
    """Every condition that is not the same: beside a verdict too, because a ratio is judged across them."""
    case_ids: tuple[str, ...]


class Reproduction(Record):
    """A claim held against one summary."""

    schema_version: Literal[1] = 1
    created_at: str
    claim: str
    title: str
    source: PublishedSource
    card: str
    """That it was published for."""
    conditions: dict[str, str]
    here: str | None
    """What it was measured on here and how; None where nothing was measured."""
    plan_id: str | None
    rows: tuple[ReproducedRow, ...]
