"""A claim and a summary → a verdict for each of its values, ratios and orders (pure).

Absolute values are judged only on the GPU or CPU that they were published for, and under the published conditions.
Ratios and orders are judged on any machine; every condition that differs is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.aggregation import flags, grades
from harness.aggregation.flags import medians_per_sample
from harness.comparison import compatibility
from harness.core.schemas import (
    Claim,
    ClaimedRatio,
    ClaimedValue,
    Device,
    Differing,
    Environment,
    Interval,
    PublishedCase,
    Reproduced,
    ReproducedRow,
    Row,
    Summary,
)
from harness.statistics.ratios import ratio_of_medians

VALUE_TOLERANCE = 0.05
"""Relative tolerance of a published value that has no interval of its own."""

RATIO_TOLERANCE = 0.10
"""Relative tolerance of a ratio of two published values. Each may be off by VALUE_TOLERANCE: 1.05 / 0.95 is 1.105."""


@dataclass(frozen=True)
class JudgedValue:
    """A verdict. reason: why, where the two numbers do not show it."""

    verdict: Reproduced
    reason: str | None = None


def band(published: float, tolerance: float) -> Interval:
    """The published figure with its relative tolerance on both sides."""
    return Interval(low=published * (1 - tolerance), high=published * (1 + tolerance))


def judge(measured: Interval | None, published: Interval, also_narrow: Interval | None = None) -> JudgedValue:
    """Compare a measured 95% interval with a published band. Both include their ends.

    also_narrow: a second interval. A measured interval that is no wider than it is narrow enough to decide.
    """
    if measured is None:
        return JudgedValue("NOT COMPARABLE", "one round has no interval: measure at least 2, ROUNDS=5")
    if measured.high < published.low or published.high < measured.low:
        return JudgedValue("NOT REPRODUCED")
    limits = [interval for interval in (published, also_narrow) if interval is not None]
    if all(_is_wider(measured, limit) for limit in limits):
        return JudgedValue("NOT COMPARABLE", "the interval is wider than the published band: more rounds, ROUNDS=10")
    return JudgedValue("REPRODUCED")


def judge_measured(measured: Interval | None, published: float, interval: Interval) -> JudgedValue:
    """Compare a measured interval with a published interval that was also measured.

    Two runs with the same scatter have intervals of about the same width, and chance decides which is narrower. So a
    measured interval is also narrow enough where it is no wider than the band without a published interval:
    ± VALUE_TOLERANCE.
    """
    return judge(measured, interval, band(published, VALUE_TOLERANCE))


def judge_order(steps: Sequence[tuple[str, Interval | None]]) -> JudgedValue:
    """Judge an order by its steps: (names of the two, 95% interval of the speed-up of the first over the second)."""
    if any(ratio is None for _, ratio in steps):
        return JudgedValue("NOT COMPARABLE", "one round has no interval: measure at least 2, ROUNDS=5")
    known = [(name, ratio) for name, ratio in steps if ratio is not None]
    if reversed_ := [name for name, ratio in known if ratio.high < 1]:
        return JudgedValue("NOT REPRODUCED", f"the other way round: {'; '.join(reversed_)}")
    open_ = [(name, ratio) for name, ratio in known if ratio.low <= 1]
    if not open_:
        return JudgedValue("REPRODUCED")
    names = "; ".join(name for name, _ in open_)
    if any(_is_wider(ratio, band(1, RATIO_TOLERANCE)) for _, ratio in open_):
        return JudgedValue("NOT COMPARABLE", f"too uncertain to compare: {names}; more rounds, ROUNDS=10")
    return JudgedValue("NOT REPRODUCED", f"not significantly different: {names}")


def _is_wider(interval: Interval, other: Interval) -> bool:
    """Compares high / low, because latencies and ratios are multiplicative."""
    return interval.high * other.low > other.high * interval.low


_SHAPE = ("backend", "precision", "batch_size", "sequence_length", "boundary", "mode")


@dataclass(frozen=True)
class MeasuredValue:
    """The row of a summary for a value, or the reason why it has no sound row."""

    value: ClaimedValue
    row: Row | None
    reason: str | None
    differences: tuple[Differing, ...]


def case_on_device(value: ClaimedValue, claim: Claim, device: Device) -> PublishedCase:
    """The case to measure for a value on a device: the published case, or the claim's substitute for that device."""
    case = PublishedCase.model_validate(value.model_dump(include=set(PublishedCase.model_fields)))
    substitute = claim.substitutes.get(device)
    if substitute is None:
        return case
    other = substitute.model_dump(exclude_none=True)
    if value.sequence_length is None:
        other.pop("sequence_length", None)
    return case.model_copy(update=other)


