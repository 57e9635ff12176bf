"""Whether the samples of a process account for its wall time, and how much of it lies in few long iterations (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from harness.core.schemas import Case, Grade, Measured
from harness.measure import stats, typical
from harness.measure.grades import Finding, finding

MIN_SAMPLED_SHARE = 0.9
"""Of the wall time of blocks that the samples must cover; choosing the next input is the rest."""

MAX_BETWEEN_NS = 25_000
"""A sample, beyond that share: a GPU's inputs and events take a median of 9 and 15 µs between two samples of the
published H200 runs."""

LONG = 5
"""Times the process's median: no scatter of an undisturbed inference reaches it."""

LONG_BLOCK = 2
"""Times the median of blocks, where a block is all that is timed: its mean scatters less than single iterations do."""

MAX_LONG_SHARE = 0.05
"""Of a process's time in long iterations, for grade A: the widest interval of grade A, by which the mean may then be
off from the median."""

MAX_LONG_SHARE_RANKED = 0.2
"""Beyond it the median is not what a caller waits for."""

_REPEAT = "Run it again (`make run FORCE=1`); if it stays, the loop of its mode has a fault."


def in_flight(case: Case) -> int:
    """Batches at a time in the mode of a case; at the transfer boundary of a GPU copies run ahead and behind."""
    if case.mode != "pipelined":
        return 1
    return 3 if (case.device, case.boundary) == ("cuda", "transfer") else 2


def mismatch(case: Case, records: Sequence[Measured]) -> list[Finding]:
    """F where samples are longer together than the time in which they were taken; C where they leave much of it out.

    With k batches in flight each instant belongs to k samples. The first ones of a block began before it, so that k - 1
    of them are not held against it; the last ones are not counted to their end, so that the last one counts k times.
    """
    depth = in_flight(case)
    over = {record.round: why for record in records if (why := _over(record, depth))}
    found = over or {record.round: why for record in records if (why := _under(record, depth))}
    if not found:
        return []
    number, detail = next(iter(found.items()))
    caps_at: Grade = "F" if over else "C"
    return [finding(caps_at, "SAMPLES_MISMATCH", f"round {number}: {detail}", _REPEAT)]


def long_iterations(records: Sequence[Measured]) -> list[Finding]:
    """B where a round has more than a small part of its time in long iterations, C where most have a large part."""
    shares = {record.round: _long(record) for record in records}
    hit = {number: found for number, found in shares.items() if found[1] > MAX_LONG_SHARE}
    if not hit:
        return []
    large = sum(share > MAX_LONG_SHARE_RANKED for _, share in hit.values())
    caps_at: Grade = "C" if 2 * large >= len(records) else "B"
    number, (count, share) = max(hit.items(), key=lambda item: item[1][1])
    what = f"{count} iterations of more than {_limit(records)} times the median took {share:.0%} of the time"
    where = f"round {number}" if len(hit) == 1 else f"{len(hit)} of {len(records)} rounds, the worst of them {number}"
    remedy = "See whether it compiles, allocates or waits now and then (`make profile`); a median does not show that."
    return [finding(caps_at, "LONG_ITERATIONS", f"{where}: {what}, {MAX_LONG_SHARE:.0%} allowed", remedy)]


def longest_ns(record: Measured) -> int:
    """The longest time in which a round got no further as its samples tell: a sample, one of the warm-up as well, or
    what its samples leave out of a block; a block where nothing shorter is timed."""
    if not record.latency_ns:
        return max(block.wall_ns for block in record.blocks)
    between = (block_ns - sum(samples) for samples, block_ns in _by_block(record))
    return max(*record.latency_ns, *record.warmup_ns, *between)


def _limit(records: Sequence[Measured]) -> int:
    return LONG if records[0].latency_ns else LONG_BLOCK


def _over(record: Measured, depth: int) -> str | None:
    wall_ns, window = typical.wall_ns(record), record.cpu_use
    if window is not None and wall_ns > window.wall_ns:
        return f"its blocks took {wall_ns / 1e9:.3f} s in a window of {window.wall_ns / 1e9:.3f} s"
    if not record.latency_ns:
        return None
    if sum(block.iterations for block in record.blocks) != len(record.latency_ns):
        return f"{typical.batches(record)} iterations in its blocks and {len(record.latency_ns)} samples"
    for samples, block_ns in _by_block(record):
        if sum(samples[depth - 1 :]) > depth * block_ns:
            times = f"{sum(samples) / 1e9:.3f} s of samples in a block of {block_ns / 1e9:.3f} s"
            return f"{times} with {depth} in flight: samples are longer than the time in which they were taken"
    return None


def _under(record: Measured, depth: int) -> str | None:
    if not record.latency_ns:
        return None
    covered = sum(sum(samples) + (depth - 1) * samples[-1] for samples, _ in _by_block(record) if samples)
    whole = depth * typical.wall_ns(record)
    if covered >= MIN_SAMPLED_SHARE * whole - depth * MAX_BETWEEN_NS * len(record.latency_ns):
        return None
    return f"its samples cover {covered / whole:.0%} of the wall time of its blocks, {MIN_SAMPLED_SHARE:.0%} needed"


def _long(record: Measured) -> tuple[int, float]:
    """(number of long iterations, their share of the time); of blocks in offline mode, which times nothing shorter."""
    times: Sequence[float] = record.latency_ns or [block.wall_ns / block.iterations for block in record.blocks]
    weights = [1] * len(times) if record.latency_ns else [block.iterations for block in record.blocks]
    limit = _limit([record]) * stats.median(times)
    long = [(time, weight) for time, weight in zip(times, weights, strict=True) if time > limit]
    whole = sum(time * weight for time, weight in zip(times, weights, strict=True))
    return sum(weight for _, weight in long), sum(time * weight for time, weight in long) / whole if whole else 0.0


def _by_block(record: Measured) -> Iterator[tuple[tuple[int, ...], int]]:
    """(samples of a block, its wall time)."""
    ends = accumulate((block.iterations for block in record.blocks), initial=0)
    for (first, last), block in zip(pairwise(ends), record.blocks, strict=True):
        yield record.latency_ns[first:last], block.wall_ns
