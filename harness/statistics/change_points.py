"""Change points in a history of runs: where a series of measurements begins to have another level (pure).

A point is one run: the logarithm of its latency, and the variance of that value within the run. Between runs of the
same code there is a variance of its own, so a run with a narrow interval is not a precise point (random effects).

The statistic of a split is Welch's t between the runs before and after it, with the variance of each side moderated by
that of both (Smyth, Statistical Applications in Genetics 3, 2004): two or three new runs would otherwise have almost no
degrees of freedom. The statistic of a series is the largest over its splits. Its p comes from permutations of whole
runs, so it needs no distribution, and looking at every split is accounted for. More change points come from binary
segmentation (Scott and Knott, Biometrics 30, 1974). Over the series of one night, Benjamini and
Hochberg (JRSS B 57, 1995) bound the false alarms.

A change of machine, driver or library is a known boundary: no split is looked for across it.

Permutations need runs that are exchangeable. What all series of a machine show together is corrected (MachineNoise):
runs that correlate with the next one, by the variance of the mean of an autoregressive series (Priestley, Spectral
Analysis and Time Series, 1981, 5.3), and restless runs, by scaling. docs/history.md has the rates with and without.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from harness.core.parallel import map_forked
from harness.statistics.significance import benjamini_hochberg, t_quantile

Floats = NDArray[np.float64]

LEAST_SIDE = 3
"""Fewest runs before and after a split: with fewer, one outlier is a level."""

PRIOR_DF = 8.0
"""Weight of the common variance in the variance of a side, in degrees of freedom."""

ALPHA = 0.03
"""Accepted rate of nights with a false alarm, over all series. Below the 5% that the history promises, because runs are
not quite exchangeable (benchmarks/change_points.py)."""

POWER = 0.975
LATER_RUNS = 5
"""The smallest visible shift is found within so many runs after it with a probability of 90%: of POWER, if the scatter
were known; it is estimated (rates: benchmarks/change_points.py)."""

MOST_PERMUTATIONS = 19_999
FIRST_BATCH, LARGEST_BATCH = 50, 2_000
ENOUGH_EXCEEDED = 20
"""Permutations end early after so many statistics at least as large (Besag and Clifford, Biometrika 78, 1991)."""

GATE = 2.5
"""Standard errors from which a correlation of a machine's runs counts; for each restless run, of which there may be as
many as runs, 1.6 times as many."""

LEAST_POOL = 10
"""Fewest series of a machine from which its correlation and its restless runs are estimated."""

WINDOW = 200
"""Longest stretch that is tested at once: older runs of a segment are left out."""


@dataclass(frozen=True)
class ChangePoint:
    """The most likely change point of a stretch. at: index of the first run after it. p: permutation p of the stretch.

    shift: ratio of the levels after / before, with its 95% interval. trend: True where a straight line fits better than
    one step: a drift.
    """

    at: int
    p: float
    shift: float
    low: float
    high: float
    trend: bool


def largest_split(
    values: Sequence[float],
    within: Sequence[float],
    seed: int = 0,
    scales: Sequence[float] | None = None,
    correlation: float = 0.0,
) -> ChangePoint | None:
    """The most likely split of a stretch without known boundaries.

    values: positive, one per run (a latency), in order. within: variance of log(value) inside each run, 0 where it is
    unknown. scales: known scatter of each run, relative to the others. correlation: of each run with the next. None
    with fewer than 2 LEAST_SIDE runs, or where all values are equal.
    """
    first = max(0, len(values) - WINDOW)
    logs = np.log(np.asarray(values[first:], dtype=np.float64))
    logs -= logs.mean()  # squares of small differences keep their digits
    if logs.size < 2 * LEAST_SIDE or float(np.ptp(logs)) == 0:
        return None
    scale = np.ones(logs.size) if scales is None else np.asarray(scales[first:], dtype=np.float64)
    logs -= np.average(logs, weights=scale**-2)
    own = _weights(logs / scale, np.asarray(within[first:], dtype=np.float64))
    weights = own / scale**2
    scores = split_scores(logs[None, :], weights[None, :], correlation)[0]
    place = int(np.argmax(scores))
    p = _permutation_p(logs / scale, own, scale, float(scores[place]), np.random.default_rng(seed))
    at = place + LEAST_SIDE
    shift, half = _shift(logs, weights, at, correlation)
    return ChangePoint(
        at=first + at,
        p=p,
        shift=math.exp(shift),
        low=math.exp(shift - half),
        high=math.exp(shift + half),
        trend=_is_trend(logs, at),
    )


def segments(length: int, boundaries: Sequence[int]) -> list[tuple[int, int]]:
    """(first, after the last) of the stretches between known boundaries; each boundary is the first index after it."""
    ends = [0, *sorted({place for place in boundaries if 0 < place < length}), length]
    return [(low, high) for low, high in pairwise(ends) if high > low]


@dataclass(frozen=True)
class RunSeries:
    """A series of one case on one machine. values, within: as in largest_split. boundaries: known ones, as first
    indices after each. machine: its key. runs: their ids, which series of one machine share."""

    values: Sequence[float]
    within: Sequence[float]
    boundaries: Sequence[int] = ()
    machine: str = ""
    runs: Sequence[str] = ()


@dataclass(frozen=True)
class MachineNoise:
    """What all series of a machine show together, where it is more than chance.

    correlation: of each run with the next, never negative. scales: by id of a restless run, its scatter relative to
    that of the median run, above 1.
    """

    correlation: float = 0.0
    scales: Mapping[str, float] = field(default_factory=dict)


def noise_of(series: Sequence[RunSeries]) -> MachineNoise:
    """The noise of one machine, from the stretches of its series. No step, drift or outlier in some series moves it.

    The correlation of a series is (median |x[t+2] - x[t]| / median |x[t+1] - x[t]|)² - 1, which is that of the first
    order of an autoregressive series. The restlessness of a run is its distance from the median of three neighbours.
    """
    stretches = [
        (np.log(np.asarray(case.values[low:high], dtype=np.float64)), case.runs[low:high])
        for case in series
        for low, high in segments(len(case.values), case.boundaries)
        if high - low >= 2 * LEAST_SIDE
    ]
    if len(stretches) < LEAST_POOL:
        return MachineNoise()
    return MachineNoise(_correlation([logs for logs, _ in stretches]), _restless(stretches))


def _correlation(stretches: Sequence[Floats]) -> float:
    correlations = []
    for logs in stretches:
        near, far = np.median(np.abs(np.diff(logs))), np.median(np.abs(logs[2:] - logs[:-2]))
        if near > 0:
            correlations.append((float(far) / float(near)) ** 2 - 1)
    if len(correlations) < LEAST_POOL:
        return 0.0
    # Simulated: the standard deviation over independent series of n runs is 3.0 / √n; of a median, 1.25 times over √m.
    error = 1.25 * 3.0 / math.sqrt(len(correlations) * float(np.median([logs.size for logs in stretches])))
    middle = float(np.median(correlations))
    return min(middle, 0.9) if middle > GATE * error else 0.0


def _restless(stretches: Sequence[tuple[Floats, Sequence[str]]]) -> dict[str, float]:
    distances: dict[str, list[float]] = {}
    for logs, runs in stretches:
        middle = np.median(np.lib.stride_tricks.sliding_window_view(logs, 3), axis=1)
        away = np.abs(logs - np.concatenate((middle[:1], middle, middle[-1:])))
        if (mean := float(away.mean())) > 0:
            for run, distance in zip(runs, away / mean, strict=False):
                distances.setdefault(run, []).append(min(float(distance), 5.0))  # one outlier is not a restless machine
    means = {run: float(np.mean(own)) for run, own in distances.items() if len(own) >= LEAST_POOL}
    typical = float(np.median(list(means.values()))) if means else 0.0
    if typical == 0:
        return {}
    # Simulated: the standard deviation of a run's distance over independent series is 1.1 times its mean.
    return {
        run: mean / typical
        for run, mean in means.items()
        if mean / typical > 1 + 1.6 * GATE * 1.1 / math.sqrt(len(distances[run]))
    }


def mean_inflation(size: float, correlation: float) -> float:
    """Variance of the mean of `size` runs with this correlation of the first order, relative to independent ones."""
    lags = np.arange(1, int(size))
    return 1 + 2 * float(np.sum((1 - lags / size) * correlation**lags))


AT_ONCE = 2_000
"""Stretches that one process looks at before it takes the next: a history of large runs has 100,000."""


def changes_of_a_night(series: Sequence[RunSeries], seed: int = 0) -> list[list[ChangePoint]]:
    """The change points of each series, in order of place, with the noise of each machine (noise_of).

    Level by level: every open stretch gives its most likely split; those that Benjamini and Hochberg's rule rejects
    together are change points, and the stretches on both sides of each are open in the next level.
    """
    changes: list[list[ChangePoint]] = [[] for _ in series]
    noises = noises_of(series)
    scales = [[noises[case.machine].scales.get(run, 1.0) for run in case.runs] or None for case in series]
    stretches = [
        (number, low, high)
        for number, case in enumerate(series)
        for low, high in segments(len(case.values), case.boundaries)
    ]

    def found_in(part: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int, ChangePoint]]:
        splits = []
        for number, low, high in part:
            case, own = series[number], scales[number]
            split = largest_split(
                case.values[low:high],
                case.within[low:high],
                seed,
                None if own is None else own[low:high],
                noises[case.machine].correlation,
            )
            if split is not None:
                splits.append((number, low, high, split))
        return splits

    while stretches:
        parts = [stretches[at : at + AT_ONCE] for at in range(0, len(stretches), AT_ONCE)]
        splits = list(chain.from_iterable(map_forked(found_in, parts)))
        rejected = benjamini_hochberg([split.p for *_, split in splits], ALPHA)
        stretches = []
        for (number, low, high, split), is_change in zip(splits, rejected, strict=True):
            if is_change:
                at = low + split.at
                changes[number].append(ChangePoint(at, split.p, split.shift, split.low, split.high, split.trend))
                stretches += [(number, low, at), (number, at, high)]
    return [sorted(splits, key=lambda split: split.at) for splits in changes]


def noises_of(series: Sequence[RunSeries]) -> dict[str, MachineNoise]:
    """The noise of each machine."""
    machines = dict.fromkeys(case.machine for case in series)
    return {machine: noise_of([case for case in series if case.machine == machine]) for machine in machines}


def smallest_visible_shift(values: Sequence[float], series: int = 1, correlation: float = 0.0) -> float | None:
    """The smallest shift, as a share, that is found in nine of ten cases within LATER_RUNS runs after the last one.

    values: of the latest stretch. series: number of series of the night. correlation: as in largest_split. None where
    the runs have too few orders for any shift to reach the level of a single series of the night. From Welch's t with a
    level corrected for the night and the splits (Bonferroni); benchmarks/change_points.py has the simulated rates.
    """
    logs = np.log(np.asarray(values[-WINDOW:], dtype=np.float64))
    # The later runs at the end, or all of them at the beginning: two orders have the largest statistic.
    least_p = 2 / math.comb(logs.size + LATER_RUNS, LATER_RUNS)
    allowed = ALPHA / max(1, series)
    if logs.size < LEAST_SIDE or least_p > allowed:
        return None
    # Where few orders are allowed to be as extreme, the shift must beat nearly all of them (fitted to simulations).
    coarse = math.sqrt(1 + 2 * least_p / allowed)
    scatter = _typical_scatter(logs)
    freedom = logs.size - 1 + PRIOR_DF
    level = ALPHA / max(1, series) / (2 * max(1, logs.size))
    critical = t_quantile(freedom, 1 - level) + t_quantile(freedom, POWER)
    before, after = (mean_inflation(size, correlation) / size for size in (logs.size, LATER_RUNS))
    scatter /= math.sqrt(1 - correlation)
    return math.expm1(coarse * critical * scatter * math.sqrt(before + after))


def _typical_scatter(logs: Floats) -> float:
    """Standard deviation from differences of neighbours, which a shift hardly widens (von Neumann)."""
    return float(np.sqrt(np.sum(np.diff(logs) ** 2) / (2 * (logs.size - 1))))


def _weights(logs: Floats, within: Floats) -> Floats:
    """1 / (between-run variance + variance inside the run): a run with a wide interval counts less.

    The between-run variance is what all runs together have beyond the variances inside (at least a tenth). It does not
    depend on their order, or the permutations would not be exchangeable with the order that was observed.
    """
    total = float(np.var(logs, ddof=1))
    between = max(total - float(np.mean(within)), 0.1 * total, 1e-18)
    weights = 1 / (between + within)
    return weights / float(np.mean(weights))


def split_scores(logs: Floats, weights: Floats, correlation: float = 0.0) -> Floats:
    """|t| of every split of every row (permutations × splits): Welch's t with moderated variances.

    correlation: of each run with the next, which makes the means of both sides less certain.
    """
    count = logs.shape[1]
    left = np.arange(LEAST_SIDE, count - LEAST_SIDE + 1)
    sums = [np.cumsum(weights * logs**power, axis=1) for power in (0, 1, 2)]
    sides = [[total[:, left - 1] for total in sums]]
    sides.append([total[:, -1:] - part for total, part in zip(sums, sides[0], strict=True)])
    squares = [np.maximum(square - total**2 / weight, 0) for weight, total, square in sides]
    common = (squares[0] + squares[1]) / (count - 2)
    error = np.full_like(common, 1e-300)
    for (weight, _, _), square, size in zip(sides, squares, (left, count - left), strict=True):
        inflation = np.array([mean_inflation(number, correlation) for number in size]) if correlation else 1.0
        error += inflation * (PRIOR_DF * common + square) / (PRIOR_DF + size - 1) / weight
    scores: Floats = np.abs(sides[1][1] / sides[1][0] - sides[0][1] / sides[0][0]) / np.sqrt(error)
    return scores


def _permutation_p(logs: Floats, weights: Floats, scale: Floats, observed: float, chance: np.random.Generator) -> float:
    """Share of the orders of the runs whose largest score is at least the observed one.

    logs, weights: without the scale of each run, which keeps its place while the runs are permuted.
    """
    exceeded = done = 0
    while done < MOST_PERMUTATIONS:
        batch = min(done + FIRST_BATCH, LARGEST_BATCH, MOST_PERMUTATIONS - done)
        orders = chance.permuted(np.tile(np.arange(logs.size), (batch, 1)), axis=1)
        largest = split_scores(logs[orders] * scale, weights[orders] / scale**2).max(axis=1)
        exceeded += int(np.sum(largest >= observed - 1e-9))
        done += batch
        if exceeded >= ENOUGH_EXCEEDED:
            break
    return (exceeded + 1) / (done + 1)


def _shift(logs: Floats, weights: Floats, at: int, correlation: float = 0.0) -> tuple[float, float]:
    """(difference of the levels of the logarithms, half-width of its 95% interval) at a given split."""
    means, errors, freedoms = [], [], []
    for part, own in ((logs[:at], weights[:at]), (logs[at:], weights[at:])):
        mean = float(np.average(part, weights=own))
        square = float(np.sum(own * (part - mean) ** 2))
        means.append(mean)
        errors.append(mean_inflation(part.size, correlation) * square / (part.size - 1) / float(np.sum(own)))
        freedoms.append(part.size - 1)
    total = math.fsum(errors)
    if total == 0:
        return means[1] - means[0], 0.0
    freedom = total**2 / math.fsum(error**2 / df for error, df in zip(errors, freedoms, strict=True))
    return means[1] - means[0], t_quantile(freedom, 0.975) * math.sqrt(total)


def _is_trend(logs: Floats, at: int) -> bool:
    """Whether a straight line leaves less than one step does; both have two levels to fit, and the step its place."""
    place = np.arange(logs.size, dtype=np.float64)
    slope, level = np.polyfit(place, logs, 1)
    line = float(np.sum((logs - slope * place - level) ** 2))
    step = float(np.sum((logs[:at] - logs[:at].mean()) ** 2) + np.sum((logs[at:] - logs[at:].mean()) ** 2))
    return line < step