def measured_value(
    claim: Claim, value: ClaimedValue, summary: Summary | None, left_out: Mapping[str, str]
) -> MeasuredValue:
    """The row for a value. left_out: why values cannot be measured here, by name."""
    rows = [row for row in summary.rows if not row.tried] if summary else []
    here = [row for row in rows if _is_for(row, case_on_device(value, claim, row.device))]
    environments = list(summary.environments.values()) if summary else []
    around = (*_device(claim, environments), *_versions(claim, environments), *claim.differs)
    if not here:
        return MeasuredValue(value, None, left_out.get(value.name, "not among the measured cases"), around)
    # Where this device lacks the setting, the backend's usual setting counts, which comes first.
    row = next((row for row in here if row.setting == value.setting), here[0])
    differences = (*_conditions(claim, value, row), *around)
    flaw = _flaw(row)
    return MeasuredValue(value, None if flaw else row, flaw, differences)


def differences_between(published: Summary, current: Summary) -> tuple[Differing, ...]:
    """The differences between two runs of this project.

    On a GPU only another GPU forbids a comparison; other differences of the machine are listed. On a CPU every
    difference of the machine that compatibility.differences refuses forbids it.
    """
    on_gpu = any(environment.gpu for environment in published.environments.values())
    return tuple(
        Differing(
            name=difference.name,
            published=difference.baseline,
            here=difference.current,
            refuses=difference.refuses and (not on_gpu or difference.name == "gpu.name"),
        )
        for difference in compatibility.differences(published, current)
    )


def _is_for(row: Row, cell: PublishedCase) -> bool:
    return all(getattr(row, name) == getattr(cell, name) for name in ("model", *_SHAPE))


def _flaw(row: Row) -> str | None:
    """Why a row has no figure to compare; None where it has one."""
    if row.status != "measured":
        return flags.status_text(row)
    if flags.is_too_short(row):
        return "too short for the clock"
    if row.grade not in grades.RANKED:
        return flags.grade_text(row)
    return None


def _conditions(claim: Claim, value: ClaimedValue, row: Row) -> Iterator[Differing]:
    model = next(model for model in claim.models if model.name == value.model)
    if model.published not in (None, model.name):
        yield Differing(name="model", published=str(model.published), here=model.name)
    for name in (*_SHAPE, *(["setting"] if value.setting else [])):
        asked, ran = getattr(value, name), getattr(row, name)
        if asked != ran:
            yield Differing(name=name.replace("_", " "), published=str(asked), here=str(ran), refuses=True)


def _device(claim: Claim, environments: Iterable[Environment]) -> Iterator[Differing]:
    here = {environment.gpu.name if environment.gpu else environment.machine.cpu for environment in environments}
    if others := sorted(here - set(claim.cards)):
        yield Differing(name="device", published=claim.cards[0], here=", ".join(others), refuses=True)


def _versions(claim: Claim, environments: Sequence[Environment]) -> Iterator[Differing]:
    if not environments:
        return
    for name, published in claim.versions.items():
        libraries = [environment.software.libraries for environment in environments]
        here = sorted({installed[name] for installed in libraries if name in installed})
        if not here or not all(f"{version}.".startswith(f"{published}.") for version in here):
            yield Differing(name=name, published=published, here=", ".join(here) or "not installed")


def rows_of(claim: Claim, summary: Summary | None, left_out: Mapping[str, str]) -> tuple[ReproducedRow, ...]:
    """A row for each value, ratio and order. left_out: why a value cannot be measured here, by its name."""
    measured = {value.name: measured_value(claim, value, summary, left_out) for value in claim.values}
    return (
        *(_value(claim, measured[value.name]) for value in claim.values),
        *(_ratio(ratio, measured[ratio.faster], measured[ratio.than]) for ratio in claim.ratios),
        *(_order([measured[name] for name in order]) for order in claim.orders),
    )


