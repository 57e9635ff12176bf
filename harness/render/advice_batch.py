"""Rules about the batch size: most throughput, where it stops growing, where fixed cost dominates (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.core.schemas import Row
from harness.measure.ratios import Ratio, ratio_of
from harness.render import units
from harness.render.group import Group, Recommendation, interval, listed
from harness.render.series import name, named

FLAT = 1.05
"""Throughput that grows by less than this is flat: 5% is what a grade A interval may be wide."""

FIXED_SHARE = 0.5
"""Share of the latency from which fixed cost is said to dominate."""


def best_batch(group: Group) -> Iterator[Recommendation]:
    """The row with the most throughput, within the latency limit where the configuration has one."""
    limit = group.latency_limit_ms
    rated = [row for row in group.rows if row.throughput_per_s is not None]
    if len({row.batch_size for row in rated}) < 2:
        return
    allowed = [row for row in rated if limit is None or _within(row, limit)]
    if not allowed:
        if rated[0].mode != "offline":
            fastest = min(rated, key=lambda row: row.latency_ns.median if row.latency_ns else 0)
            text = f"no row is known to stay within {limit:g} ms at p95; {_cost(fastest)} comes nearest."
            yield group.recommendation("batch size", text, (fastest.case_id,))
        return
    most = max(allowed, key=_throughput)
    chosen = next((row for row in _smaller(allowed, most) if _may_equal(row, most)), most)
    within = "" if limit is None else f", within the limit of {limit:g} ms"
    text = f"most throughput with {_cost(chosen)}{within}."
    if chosen is not most:
        text += f" Batch {most.batch_size} is not significantly faster."
    above = [row for row in group.flagged if _throughput(row) > _throughput(chosen)]
    if above:
        best = max(above, key=_throughput)
        flags = listed(sorted({flag.name for flag in best.flags}))
        text += f" {_cost(best)} reads more and is flagged ({flags})."
    yield group.recommendation("batch size", text, tuple(dict.fromkeys((chosen.case_id, most.case_id))))


def saturation(group: Group) -> Iterator[Recommendation]:
    """Backends whose throughput is flat from some batch on: computing, not fixed cost, bounds them there."""
    found = [(row, rows) for rows in group.series() if (row := _flat_from(rows)) is not None]
    if not found:
        return
    words = [f"{row.batch_size} with {name(row)}" for row, _ in found]
    text = f"throughput is flat from batch {listed(words)} on: a larger batch only adds latency."
    ids = tuple(one.case_id for row, rows in found for one in rows if one.batch_size >= row.batch_size)
    yield group.recommendation("saturation", text, ids)


def fixed_cost(group: Group) -> Iterator[Recommendation]:
    """Backends that spend at least half of their smallest batch on what does not grow with it.

    Not on a GPU, whose own clock tells launches from small kernels (advice_gpu.py).
    """
    found = [
        (rows[0], rows[1], share)
        for rows in group.series()
        if rows[0].device_ns is None and (share := _fixed_share(rows)) is not None
    ]
    if not found:
        return
    small = found[0][0]
    words = [f"{name(row)} ({share:.0%})" for row, _, share in found]
    text = (
        f"at batch {small.batch_size} fixed cost (launches, framework) is at least half of the latency "
        f"with {listed(words)}: batching, a graph or a compiler pays more than faster arithmetic."
    )
    yield group.recommendation(
        "fixed cost", text, tuple(one.case_id for row, next_, _ in found for one in (row, next_))
    )


def _within(row: Row, limit_ms: float) -> bool:
    """True where p95 is known and within the limit; offline rows have no latency that could be."""
    p95 = row.latency_ns.p95 if row.latency_ns and row.mode != "offline" else None
    return p95 is not None and p95 <= limit_ms * units.MILLISECOND.ns


def _throughput(row: Row) -> float:
    return row.throughput_per_s or 0.0


def _cost(row: Row) -> str:
    latency = row.latency_ns
    rate = f"{units.significant(row.throughput_per_s)} {units.ITEMS[row.kind]}/s"
    words = f"{named(row)} at batch {row.batch_size}, {rate}"
    if latency is None or row.mode == "offline":
        return words
    tail = f", p95 {units.duration(latency.p95)}" if latency.p95 is not None else ""
    return f"{words} ({units.duration(latency.median)} a batch{tail})"


def _smaller(rows: Sequence[Row], most: Row) -> list[Row]:
    """Rows of the same backend and precision with a smaller batch, smallest first."""
    same = [row for row in rows if name(row) == name(most) and row.batch_size < most.batch_size]
    return sorted(same, key=lambda row: row.batch_size)


def _may_equal(row: Row, most: Row) -> bool:
    """True where the interval of the ratio leaves open that both have the same throughput."""
    ratio = _rate_ratio(most, row)
    return ratio is not None and ratio.ci95 is not None and ratio.ci95.low <= 1


def _rate_ratio(over: Row, under: Row) -> Ratio | None:
    """Throughput of one row by that of another."""
    if not over.throughput_per_s or not under.throughput_per_s:
        return None
    return ratio_of(over.throughput_per_s, over.throughput_ci95, under.throughput_per_s, under.throughput_ci95)


def _flat_from(rows: Sequence[Row]) -> Row | None:
    """The first row that no larger batch beats by FLAT, whatever the intervals hold; never the largest."""
    for place, row in enumerate(rows[:-1]):
        ratios = [_rate_ratio(other, row) for other in rows[place + 1 :]]
        if all(ratio is not None and ratio.ci95 is not None and ratio.ci95.high <= FLAT for ratio in ratios):
            return row
    return None


def _fixed_share(rows: Sequence[Row]) -> float | None:
    """Least share of fixed cost at the smallest batch, from it and the next: latency = fixed + batch × each.

    Taken at the ends of the intervals that make it smallest. None where it is below FIXED_SHARE, or cannot be told.
    """
    if len(rows) < 2 or rows[0].mode != "sync":
        return None
    small, large = interval(rows[0]), interval(rows[1])
    if small is None or large is None:
        return None
    each = (large.high - small.low) / (rows[1].batch_size - rows[0].batch_size)
    share = 1 - each * rows[0].batch_size / small.low
    return share if share >= FIXED_SHARE else None
