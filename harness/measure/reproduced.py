"""A claim and a summary → a verdict for each of its values, ratios and orders (pure).

Absolute values are judged on the card that they were published for and under the published conditions. Ratios and
orders are judged anywhere, with every condition named that is not the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from harness.core.schemas import Claim, ClaimedRatio, ClaimedValue, Differing, Interval, ReproducedRow, Row, Summary
from harness.measure.claimed import Found, find
from harness.measure.ratios import ratio_of_medians
from harness.measure.reproduction import (
    RATIO_TOLERANCE,
    VALUE_TOLERANCE,
    Judged,
    band,
    judge,
    judge_measured,
    judge_order,
)


def rows_of(claim: Claim, summary: Summary | None, left_out: Mapping[str, str]) -> tuple[ReproducedRow, ...]:
    """A row for each value, ratio and order. `left_out`: why a value cannot be measured here, by its name."""
    found = {value.name: find(claim, value, summary, left_out) for value in claim.values}
    return (
        *(_value(claim, found[value.name]) for value in claim.values),
        *(_ratio(ratio, found[ratio.faster], found[ratio.than]) for ratio in claim.ratios),
        *(_order([found[name] for name in order]) for order in claim.orders),
    )


def _value(claim: Claim, found: Found) -> ReproducedRow:
    value = found.value
    measured, interval = _in_unit(value, found.row)
    published = value.latency_ms or value.items_per_s or 0.0
    refusing = list(dict.fromkeys(one.name for one in found.differences if one.refuses))
    if claim.context is not None:
        judged = Judged("NOT COMPARABLE", f"context only: {claim.context}")
    elif found.reason is not None:
        judged = Judged("NOT COMPARABLE", found.reason)
    elif refusing:
        judged = Judged("NOT COMPARABLE", f"another {', another '.join(refusing)}")
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
        differences=found.differences,
        case_ids=_case_ids([found]),
    )


def _in_unit(value: ClaimedValue, row: Row | None) -> tuple[float | None, Interval | None]:
    """The row's figure and interval as the value has them: ms a batch, or items per second."""
    if row is None or row.latency_ns is None:
        return None, None
    if value.latency_ms is None:
        return row.throughput_per_s, row.throughput_ci95
    interval = row.latency_ns.ci95
    ends = interval and Interval(low=interval.low / 1e6, high=interval.high / 1e6)
    return row.latency_ns.median / 1e6, ends


def _ratio(ratio: ClaimedRatio, fast: Found, slow: Found) -> ReproducedRow:
    published = slow.value.item_ms / fast.value.item_ms
    measured, interval, reason = _times_faster(fast, slow)
    target = band(published, ratio.tolerance or RATIO_TOLERANCE)
    judged = Judged("NOT COMPARABLE", reason) if reason else judge(interval, target)
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


def _times_faster(fast: Found, slow: Found) -> tuple[float | None, Interval | None, str | None]:
    """(how many times faster per item, interval, why it cannot be told)."""
    missing = [f"{one.value.name}: {one.reason}" for one in (fast, slow) if one.row is None]
    if fast.row is None or slow.row is None:
        return None, None, "; ".join(missing)
    if fast.row.case_id == slow.row.case_id:
        return None, None, "both sides are the same case here"
    found = ratio_of_medians(_item_ns(slow.row), _item_ns(fast.row))
    return (None, None, "no process median above 0") if found is None else (found.value, found.ci95, None)


def _item_ns(row: Row) -> tuple[float, ...]:
    """Time of an item in ns, by process."""
    return tuple(median / row.batch_size for median in row.latency_ns.process_medians) if row.latency_ns else ()


def _order(found: Sequence[Found]) -> ReproducedRow:
    """Judge the order of what was measured; what was not is named as a difference."""
    words = " < ".join(one.value.name for one in found)
    there = [one for one in found if one.row is not None]
    missing = "; ".join(f"{one.value.name} ({one.reason})" for one in found if one.row is None)
    reason = f"fewer than two of them were measured: {missing}" if len(there) < 2 else None
    steps: list[tuple[str, Interval | None]] = []
    for fast, slow in pairwise(there):
        _, interval, problem = _times_faster(fast, slow)
        steps.append((f"{fast.value.name} < {slow.value.name}", interval))
        reason = reason or problem
    judged = Judged("NOT COMPARABLE", reason) if reason else judge_order(steps)
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
        differences=(*partly, *_united(found)),
        case_ids=_case_ids(there),
    )


def _united(found: Iterable[Found]) -> tuple[Differing, ...]:
    return tuple(dict.fromkeys(difference for one in found for difference in one.differences))


def _case_ids(found: Iterable[Found]) -> tuple[str, ...]:
    return tuple(one.row.case_id for one in found if one.row is not None)
