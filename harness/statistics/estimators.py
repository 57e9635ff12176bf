"""Estimators and intervals: pure functions over samples, each with the source of its formula.

The replication unit is the process, not the iteration: iterations of one process share its memory layout, its thread
placement and the machine's state, so an interval over them is far too narrow (docs/decisions/0003-intervals.md).

Written without SciPy: the measuring process stops by these rules, and an interpreter with TensorRT may have only NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.core.schemas import Block, Interval

CONFIDENCE = 0.95
"""Confidence of every interval that is reported."""

PERCENTILE_ESTIMATOR = "Hyndman-Fan type 8"
"""Approximately median-unbiased for any distribution, and recommended by Hyndman and Fan (The American Statistician
50(4), 1996). NumPy's default, type 7, estimates tails of small samples too low. For the median both are the same."""

P90_MIN_SAMPLES = 64
P95_MIN_SAMPLES = 130
P99_MIN_SAMPLES = 662
"""Fewest samples for which a percentile is shown: MLPerf LoadGen's early stopping at 99% confidence, which withholds an
estimate until one sample may lie above it: the smallest n with P[Binomial(n, 1 - quantile) <= 1] < 1%
(mlcommons/inference, loadgen/early_stopping.cc and results.cc; 64 for p90 and 662 for p99 are LoadGen's own, 130 for
p95 follows from the same rule)."""

PERCENTILE_MIN_SAMPLES = {0.90: P90_MIN_SAMPLES, 0.95: P95_MIN_SAMPLES, 0.99: P99_MIN_SAMPLES}

MIN_BLOCKS = 3
"""With fewer blocks a t interval has at most one degree of freedom and is useless as a stop rule."""


def percentile(samples: ArrayLike, quantile: float) -> float:
    """A percentile by PERCENTILE_ESTIMATOR; the quantile is in [0, 1]."""
    return float(_sorted_percentile(np.sort(np.asarray(samples, dtype=np.float64)), quantile))


def process_percentiles(processes: Sequence[ArrayLike], quantile: float) -> tuple[float, ...] | None:
    """One percentile of each process's samples; a row shows the median of these, as it does of the process medians.

    So each process counts once, whatever its number of samples, and no percentile lies below a lower percentile or the
    headline. None where they have too few samples (are_enough).
    """
    values = [np.asarray(samples, dtype=np.float64) for samples in processes]
    if not are_enough([len(samples) for samples in values], quantile):
        return None
    return tuple(percentile(samples, quantile) for samples in values)


def are_enough(sizes: Sequence[int], quantile: float) -> bool:
    """Whether processes with so many samples show a percentile: PERCENTILE_MIN_SAMPLES together, and least_in_process
    each."""
    return sum(sizes) >= PERCENTILE_MIN_SAMPLES.get(quantile, 1) and min(sizes) >= least_in_process(quantile)


class ProcessFigures(NamedTuple):
    """Statistics of the samples of one process.

    size: their number. percentiles: by quantile, those of PERCENTILE_MIN_SAMPLES. variation: standard deviation divided
    by the mean; None for one sample, or where all are 0.
    """

    size: int
    median: float
    mean: float
    iqr: float
    largest: float
    percentiles: Mapping[float, float]
    variation: float | None
    lag1_autocorrelation: float | None


def process_figures(processes: Sequence[ArrayLike]) -> list[ProcessFigures]:
    """All figures of each process, of those with equally many samples at once: calls of NumPy cost more than its work
    on a few hundred samples."""
    arrays = [np.asarray(samples, dtype=np.float64) for samples in processes]
    places: dict[int, list[int]] = {}
    for place, samples in enumerate(arrays):
        places.setdefault(len(samples), []).append(place)
    figures: dict[int, ProcessFigures] = {}
    for alike in places.values():
        figures.update(zip(alike, _figures(np.stack([arrays[place] for place in alike])), strict=True))
    return [figures[place] for place in range(len(arrays))]