def _value(claim: Claim, result: MeasuredValue) -> ReproducedRow:
    value = result.value
    measured, interval = _figure_in_unit(value, result.row)
    published = value.latency_ms or value.items_per_s or 0.0
    refusing = list(dict.fromkeys(difference.name for difference in result.differences if difference.refuses))
    if claim.context is not None:
        judged = JudgedValue("NOT COMPARABLE", f"context only: {claim.context}")
    elif result.reason is not None:
        judged = JudgedValue("NOT COMPARABLE", result.reason)
    elif refusing:
        judged = JudgedValue("NOT COMPARABLE", f"another {', another '.join(refusing)}")
    elif value.ci95_ms is not None:
        judged = judge_measured(interval, published, value.ci95_ms)
    else:
        judged = judge(interval, band(published, value.tolerance or VALUE_TOLERANCE))
    return ReproducedRow(
        kind="value",
        name=value.name,
        unit="ms" if value.latency_ms else "items/s",
        published=published,
        published_ci95=value.ci95_ms,
        measured=measured,
        ci95=interval,
        verdict=judged.verdict,
        reason=judged.reason,
        differences=result.differences,
        case_ids=_case_ids([result]),
    )


def _figure_in_unit(value: ClaimedValue, row: Row | None) -> tuple[float | None, Interval | None]:
    """The row's figure and interval in the unit of the value: ms per batch, or samples per second."""
    if row is None or row.latency_ns is None:
        return None, None
    if value.latency_ms is None:
        return row.throughput_per_s, row.throughput_ci95
    interval = row.latency_ns.ci95
    ends = interval and Interval(low=interval.low / 1e6, high=interval.high / 1e6)
    return row.latency_ns.median / 1e6, ends


def _ratio(ratio: ClaimedRatio, fast: MeasuredValue, slow: MeasuredValue) -> ReproducedRow:
    published = slow.value.sample_ms / fast.value.sample_ms
    measured, interval, reason = _times_faster(fast, slow)
    target = band(published, ratio.tolerance or RATIO_TOLERANCE)
    judged = JudgedValue("NOT COMPARABLE", reason) if reason else judge(interval, target)
    return ReproducedRow(
        kind="ratio",
        name=f"{ratio.faster} / {ratio.than}",
        unit="x",
        published=published,
        published_ci95=None,
        measured=measured,
        ci95=interval,
        verdict=judged.verdict,
        reason=judged.reason,
        differences=_united([fast, slow]),
        case_ids=_case_ids([fast, slow]),
    )


def _times_faster(fast: MeasuredValue, slow: MeasuredValue) -> tuple[float | None, Interval | None, str | None]:
    """(speed-up per sample, its interval, why it is unknown)."""
    missing = [f"{side.value.name}: {side.reason}" for side in (fast, slow) if side.row is None]
    if fast.row is None or slow.row is None:
        return None, None, "; ".join(missing)
    if fast.row.case_id == slow.row.case_id:
        return None, None, "both sides are the same case here"
    ratio = ratio_of_medians(medians_per_sample(slow.row), medians_per_sample(fast.row))
    return (None, None, "no process median above 0") if ratio is None else (ratio.value, ratio.ci95, None)


def _order(values: Sequence[MeasuredValue]) -> ReproducedRow:
    """Judge the order of the measured values; values without a measurement are listed as a difference."""
    words = " < ".join(result.value.name for result in values)
    there = [result for result in values if result.row is not None]
    missing = "; ".join(f"{result.value.name} ({result.reason})" for result in values if result.row is None)
    reason = f"fewer than two of them were measured: {missing}" if len(there) < 2 else None
    steps: list[tuple[str, Interval | None]] = []
    for fast, slow in pairwise(there):
        _, interval, problem = _times_faster(fast, slow)
        steps.append((f"{fast.value.name} < {slow.value.name}", interval))
        reason = reason or problem
    judged = JudgedValue("NOT COMPARABLE", reason) if reason else judge_order(steps)
    partly = (Differing(name="order", published=words, here=f"without {missing}"),) if missing else ()
    return ReproducedRow(
        kind="order",
        name=words,
        unit="order",
        published=None,
        published_ci95=None,
        measured=None,
        ci95=None,
        verdict=judged.verdict,
        reason=judged.reason,
        differences=(*partly, *_united(values)),
        case_ids=_case_ids(there),
    )


def _united(values: Iterable[MeasuredValue]) -> tuple[Differing, ...]:
    return tuple(dict.fromkeys(difference for result in values for difference in result.differences))


def _case_ids(values: Iterable[MeasuredValue]) -> tuple[str, ...]:
    return tuple(result.row.case_id for result in values if result.row is not None)
