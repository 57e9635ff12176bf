"""Recommendations, derived from the rows by rules, and the command for narrower intervals (pure).

Speed is only compared between rows of grade A or B, within one table (model, weights, device, boundary, mode) and
sequence length, and beyond their intervals. A rule that cannot decide gives no recommendation.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from harness.aggregation.flags import MAX_INTERVAL_HALF_WIDTH, flag_names, is_calibration, median_ns
from harness.aggregation.more_rounds import MANY_ROUNDS, half_width, rounds_for
from harness.core import units
from harness.core.schemas import EngineRecord, ExportRecord, Interval, Precision, Row, Summary
from harness.reporting import ranking
from harness.reporting.figures import until_first_answer_ns
from harness.reporting.prose import boundaries
from harness.reporting.ranking import backend_and_setting, row_name, series_name
from harness.reporting.tables import cold_start_table as cold
from harness.reporting.tables.cold_start_table import engine_of
from harness.reporting.writers.markdown import escape
from harness.statistics.ratios import Ratio, ratio_of, ratio_of_medians


@dataclass(frozen=True)
class Recommendation:
    """One or two sentences, with their subject, their rule, and the rows that they are based on."""

    about: str
    rule: str
    text: str
    case_ids: tuple[str, ...]


@dataclass(frozen=True)
class Candidates:
    """Rows of grade A or B of one table and sequence length.

    by_id: all rows of the summary, for baselines. latency_limit_ms: of the configuration, None without a limit.
    engines: Summary.engines. flagged: the rows of grade C in the same group, which no rule may recommend.
    """

    title: str
    rows: tuple[Row, ...]
    by_id: Mapping[str, Row]
    export: ExportRecord | None
    latency_limit_ms: float | None
    engines: Mapping[str, EngineRecord] = field(default_factory=dict)
    flagged: tuple[Row, ...] = ()

    def recommendation(self, rule: str, text: str, case_ids: tuple[str, ...]) -> Recommendation:
        """A recommendation about this group."""
        return Recommendation(self.title, rule, text, case_ids)

    def series(self) -> Iterator[Sequence[Row]]:
        """Rows that differ only in the batch size, smallest first."""
        rows_of: dict[str, list[Row]] = {}
        labels = ranking.series_labels(self.rows)
        for row in self.rows:
            rows_of.setdefault(labels[row.case_id], []).append(row)
        for rows in rows_of.values():
            yield sorted(rows, key=lambda row: row.batch_size)


def latency_interval(row: Row) -> Interval | None:
    """The latency's 95% interval over processes."""
    return row.latency_ns.ci95 if row.latency_ns else None