def _figures(values: NDArray[np.float64]) -> Iterator[ProcessFigures]:
    """The figures of each line of an array, which is sorted in place."""
    count = values.shape[1]
    means = np.add.reduce(values, axis=1) / count
    centred = values - means[:, np.newaxis]
    powers = np.add.reduce(centred * centred, axis=1)
    values.sort(axis=1)
    correlations = _lag1(centred, powers, np.maximum(np.abs(values[:, 0]), np.abs(values[:, -1])))
    iqrs = _sorted_percentile(values, 0.75) - _sorted_percentile(values, 0.25)
    tails = np.stack([_sorted_percentile(values, quantile) for quantile in PERCENTILE_MIN_SAMPLES], axis=1)
    spreads = np.sqrt(powers / max(1, count - 1))
    columns = (_middle(values), means, iqrs, values[:, -1], tails, spreads)
    for (middle, mean, iqr, largest, of_tails, spread), correlation in zip(
        zip(*(column.tolist() for column in columns), strict=True), correlations, strict=True
    ):
        yield ProcessFigures(
            size=count,
            median=middle,
            mean=mean,
            iqr=iqr,
            largest=largest,
            percentiles=dict(zip(PERCENTILE_MIN_SAMPLES, of_tails, strict=True)),
            variation=spread / mean if count > 1 and mean > 0 else None,
            lag1_autocorrelation=correlation,
        )


@cache
def least_in_process(quantile: float) -> int:
    """Fewest samples of each process for a percentile: a third of PERCENTILE_MIN_SAMPLES, as for three equal processes.

    With fewer, and similar neighbouring samples, a process has seen too little of its own tail, and its percentile is
    too low (docs/decisions/0003-intervals.md, with simulated coverage).
    """
    return math.ceil(PERCENTILE_MIN_SAMPLES.get(quantile, 1) / 3)


def _sorted_percentile(ordered: NDArray[np.float64], quantile: float) -> NDArray[np.float64]:
    """Type 8, of samples in ascending order along the last axis: position (n + 1/3) q + 1/3, counted from 1, between
    the two nearest samples.

    Written out because np.quantile spends more time on choosing its method than on a few hundred samples.
    """
    below, above, share = _between(ordered.shape[-1], quantile)
    low, high = ordered[..., below - 1], ordered[..., above - 1]
    with np.errstate(invalid="ignore"):  # with infinite samples, 0 * inf and inf - inf are no numbers
        between = low + share * (high - low)
    return np.where((low == high) | (share == 0), low, between)


@cache
def _between(count: int, quantile: float) -> tuple[int, int, float]:
    """The two nearest of so many samples, counted from 1, and the share of the way from one to the other."""
    position = (count + 1 / 3) * quantile + 1 / 3
    below = min(max(math.floor(position), 1), count)
    return below, min(below + 1, count), min(max(position - below, 0.0), 1.0)


