"""What proves that a backend skipped work inside the clock: answers from memory, work left to outputs() (pure).

Each threshold stands here with its source; what the flags do to a grade is defined in harness/measure/grades.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from harness.core.schemas import Case, Check, Grade, Interval, Measured, OutputsTime, Repeats
from harness.measure.checks import check_of
from harness.measure.grades import Finding, finding
from harness.measure.stats import median
from harness.measure.typical import batch_ns

REPEATS = "REPEATS_FASTER"
OUTPUTS = "LAZY_OUTPUTS"

REPEAT_CONFIDENCE = 0.999
"""Of the interval over the pairs: a table of 30 honest rows then has a false alarm in 1.5% at most, as half of what the
interval leaves out lies below it."""

MAX_REPEAT_RATIO = 1.01
"""A new input may take this much longer: what the project takes for equal everywhere (docs/decisions/0006)."""

LEAST_COMPARED = 8
"""Pairs with different right answers before the same answer to both counts as proof: where answers are few, such as an
arg-max, two inputs may share one by chance."""

COPIES = 10
"""A copy off a GPU into memory that is not page-locked, with a conversion to fp32 on top, is slower than the same copy
on the host: chosen wide, as laziness costs a whole pass."""

ARRAY_NS = {"cpu": 100_000, "cuda": 400_000}
"""For each output: a call into the library, a conversion, a wait for the device. On an H200 torch.compile took 0.21 to
0.37 ms for its one output where the host launches slowly (2026-11-29); what is lazy there, the event clock sees too."""

MAX_OUTPUTS_SHARE = 0.1
"""Of the median, for what outputs() takes beyond that: half a grade's widest interval (grades.MAX_INTERVAL_HALF_WIDTH
is ±5%)."""

Checks = Mapping[str, Check]
_OLD = "measured before there was this check"


def skipped_work(case: Case, records: Sequence[Measured]) -> tuple[list[Finding], Checks]:
    """Findings about the rounds of one case, and by the name of each flag in how many of them it was looked for."""
    found = [*_repeats(case, records), *_outputs(case, records)]
    too_few = _too_few(records)
    return found, {
        # Pairs that are too few decide nothing: then the check was made in no round.
        REPEATS: check_of([_repeats_missing(one) or too_few for one in records]),
        OUTPUTS: check_of(
            [None if case.boundary == "e2e" or one.outputs_time is not None else _OLD for one in records]
        ),
    }


def repeat_interval(records: Sequence[Repeats]) -> Interval | None:
    """How many times as long a new input takes as a repeated one: the median over all pairs, at REPEAT_CONFIDENCE.

    Order statistics of the pairs' ratios enclose their median whatever the distribution (David and Nagaraja, Order
    Statistics, 3rd ed., 7.1). As the order within pairs is random, equal work has 1 as that median, also beside others
    that take the CPU away. None for fewer than eleven pairs, whose extremes do not enclose it surely enough.
    """
    ratios = sorted(
        fresh / repeated
        for record in records
        for fresh, repeated in zip(record.fresh_ns, record.repeated_ns, strict=True)
        if repeated > 0
    )
    rank = _lower_rank(len(ratios))
    return Interval(low=ratios[rank - 1], high=ratios[-rank]) if rank else None


def _lower_rank(count: int) -> int:
    """The largest k with P[Binomial(count, 1/2) < k] within half of what the confidence leaves; 0 for none."""
    once_in = round(2 / (1 - REPEAT_CONFIDENCE))
    rank, below = 0, 1
    while below * once_in <= 2**count:
        rank += 1
        below += math.comb(count, rank)
    return rank


def _repeats(case: Case, records: Sequence[Measured]) -> list[Finding]:
    made = [record.repeats for record in records if record.repeats is not None]
    compared, unchanged = sum(one.compared for one in made), sum(one.unchanged for one in made)
    if compared >= LEAST_COMPARED and unchanged == compared:
        detail = (
            f"in {unchanged} of {compared} passes on a new input, written where a stored one lay, the answer was that "
            "of the stored one"
        )
        remedy = (
            f"{case.backend} answers from memory or from a copy of its inputs: it must compute every pass, and bring "
            "copies that load() made up to date in refresh()."
        )
        return [finding("C", REPEATS, detail, remedy)]
    interval = repeat_interval(made)
    if interval is None or interval.low <= MAX_REPEAT_RATIO:
        return []
    pairs = sum(len(one.fresh_ns) for one in made)
    detail = (
        f"inputs never seen before took {interval.low:.3g} to {interval.high:.3g} times as long as those that rotated "
        f"({REPEAT_CONFIDENCE:.1%} interval over {pairs} pairs)"
    )
    remedy = (
        f"{case.backend} is faster where inputs repeat: turn its cache of answers off. Where the time of the model "
        "itself depends on its values, measure with the inputs that it will serve."
    )
    return [finding("C", REPEATS, detail, remedy)]


def _repeats_missing(record: Measured) -> str | None:
    return _OLD if record.repeats is None else record.repeats.missing


def _too_few(records: Sequence[Measured]) -> str | None:
    """Why the pairs that there are decide nothing."""
    made = [record.repeats for record in records if record.repeats is not None]
    pairs = sum(len(one.fresh_ns) for one in made)
    return f"{pairs} pairs are too few: measure more rounds" if pairs and repeat_interval(made) is None else None


def _outputs(case: Case, records: Sequence[Measured]) -> list[Finding]:
    # At the e2e boundary outputs() is part of every sample.
    if case.boundary == "e2e":
        return []
    timed = [(record, record.outputs_time) for record in records if record.outputs_time is not None]
    array_ns = ARRAY_NS[case.device]
    hit = [
        (record, time)
        for record, time in timed
        if _beyond_copying_ns(time, array_ns) > MAX_OUTPUTS_SHARE * batch_ns(record)
    ]
    if not hit:
        return []
    record, time = hit[0]
    detail = (
        f"outputs() took {_us(min(time.outputs_ns))} or more beside {_us(batch_ns(record))} in the clock, where a "
        f"copy of the same arrays takes {_us(median(time.copy_ns))} ({len(hit)} of {len(timed)} rounds)"
    )
    remedy = f"infer() and synchronize() of {case.backend} must do all of the work: outputs() may only copy its result."
    caps_at: Grade = "C" if 2 * len(hit) >= len(timed) else "B"
    return [finding(caps_at, OUTPUTS, detail, remedy)]


def _beyond_copying_ns(time: OutputsTime, array_ns: int) -> float:
    # The shortest call: one that waits for a CPU is not lazy, and lazy work takes its time in each call.
    return min(time.outputs_ns) - COPIES * median(time.copy_ns) - array_ns * time.arrays


def _us(time_ns: float) -> str:
    return f"{time_ns / 1e3:,.1f} µs"
