"""Rules about what to run: which backend, whether a lower precision pays, when a slower start is repaid (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.core.schemas import Precision, Row
from harness.measure.ratios import Ratio, ratio_of_medians
from harness.measure.rows import median_ns
from harness.render import ranking, units
from harness.render.group import Group, Recommendation, listed
from harness.render.series import USUAL, name
from harness.reporting.figures import until_first_answer_ns
from harness.reporting.tables import cold_start as cold
from harness.reporting.tables.engines import engine_of

WORTH = 1.05
"""A lower precision that is known to gain less than this is not worth its loss."""

MAX_LISTED = 6


def backend_choice(group: Group) -> Iterator[Recommendation]:
    """The fastest backend at batch 1 in the precision that most backends share, or those that cannot be told apart."""
    single = [row for row in group.rows if row.batch_size == 1 and row.mode == "sync"]
    precision = _shared_precision(single)
    rows = [row for row in single if row.precision == precision]
    if precision is None or len({row.backend for row in rows}) < 2:
        return
    doubtful = ranking.doubtful_leaders(
        [*rows, *(row for row in group.flagged if (row.batch_size, row.mode, row.precision) == (1, "sync", precision))]
    )
    if doubtful:
        names = listed([f"{_way(row)}, {_latency(row)}" for row in doubtful])
        flags = listed(sorted({flag.name for row in doubtful for flag in row.flags}))
        be = "is" if len(doubtful) == 1 else "are"
        text = f"which is fastest at batch 1 in {precision} is open: {names}, may be, and {be} flagged ({flags})."
        yield group.recommendation("backend", text, tuple(row.case_id for row in doubtful))
        return
    fastest = ranking.winner(rows)
    candidates = ranking.contenders(rows)
    if fastest is not None:
        second = min((row for row in rows if row is not fastest), key=median_ns)
        ratio = _times(fastest, second)
        ahead = f"{_ratio(ratio)} times as fast as" if ratio else "faster than"
        text = f"{_way(fastest)} is fastest at batch 1 in {precision}: {_latency(fastest)}, {ahead} {_way(second)}."
        yield group.recommendation("backend", text, (fastest.case_id, second.case_id))
    elif len(candidates) > 1:
        names = listed([_way(row) for row in candidates])
        text = f"{names} are not significantly different at batch 1 in {precision}"
        started = [row for row in candidates if row.cold_ns is not None]
        if len(started) == len(candidates):
            soonest = min(started, key=_until_first_answer)
            seconds = units.duration(_until_first_answer(soonest))
            text += f": {soonest.backend} gives its first answer soonest, after {seconds}"
        yield group.recommendation("backend", f"{text}.", tuple(row.case_id for row in candidates))


def precision_choice(group: Group) -> Iterator[Recommendation]:
    """For each backend and lower precision: at which batch sizes it pays, and at which loss."""
    full = {(row.backend, row.batch_size): row for row in group.rows if row.precision == "fp32"}
    for rows in group.series():
        found = [(row, full[row.backend, row.batch_size]) for row in rows if (row.backend, row.batch_size) in full]
        if rows[0].precision == "fp32" or not found:
            continue
        rated = [(low, high, ratio) for low, high in found if (ratio := _times(low, high)) is not None]
        known = [(low, high, ratio, ratio.ci95) for low, high, ratio in rated if ratio.ci95]
        pays = [(low, high, ratio) for low, high, ratio, ends in known if ends.low > 1 and ratio.value >= WORTH]
        fails = [(low, high, ratio) for low, high, ratio, ends in known if ends.high < WORTH]
        if not pays and not fails:
            continue
        parts = [f"pays {_gains(pays)}, at {loss([low for low, _, _ in pays])}"] if pays else []
        parts += [f"does not pay {_gains(fails)}"] if fails else []
        ids = [row.case_id for low, high, _ in (*pays, *fails) for row in (low, high)]
        yield group.recommendation("precision", f"{name(rows[0])} {' and '.join(parts)}.", tuple(ids))


def start_up_cost(group: Group) -> Iterator[Recommendation]:
    """After how many requests the faster backends have repaid their slower start, at the smallest batch."""
    smallest = min(row.batch_size for row in group.rows)
    repaid: list[tuple[cold.BreakEven, Row]] = []
    for row in group.rows:
        baseline = group.by_id.get(row.speedup.baseline) if row.speedup else None
        if row.batch_size == smallest and row.mode == "sync" and baseline is not None and ranking.is_ranked(baseline):
            found = cold.break_even(row, baseline, group.export, engine_of(row, group.export, group.engines))
            if found is not None and found.interval is not None:
                repaid.append((found, row))
    if not repaid:
        return
    shown = sorted(repaid, key=lambda pair: pair[0].requests or 0)[:MAX_LISTED]
    first = group.by_id[shown[0][1].speedup.baseline] if shown[0][1].speedup else shown[0][1]
    words = listed([f"{name(row)} from {found} requests on" for found, row in shown])
    built = " engine build," if any(engine_of(row, group.export, group.engines) for _, row in shown) else ""
    costs = f"counting export,{built} load and compile"
    text = f"against {name(first)} at batch {smallest}, {costs}, worth the start-up: {words}."
    if any(found.cached for found, _ in shown):
        text += " Cached: a compile cache was warm; what repays a first start is not known."
    yield group.recommendation("start-up cost", text, (first.case_id, *(row.case_id for _, row in shown)))


def _shared_precision(rows: Sequence[Row]) -> Precision | None:
    """The precision that the most backends have; fp32 where it is among them, None without rows."""
    backends: dict[Precision, set[str]] = {}
    for row in rows:
        backends.setdefault(row.precision, set()).add(row.backend)
    return max(backends, key=lambda one: (len(backends[one]), one == "fp32"), default=None)


def _way(row: Row) -> str:
    """Backend, and its setting where that is not the usual one."""
    return row.backend if row.setting == USUAL else f"{row.backend} ({row.setting})"


def _times(fast: Row, slow: Row) -> Ratio | None:
    """How many times as fast, with its interval; None with one round."""
    if fast.latency_ns is None or slow.latency_ns is None:
        return None
    ratio = ratio_of_medians(slow.latency_ns.process_medians, fast.latency_ns.process_medians)
    return ratio if ratio and ratio.ci95 else None


def _ratio(ratio: Ratio) -> str:
    return f"{units.significant(ratio.value)} {units.interval(ratio.ci95)}"


def _gains(rated: Sequence[tuple[Row, Row, Ratio]]) -> str:
    batches = listed([str(low.batch_size) for low, _, _ in rated])
    values = sorted(ratio.value for _, _, ratio in rated)
    span = _ratio(rated[0][2]) if len(rated) == 1 else " to ".join(map(units.significant, (values[0], values[-1])))
    return f"at batch {batches} ({span} times the speed of fp32)"


def loss(rows: Sequence[Row]) -> str:
    """The worst parity of the rows, in words."""
    distances = [row.parity.relative_l2 for row in rows if row.parity and row.parity.relative_l2 is not None]
    words = [f"relative L2 {units.scientific(max(distances))}"] if distances else ["an unknown loss"]
    agreements = [row.parity.top1_agreement for row in rows if row.parity and row.parity.top1_agreement is not None]
    if agreements and rows[0].weights != "seeded":
        words.append(f"top-1 agreement {units.percent(min(agreements))}")
    elif cosines := [row.parity.cosine for row in rows if row.parity and row.parity.cosine is not None]:
        words.append(f"cosine {units.cosine(min(cosines))}")
    return ", ".join(words)


def _latency(row: Row) -> str:
    if row.latency_ns is None:
        return units.ABSENT
    unit = units.time_unit([row.latency_ns.median])
    return f"{units.in_unit(row.latency_ns.median, unit)} {unit.name} {units.interval(row.latency_ns.ci95, unit.ns)}"


def _until_first_answer(row: Row) -> float:
    return until_first_answer_ns(row.cold_ns) if row.cold_ns else float("inf")