def joined_words(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


FLAT = 1.05
"""Throughput that grows by less than this factor is flat: 5% is the largest width of a grade A interval."""

FIXED_SHARE = 0.5
"""Share of the latency from which fixed cost dominates."""


def best_batch(group: Candidates) -> Iterator[Recommendation]:
    """The row with the highest throughput, within the latency limit where the configuration has one."""
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
        flags = joined_words(sorted({flag.name for flag in best.flags}))
        text += f" {_cost(best)} reads more and is flagged ({flags})."
    yield group.recommendation("batch size", text, tuple(dict.fromkeys((chosen.case_id, most.case_id))))


def saturation(group: Candidates) -> Iterator[Recommendation]:
    """Backends whose throughput is flat from some batch size on: there, compute and not fixed cost limits them."""
    flat = [(row, rows) for rows in group.series() if (row := _flat_from(rows)) is not None]
    if not flat:
        return
    words = [f"{row.batch_size} with {series_name(row)}" for row, _ in flat]
    text = f"throughput is flat from batch {joined_words(words)} on: a larger batch only adds latency."
    ids = tuple(other.case_id for row, rows in flat for other in rows if other.batch_size >= row.batch_size)
    yield group.recommendation("saturation", text, ids)


def fixed_cost(group: Candidates) -> Iterator[Recommendation]:
    """Backends that spend at least half of their smallest batch on fixed cost.

    Not on a GPU, whose own clock separates launches from small kernels (launches).
    """
    fixed = [
        (rows[0], rows[1], share)
        for rows in group.series()
        if rows[0].device_ns is None and (share := _fixed_share(rows)) is not None
    ]
    if not fixed:
        return
    small = fixed[0][0]
    words = [f"{series_name(row)} ({share:.0%})" for row, _, share in fixed]
    text = (
        f"at batch {small.batch_size} fixed cost (launches, framework) is at least half of the latency "
        f"with {joined_words(words)}: batching, a graph or a compiler pays more than faster arithmetic."
    )
    yield group.recommendation(
        "fixed cost", text, tuple(pair.case_id for row, next_, _ in fixed for pair in (row, next_))
    )


def _within(row: Row, limit_ms: float) -> bool:
    """True where p95 is known and within the limit; offline rows have no latency."""
    p95 = row.latency_ns.p95 if row.latency_ns and row.mode != "offline" else None
    return p95 is not None and p95 <= limit_ms * units.MILLISECOND.ns


def _throughput(row: Row) -> float:
    return row.throughput_per_s or 0.0


def _cost(row: Row) -> str:
    latency = row.latency_ns
    rate = f"{units.significant(row.throughput_per_s)} {units.SAMPLE_NAMES[row.kind]}/s"
    words = f"{row_name(row)} at batch {row.batch_size}, {rate}"
    if latency is None or row.mode == "offline":
        return words
    tail = f", p95 {units.duration(latency.p95)}" if latency.p95 is not None else ""
    return f"{words} ({units.duration(latency.median)} a batch{tail})"


def _smaller(rows: Sequence[Row], most: Row) -> list[Row]:
    """Rows of the same backend and precision with a smaller batch, smallest first."""
    same = [row for row in rows if series_name(row) == series_name(most) and row.batch_size < most.batch_size]
    return sorted(same, key=lambda row: row.batch_size)


def _may_equal(row: Row, most: Row) -> bool:
    """True where both may have the same throughput, by the interval of the ratio."""
    ratio = _rate_ratio(most, row)
    return ratio is not None and ratio.ci95 is not None and ratio.ci95.low <= 1


def _rate_ratio(over: Row, under: Row) -> Ratio | None:
    """Ratio of the throughputs of two rows."""
    if not over.throughput_per_s or not under.throughput_per_s:
        return None
    return ratio_of(over.throughput_per_s, over.throughput_ci95, under.throughput_per_s, under.throughput_ci95)


def _flat_from(rows: Sequence[Row]) -> Row | None:
    """The first row that no larger batch exceeds by FLAT, anywhere in the intervals; never the largest."""
    for place, row in enumerate(rows[:-1]):
        ratios = [_rate_ratio(other, row) for other in rows[place + 1 :]]
        if all(ratio is not None and ratio.ci95 is not None and ratio.ci95.high <= FLAT for ratio in ratios):
            return row
    return None


def _fixed_share(rows: Sequence[Row]) -> float | None:
    """Lower bound of the share of fixed cost at the smallest batch, from this and the next batch size, where
    latency = fixed + batch × each.

    Computed with the ends of the intervals that make it smallest. None where it is below FIXED_SHARE or unknown.
    """
    if len(rows) < 2 or rows[0].mode != "sync":
        return None
    small, large = latency_interval(rows[0]), latency_interval(rows[1])
    if small is None or large is None:
        return None
    each = (large.high - small.low) / (rows[1].batch_size - rows[0].batch_size)
    share = 1 - each * rows[0].batch_size / small.low
    return share if share >= FIXED_SHARE else None


WORTH = 1.05
"""A lower precision whose speed-up is certainly below this is not worth its loss."""

MAX_LISTED = 6


def backend_choice(group: Candidates) -> Iterator[Recommendation]:
    """The fastest backend at batch 1 in the precision that most backends share, or all that may be the fastest."""
    single = [row for row in group.rows if row.batch_size == 1 and row.mode == "sync"]
    precision = _shared_precision(single)
    rows = [row for row in single if row.precision == precision]
    if precision is None or len({row.backend for row in rows}) < 2:
        return
    doubtful = ranking.doubtful_leaders(
        [*rows, *(row for row in group.flagged if (row.batch_size, row.mode, row.precision) == (1, "sync", precision))]
    )
    if doubtful:
        leading = sorted((*ranking.contenders(rows), *doubtful), key=median_ns)
        names = joined_words(list(map(_with_flags, leading)), last="or")
        text = f"which is fastest at batch 1 in {precision} is open: {names}."
        yield group.recommendation("backend", text, tuple(row.case_id for row in leading))
        return
    fastest = ranking.winner(rows)
    candidates = ranking.contenders(rows)
    if fastest is not None:
        second = min((row for row in rows if row is not fastest), key=median_ns)
        ratio = _times(fastest, second)
        ahead = f"{_ratio(ratio)} times as fast as" if ratio else "faster than"
        first = f"{backend_and_setting(fastest)} is fastest at batch 1 in {precision}: {_latency(fastest)}"
        text = f"{first}, {ahead} {backend_and_setting(second)}."
        yield group.recommendation("backend", text, (fastest.case_id, second.case_id))
    elif len(candidates) > 1:
        names = joined_words([backend_and_setting(row) for row in candidates])
        text = f"{names} are equally fast at batch 1 in {precision}, within their intervals or 1%"
        started = [row for row in candidates if row.cold_ns is not None]
        if len(started) == len(candidates):
            soonest = min(started, key=_until_first_answer)
            seconds = units.duration(_until_first_answer(soonest))
            text += f": {soonest.backend} has the shortest cold start, {seconds}"
        yield group.recommendation("backend", f"{text}.", tuple(row.case_id for row in candidates))


def precision_choice(group: Candidates) -> Iterator[Recommendation]:
    """For each backend and lower precision: the batch sizes at which it is faster, and its loss of accuracy."""
    full = {(row.backend, row.batch_size): row for row in group.rows if row.precision == "fp32"}
    for rows in group.series():
        faster = [(row, full[row.backend, row.batch_size]) for row in rows if (row.backend, row.batch_size) in full]
        if rows[0].precision == "fp32" or not faster:
            continue
        rated = [(low, high, ratio) for low, high in faster if (ratio := _times(low, high)) is not None]
        known = [(low, high, ratio, ratio.ci95) for low, high, ratio in rated if ratio.ci95]
        pays = [(low, high, ratio) for low, high, ratio, ends in known if ends.low > 1 and ratio.value >= WORTH]
        fails = [(low, high, ratio) for low, high, ratio, ends in known if ends.high < WORTH]
        if not pays and not fails:
            continue
        parts = [f"pays {_gains(pays)}, at {accuracy_loss_text([low for low, _, _ in pays])}"] if pays else []
        parts += [f"does not pay {_gains(fails)}"] if fails else []
        ids = [row.case_id for low, high, _ in (*pays, *fails) for row in (low, high)]
        yield group.recommendation("precision", f"{series_name(rows[0])} {' and '.join(parts)}.", tuple(ids))


def start_up_cost(group: Candidates) -> Iterator[Recommendation]:
    """Number of requests after which faster backends have repaid their slower start, at the smallest batch."""
    smallest = min(row.batch_size for row in group.rows)
    repaid: list[tuple[cold.BreakEven, Row]] = []
    for row in group.rows:
        baseline = group.by_id.get(row.speedup.baseline) if row.speedup else None
        if row.batch_size == smallest and row.mode == "sync" and baseline is not None and ranking.is_ranked(baseline):
            break_even = cold.break_even(row, baseline, group.export, engine_of(row, group.export, group.engines))
            if break_even is not None and break_even.interval is not None:
                repaid.append((break_even, row))
    if not repaid:
        return
    shown = sorted(repaid, key=lambda pair: pair[0].requests or 0)[:MAX_LISTED]
    first = group.by_id[shown[0][1].speedup.baseline] if shown[0][1].speedup else shown[0][1]
    words = joined_words([f"{series_name(row)} from {break_even} requests on" for break_even, row in shown])
    built = " engine build," if any(engine_of(row, group.export, group.engines) for _, row in shown) else ""
    costs = f"counting export,{built} load and compile"
    text = f"against {series_name(first)} at batch {smallest}, {costs}, worth the start-up: {words}."
    if any(break_even.cached for break_even, _ in shown):
        text += " Cached: a compile cache was warm; what repays a first start is not known."
    yield group.recommendation("start-up cost", text, (first.case_id, *(row.case_id for _, row in shown)))


def _with_flags(row: Row) -> str:
    """The backend with its latency; of a row of grade C also the flags that lower its grade."""
    flags = f" (grade C: {', '.join(flag_names(row))})" if row.grade == ranking.UNRANKED else ""
    return f"{backend_and_setting(row)} {_latency(row)}{flags}"


def _shared_precision(rows: Sequence[Row]) -> Precision | None:
    """The precision that most backends have; fp32 where it is among them, None without rows."""
    backends: dict[Precision, set[str]] = {}
    for row in rows:
        backends.setdefault(row.precision, set()).add(row.backend)
    return max(backends, key=lambda precision: (len(backends[precision]), precision == "fp32"), default=None)


def _times(fast: Row, slow: Row) -> Ratio | None:
    """Speed-up with its interval; None with one round."""
    if fast.latency_ns is None or slow.latency_ns is None:
        return None
    ratio = ratio_of_medians(slow.latency_ns.process_medians, fast.latency_ns.process_medians)
    return ratio if ratio and ratio.ci95 else None


def _ratio(ratio: Ratio) -> str:
    return f"{units.significant(ratio.value)} {units.interval(ratio.ci95)}"


def _gains(rated: Sequence[tuple[Row, Row, Ratio]]) -> str:
    batches = joined_words([str(low.batch_size) for low, _, _ in rated])
    values = sorted(ratio.value for _, _, ratio in rated)
    span = _ratio(rated[0][2]) if len(rated) == 1 else " to ".join(map(units.significant, (values[0], values[-1])))
    return f"at batch {batches} ({span} times the speed of fp32)"


def accuracy_loss_text(rows: Sequence[Row]) -> str:
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


ENQUEUE_BOUND = "ENQUEUE_BOUND"


def launches(group: Candidates) -> Iterator[Recommendation]:
    """Rows in which the GPU waits for the host, and rows of kernels too small to fill it."""
    waiting = [row for row in group.rows if _waits_for_host(row)]
    if waiting:
        text = (
            f"the GPU waits for the host's launches with {_batches_text(waiting)}: a setting with a CUDA graph submits "
            "a whole pass with one call; a larger batch hides them behind computing."
        )
        yield group.recommendation("launches", text, tuple(row.case_id for row in waiting))
    others = [row for row in group.rows if row not in waiting]
    small = _limited_by("launch", others)
    if small:
        text = (
            f"with {_batches_text(small)} neither arithmetic nor memory is near its limit: kernels too small for the "
            "GPU, each waiting for the one before, so a larger batch or fewer, fused kernels gain most."
        )
        yield group.recommendation("small kernels", text, tuple(row.case_id for row in small))
    slow = _limited_by("kernels", others)
    if slow:
        text = (
            f"with {_batches_text(slow)} most of the time grows with the batch and yet neither limit is near: other or "
            "fused kernels (a compiler, another layout or setting) can gain more than fewer launches."
        )
        yield group.recommendation("slow kernels", text, tuple(row.case_id for row in slow))


def _limited_by(limit: str, rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.roofline and row.roofline.limit == limit]


def engine_cost(group: Candidates) -> Iterator[Recommendation]:
    """Number of batches after which an engine has repaid its build, against the next best backend without an engine."""
    pairs: dict[tuple[str, str], list[tuple[Row, Row, float]]] = {}
    for row in sorted((row for row in group.rows if row.mode == "sync"), key=lambda row: row.batch_size):
        build_ns, best = _build_ns(group, row), _next_best(group, row)
        if build_ns is not None and best is not None:
            pairs.setdefault((series_name(row), series_name(best)), []).append((row, best, build_ns))
    for (engine, other), cases in pairs.items():
        counts = [f"{_repaid(*case)} batches of {case[0].batch_size}" for case in cases]
        builds = list(dict.fromkeys(units.duration(bound(ns for *_, ns in cases)) for bound in (min, max)))
        text = (
            f"an engine of {engine} (built in {' to '.join(builds)}) saves time over {other}, the next best, after "
            f"{joined_words(counts)}. It is kept for this GPU, driver and TensorRT."
        )
        yield group.recommendation(
            "engine", text, tuple(member.case_id for row, best, _ in cases for member in (row, best))
        )


def _waits_for_host(row: Row) -> bool:
    flagged = any(flag.name == ENQUEUE_BOUND for flag in row.flags)
    return flagged or (row.roofline is not None and row.roofline.limit == "host")


def _batches_text(rows: Sequence[Row]) -> str:
    """`torch-eager fp16 at batch 1 and 8, and …`."""
    batches: dict[str, dict[int, None]] = {}
    for row in sorted(rows, key=lambda row: row.batch_size):  # of several settings, too
        batches.setdefault(series_name(row), {})[row.batch_size] = None
    return joined_words(
        [f"{who} at batch {joined_words([str(size) for size in sizes])}" for who, sizes in batches.items()]
    )


def _build_ns(group: Candidates, row: Row) -> float | None:
    engine = engine_of(row, group.export, group.engines)
    return None if engine is None else engine.build_s * 1e9


def _next_best(group: Candidates, row: Row) -> Row | None:
    """The fastest row of this shape without an engine, if `row` is faster beyond both intervals.

    None where a row of grade C is faster still: the engine may never be worth its build.
    """
    if any(ranking.shape(other) == ranking.shape(row) and median_ns(other) < median_ns(row) for other in group.flagged):
        return None
    peers = [other for other in group.rows if ranking.shape(other) == ranking.shape(row)]
    others = [other for other in peers if _build_ns(group, other) is None]
    best = min(others, key=median_ns, default=None)
    interval, best_interval = latency_interval(row), latency_interval(best) if best else None
    return None if interval is None or best_interval is None or interval.high >= best_interval.low else best


def _repaid(row: Row, best: Row, build_ns: float) -> str:
    assert row.latency_ns is not None and best.latency_ns is not None  # noqa: PT018, S101 - chosen by _next_best
    repaid = cold.repaid_after(build_ns, best.latency_ns, row.latency_ns)
    assert repaid is not None  # noqa: S101 - their intervals do not touch
    return cold.requests(*repaid)


MANY_FAULTS = 256
"""Minor page faults per inference that matter: 1 MiB in pages of 4 KiB, about 0.1 ms or more."""

KEEP = "MALLOC_TRIM_THRESHOLD_=1000000000 MALLOC_MMAP_THRESHOLD_=1000000000"


def page_faults(group: Candidates) -> Iterator[Recommendation]:
    """Rows on a CPU whose inferences fault in pages that an earlier inference had already faulted in."""
    faulting = [(row, faults) for row in group.rows if (faults := _faults(row)) >= MANY_FAULTS]
    if not faulting:
        return
    causes = [f"{units.whole(faults)} with {series_name(row)} at batch {row.batch_size}" for row, faults in faulting]
    text = (
        f"page faults in each inference: {joined_words(causes)}. The C library gives memory back to the system and "
        f"asks for it again, and the system clears each page. `{KEEP} make bench RESULTS=…` measures what keeping it "
        "would bring; an allocator such as jemalloc or tcmalloc (LD_PRELOAD) keeps it as well."
    )
    yield group.recommendation("page faults", text, tuple(row.case_id for row, _ in faulting))


def _faults(row: Row) -> int:
    """Page faults of one inference, averaged over the timed loops of all rounds; 0 where no monitor ran."""
    if row.device != "cpu" or row.usage is None or row.latency_ns is None or not row.latency_ns.n:
        return 0
    return round(row.usage.minor_faults / row.latency_ns.n)


MAX_GROUPS = 8
"""Largest number of models and sequence lengths with recommendations, to keep the list short."""

MAX_NAMED = 4
"""Largest number of rows that are named individually; more rows are named by their batch sizes and backends."""

DISTURBANCES = (
    *("CPU_SHARED", "GPU_SHARED", "STEAL", "CPU_QUOTA", "OVERSUBSCRIBED", "THERMAL", "HW_SLOWDOWN", "POWER_CAP"),
    *("CLOCK_DRIFT", "MAJOR_FAULTS", "STARVED", "STOPPED", "AFFINITY_CHANGED", "UNWATCHED"),
)

RULES: Sequence[Callable[[Candidates], Iterable[Recommendation]]] = (
    backend_choice,
    precision_choice,
    best_batch,
    saturation,
    fixed_cost,
    start_up_cost,
    page_faults,
    launches,
    engine_cost,
)


def recommend(summary: Summary) -> list[Recommendation]:
    """All recommendations of the rules, those on the machine first."""
    recommendations = list(disturbed(summary.rows))
    for group in groups(summary)[:MAX_GROUPS]:
        recommendations += [recommendation for rule in RULES for recommendation in rule(group)]
    return recommendations


def recommendations_text(summary: Summary) -> str:
    """The list for the report; empty without recommendations."""
    blocks: dict[str, list[str]] = {}
    for recommendation in recommend(summary):
        named = ", ".join(f"`{case_id}`" for case_id in recommendation.case_ids[:MAX_NAMED])
        more = len(recommendation.case_ids) - MAX_NAMED
        others = f" and {units.count(more, 'more row')}" if more > 0 else ""
        blocks.setdefault(recommendation.about, []).append(
            f"- **{recommendation.rule}**: {escape(recommendation.text)} *Based on* {named}{others}."
        )
    parts = [f"{about}:\n\n" + "\n".join(lines) for about, lines in blocks.items()]
    if parts and len(groups(summary)) > MAX_GROUPS:
        parts.append(f"The rules were applied to the first {MAX_GROUPS} models and sequence lengths.")
    return "\n\n".join(parts)


def groups(summary: Summary) -> list[Candidates]:
    """The rows that may be compared with each other, by table and sequence length."""
    by_id: Mapping[str, Row] = {row.case_id: row for row in summary.rows}
    tables = ranking.by_table(summary.rows)
    several = {key[0] for key, _ in tables if sum(key[0] == other[0] for other, _ in tables) > 1}
    ranked = []
    for key, rows in tables:
        for length in sorted({row.sequence_length or 0 for row in rows}):
            shape_rows = [row for row in rows if (row.sequence_length or 0) == length]
            sound = tuple(row for row in shape_rows if ranking.is_ranked(row))
            flagged = tuple(row for row in shape_rows if row.grade == ranking.UNRANKED)
            export: ExportRecord | None = summary.exports.get(key[0])
            if sound:
                title = _title(key, length, boundaries.brief_mode(shape_rows[0]) if key[0] in several else "")
                limit = summary.latency_limit_ms
                ranked.append(Candidates(title, sound, by_id, export, limit, summary.engines, flagged))
    return ranked


def _title(key: ranking.TableKey, length: int, boundary_and_mode: str) -> str:
    parts = [
        key.model,
        *([boundary_and_mode] if boundary_and_mode else []),
        *([f"sequence {length}"] if length else []),
    ]
    return ", ".join(parts)


def disturbed(rows: Sequence[Row]) -> Iterable[Recommendation]:
    """Disturbances of the measurement, by cause: the only rule that uses flagged rows, because it compares nothing."""
    timed_rows = [row for row in rows if row.status == "measured" and not row.tried]
    measured = [row for row in timed_rows if not is_calibration(row)]
    for cause in DISTURBANCES:
        disturbed_rows = [(row, flag) for row in measured for flag in row.flags if flag.name == cause]
        if disturbed_rows:
            ids = tuple(dict.fromkeys(row.case_id for row, _ in disturbed_rows))
            text = f"in {len(ids)} of {units.count(len(measured), 'row')}. {disturbed_rows[0][1].remedy}"
            yield Recommendation("The machine", cause, text, ids)


_BESIDES_S = 30.0
"""Seconds for plan, the check of exports, aggregate and report."""


def further_rounds_text(summary: Summary) -> str:
    """Number of rows wider than ±5%, the command that narrows them and its approximate duration, as Markdown.

    Empty where no row is wide.
    """
    rows = [row for row in summary.rows if row.latency_ns and not is_calibration(row)]
    rows = [row for row in rows if not row.tried]
    wide = [row for row in rows if _width(row) > MAX_INTERVAL_HALF_WIDTH]
    if not wide:
        return ""
    some = f"{len(wide)} of {units.count(len(rows), 'row')}"
    unknown = sum(row.latency_ns is not None and row.latency_ns.ci95 is None for row in wide)
    text = f"{some} {'is' if len(wide) == 1 else 'are'} wider than ±5%."
    if unknown == len(wide):
        text = f"{some} {'has' if len(wide) == 1 else 'have'} no interval."
    elif unknown:
        text = f"{some} are wider than ±5% or have no interval."
    needed = {row.case_id: _rounds(row) for row in wide}
    lost = sum(number is None for number in needed.values())
    if lost == len(wide):
        return f"{text} {MANY_ROUNDS} rounds would not be enough for any: their processes differ too much here."
    lives_ns = [row.usage.process_ns for row in rows if row.usage and row.usage.process_ns]
    seconds = _BESIDES_S + sum((needed[row.case_id] or 0) * _process_s(row, lives_ns) for row in wide)
    minutes = math.ceil(seconds / 60)
    limits = {"INTERVAL": f"{MAX_INTERVAL_HALF_WIDTH:.0%}", **({"BUDGET": f"{minutes}m"} if lives_ns else {})}
    if any(row.stopped == "round limit" for row in wide):
        limits["MAX_ROUNDS"] = str(MANY_ROUNDS)
    words = [f"{name}={shlex.quote(value)}" for name, value in limits.items()]
    time = f", about {minutes} min" if lives_ns else ""
    after = f" For {lost} of them {MANY_ROUNDS} rounds would not be enough." if lost else ""
    return f"{text} To be surer: `{' '.join(['make bench', *words])}`{time}.{after}"


def _width(row: Row) -> float:
    return half_width(row.latency_ns.process_medians) if row.latency_ns else math.inf


def _rounds(row: Row) -> int | None:
    """Rounds that the row still needs; None where the total would exceed MANY_ROUNDS."""
    medians = row.latency_ns.process_medians if row.latency_ns else ()
    needed = rounds_for(medians, MAX_INTERVAL_HALF_WIDTH)
    return None if needed > MANY_ROUNDS else needed - len(medians)


def _process_s(row: Row, others_ns: list[int]) -> float:
    """Seconds per process of the row; where no monitor ran, the median of the other rows."""
    own_ns = row.usage.process_ns if row.usage else None
    return (own_ns or (median(others_ns) if others_ns else 0)) / 1e9