def block_medians(latency_ns: ArrayLike, blocks: Sequence[Block]) -> list[float]:
    """Median of each stretch of the timed loop, in ns; samples beyond the blocks' iterations are left out."""
    values = np.array(latency_ns, dtype=np.float64)  # a copy: its parts are sorted in place
    medians: list[float] = []
    start = 0
    for block in blocks:
        part = values[start : start + block.iterations]
        start += block.iterations
        if count := len(part):
            part.sort()
            medians.append((part.item((count - 1) // 2) + part.item(count // 2)) / 2)
    return medians


def relative_half_width(block_medians: Sequence[float]) -> float | None:
    """Half-width of the 95% t interval over block medians, relative to their median: the stop rule of one process.

    Blocks of >= 100 ms absorb the correlation between neighbouring iterations (batch means, Law and Kelton). None with
    fewer than MIN_BLOCKS blocks, or where the median is 0.
    """
    count = len(block_medians)
    if count < MIN_BLOCKS:
        return None
    centre, mean = median(block_medians), math.fsum(block_medians) / count
    if centre <= 0:
        return None
    variance = math.fsum([(value - mean) ** 2 for value in block_medians]) / (count - 1)
    return t_critical(count - 1) * math.sqrt(variance / count) / centre


def _lag1(
    centred: NDArray[np.float64], powers: NDArray[np.float64], largest: NDArray[np.float64]
) -> list[float | None]:
    """Correlation of each sample with the next (Box and Jenkins' r1); None with < 3 samples or when all are equal.

    From the centred samples of each process, their sums of squares, and the largest before they were centred.
    """
    count = centred.shape[1]
    if count < 3:
        return [None] * len(centred)
    # Products of both signs cancel: the further digits keep the sum right to the digits of a file (DIGITS).
    products = np.add.reduce(centred[:, :-1] * centred[:, 1:], axis=1, dtype=np.longdouble).astype(np.float64)
    # When all values are equal, rounding in the mean leaves ~1e-16 of their size.
    differ = powers > count * (1e-12 * largest) ** 2
    correlations = np.divide(products, powers, out=np.zeros_like(products), where=differ)
    return [value if known else None for value, known in zip(correlations.tolist(), differ.tolist(), strict=True)]


FEW = 500
"""Values up to which Python sorts a list faster than NumPy makes an array of it."""


def median(values: ArrayLike) -> float:
    """The median of samples; of process medians it is the headline latency."""
    if isinstance(values, tuple | list) and len(values) <= FEW:
        ordered, half = sorted(values), len(values) // 2  # an array costs more than it saves
        return float(ordered[half]) if len(values) % 2 else (float(ordered[half - 1]) + float(ordered[half])) / 2
    return float(_middle(np.sort(np.asarray(values, dtype=np.float64))))


def _middle(ordered: NDArray[np.float64]) -> NDArray[np.float64]:
    """The median of values in ascending order along the last axis."""
    count = ordered.shape[-1]
    middle: NDArray[np.float64] = (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2
    return middle


def log_t_interval(values: Sequence[float]) -> Interval | None:
    """95% t interval on the logarithms of one positive value per process; None with fewer than two, or with any <= 0.

    Latencies are positive and skewed to the right, ratios are multiplicative: on logarithms both are near symmetric.
    """
    if len(values) < 2 or min(values) <= 0:
        return None
    logs = [math.log(value) for value in values]
    centre = math.fsum(logs) / len(logs)
    variance = math.fsum([(value - centre) ** 2 for value in logs]) / (len(logs) - 1)
    half = t_critical(len(logs) - 1) * math.sqrt(variance / len(logs))
    try:
        return Interval(low=math.exp(centre - half), high=math.exp(centre + half))
    except (OverflowError, ValueError):
        # Two processes orders of magnitude apart: the upper end is beyond a float: unknown.
        return None


def median_interval(process_medians: Sequence[float]) -> Interval | None:
    """95% interval of the median over processes, from one positive value per process; it contains the sample median.

    None with one process, with a value <= 0, and where an end is beyond a float. With 2 to 4 processes log_t_interval,
    which needs processes that scatter evenly: order statistics of so few do not reach far enough. From MIN_ORDERED on,
    order statistics, which need no shape of the distribution. Simulated coverage: docs/decisions/0003-intervals.md.
    """
    count = len(process_medians)
    if count < 2 or min(process_medians) <= 0:
        return None
    centre = median(process_medians)
    interval = log_t_interval(process_medians) if count < MIN_ORDERED else _ordered_interval(process_medians)
    if interval is None or interval.low <= centre <= interval.high:
        return interval
    # Taking logarithms and back may change equal values by one rounding.
    return Interval(low=min(interval.low, centre), high=max(interval.high, centre))


MIN_ORDERED = 5
"""Fewest processes whose smallest and largest value enclose the median well enough: with 93.75% for five."""


def _ordered_interval(values: Sequence[float]) -> Interval:
    """Order statistics around the median, interpolated between two pairs of them on logarithms.

    The pairs at depth d and d + 1 enclose the median with a probability above and below CONFIDENCE, by the binomial;
    Hettmansperger and Sheather (Statistics & Probability Letters 4, 1986) say how far between them the ends lie, for
    distributions without gaps. With a gap at the median (processes of two speeds, half and half) only 87% of such
    intervals enclose it. So here an end moves inwards from the outer order statistic by at most the span of the inner
    order statistics. For five values, whose extremes reach 93.75%, the ends are the extremes.
    """
    logs = np.sort(np.log(np.asarray(values, dtype=np.float64)))
    depth, inward = _depth(len(values))
    low, inner_low, inner_high, high = (logs[depth - 1], logs[depth], logs[-depth - 1], logs[-depth])
    span = inner_high - inner_low
    ends = low + min(inward * (inner_low - low), span), high - min(inward * (high - inner_high), span)
    return Interval(low=math.exp(ends[0]), high=math.exp(ends[1]))


@cache
def _depth(count: int) -> tuple[int, float]:
    """The outer pair of order statistics, counted from 1 at either end, and the share of the way to the next pair."""
    depth = 1
    while _enclosed(count, depth + 1) >= CONFIDENCE:
        depth += 1
    outer, inner = _enclosed(count, depth), _enclosed(count, depth + 1)
    part = max(0.0, (outer - CONFIDENCE) / (outer - inner))
    return depth, (count - depth) * part / (depth + (count - 2 * depth) * part)


def _enclosed(count: int, depth: int) -> float:
    """P that the true median lies between the order statistics at this depth: 1 - 2 P[Binomial(count, 1/2) < depth]."""
    below = sum(math.comb(count, number) for number in range(depth))
    return 1 - 2 * below / (1 << count)


def relative_interval_half_width(interval: Interval, centre: float) -> float:
    """Half-width, relative to the estimate, of the narrowest symmetric interval around the estimate that covers this.

    For a skewed interval it is the longer side: half of both sides together would be small although the estimate may be
    off by the whole interval.
    """
    return max(interval.high - centre, centre - interval.low) / centre


def difference_interval(first: float, first_ci95: Interval, second: float, second_ci95: Interval) -> Interval:
    """95% interval of the difference first - second of two independent estimates, from their own 95% intervals.

    MOVER, which takes each side's distance from its estimate as that side's error and so keeps their skew (Zou and
    Donner, Statistics in Medicine 27(10), 2008, equation 3). An estimate outside its own interval adds no error there.
    """
    difference = first - second
    below = math.hypot(max(first - first_ci95.low, 0), max(second_ci95.high - second, 0))
    above = math.hypot(max(first_ci95.high - first, 0), max(second - second_ci95.low, 0))
    return Interval(low=difference - below, high=difference + above)


@dataclass(frozen=True)
class TwoSpeeds:
    """Processes of one row in two groups: how many, and the median of each in the unit of the values."""

    fast: float
    slow: float
    fast_count: int
    slow_count: int


MIN_SPEED_GAP = 0.05
"""Relative distance of the two groups, from which on both are reported."""

SPEED_GAP = 6.0
"""The same in standard deviations inside the groups. Processes of one speed form such groups in 4% of rows of five and
2% of rows of six, whether they scatter by 5% or 30% (docs/speed.md)."""


def two_speeds(process_medians: Sequence[float]) -> TwoSpeeds | None:
    """Two groups of at least two processes, far apart for the scatter within them; None with fewer than MIN_ORDERED.

    The widest gap between neighbours on logarithms makes the groups; it must be beyond MIN_SPEED_GAP, and SPEED_GAP
    times the pooled standard deviation inside them.
    """
    count = len(process_medians)
    if count < MIN_ORDERED or min(process_medians) <= 0:
        return None
    ordered = np.sort(np.asarray(process_medians, dtype=np.float64))
    logs = np.log(ordered)
    gaps = np.diff(logs)
    at = 2 + int(np.argmax(gaps[1 : count - 2]))
    groups = logs[:at], logs[at:]
    within = math.sqrt(sum(float(np.sum((part - part.mean()) ** 2)) for part in groups) / (count - 2))
    if gaps[at - 1] <= max(math.log1p(MIN_SPEED_GAP), SPEED_GAP * within):
        return None
    return TwoSpeeds(median(ordered[:at]), median(ordered[at:]), at, count - at)


def trend(values: Sequence[float]) -> float | None:
    """Relative change from the first of some positive values to the last, along a line through their logarithms.

    None for fewer than three, for any <= 0, and where the slope is not significant: t test of a least-squares slope,
    two-sided at 5%.
    """
    degrees = len(values) - 2
    if degrees < 1 or min(values) <= 0:
        return None
    logs = [math.log(value) for value in values]
    centre, middle = math.fsum(logs) / len(logs), (len(logs) - 1) / 2
    places = [place - middle for place in range(len(logs))]
    spread = math.fsum(place * place for place in places)
    slope = math.fsum(place * log for place, log in zip(places, logs, strict=True)) / spread
    residual = math.fsum((log - centre - slope * place) ** 2 for place, log in zip(places, logs, strict=True))
    if abs(slope) * math.sqrt(spread * degrees) <= t_critical(degrees) * math.sqrt(residual):
        return None
    return math.expm1(slope * (len(values) - 1))


@cache
def t_critical(degrees_of_freedom: int, confidence: float = CONFIDENCE) -> float:
    """Two-sided critical value of Student's t, by bisection of its distribution."""
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _t_within(middle, degrees_of_freedom) < confidence else (low, middle)
    return math.sqrt(degrees_of_freedom) * math.tan(low)


def _t_within(angle: float, degrees_of_freedom: int) -> float:
    """P[|T| <= sqrt(v) tan(angle)] for a whole number v of degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4).

    Both are a sum of powers of the angle's cosine, each term a fraction of the previous: even powers for an even v,
    odd powers for an odd v.
    """
    odd = degrees_of_freedom % 2
    square = math.cos(angle) ** 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(odd, degrees_of_freedom - 1, 2):
        total += term
        term *= square * (power + 1) / (power + 2)
    partial = math.sin(angle) * total
    return (angle + partial) * 2 / math.pi if odd else partial
