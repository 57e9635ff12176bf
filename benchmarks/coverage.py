"""How often a 95% interval holds the true value, by simulation with the project's own functions: docs/speed.md.

    .venv/bin/python -m benchmarks.coverage

Process medians scatter as benchmarks/false_alarms.py draws them, and the truth is the median over all processes. In
rows at two speeds, half and half, each value between the two is one: the worst of the edges and the middle counts.
Within a process, iterations are AR(1) with 1% noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special
from scipy.signal import lfilter
from tabulate import tabulate

from benchmarks.false_alarms import KINDS, SPEED_GAP, SPEED_SCATTER, Draw
from harness.aggregation import flags
from harness.aggregation.more_rounds import is_wide
from harness.core.schemas import Interval, Measurement
from harness.statistics import estimators
from harness.statistics.ratios import ratio_of_medians

Array = np.ndarray[Any, np.dtype[np.float64]]

TRIALS, SPREAD, SAMPLES = 4_000, 0.01, 400
ROUNDS = (2, 3, 4, 5, 6, 7, 8, 10, 20)

HALF = "all rows at two speeds, 50:50"
ALIKE = (
    "normal, 1%",
    "log-normal, 15%",
    "skewed, exponential 2%",
    HALF,
    "all rows at two speeds, 70:30",
    "all rows at two speeds, 90:10",
    "rounds correlate by 0.5",
)
"""Kinds of which every row scatters alike."""

EDGE = 3 * SPEED_SCATTER
HALVES = (EDGE, math.log1p(SPEED_GAP) / 2, math.log1p(SPEED_GAP) - EDGE)
"""Logarithms between the two speeds: the edge of the fast group, the middle, the edge of the slow one."""


def main() -> None:
    rng = np.random.default_rng(20261127)
    print("# Median over processes\n")
    headers = ["process medians", *map(str, ROUNDS), "median outside"]
    _show(headers, [_median_line(name, estimators.median_interval, rng) for name in ALIKE])
    print("\n# The same by t on logarithms\n")
    _show(headers, [_median_line(name, estimators.log_t_interval, rng) for name in ALIKE])
    print("\n# Ratio of two medians (MOVER), both of the same distribution\n")
    _show(headers[:-1], [_ratio_line(name, rng) for name in ALIKE])
    print("\n# One process's iterations against several processes\n")
    headers = ["lag-1 autocorrelation", "t over raw iterations", "t over 20 block medians", "5 processes"]
    _show(headers, [[f"{rho:g}", *_one_process(rho, rng)] for rho in (0.0, 0.9, 0.99)])
    print("\n# Percentiles: coverage / bias; in brackets where they are withheld\n")
    _show(["processes × samples", "lag-1", "p50", *QUANTILES], [_percentile_line(*shape, rng) for shape in SHAPES])
    print("\n# Further rounds until the interval is narrow: coverage\n")
    targets = (0.02, 0.01, 0.005)
    headers = ["planned rounds", *(f"±{target:.1%}" for target in targets)]
    _show(headers, [[f"{planned}", *(_further(planned, target, rng) for target in targets)] for planned in (3, 5)])
    print("\n# DRIFT: share of rows called drifting, by the change from the first round to the last\n")
    drifts = (0.0, 0.1, 0.2, 0.5)
    headers = ["scatter", "rounds", *(f"{drift:.0%}" for drift in drifts)]
    cells = [(scatter, rounds) for scatter in (0.01, 0.03, 0.1) for rounds in (3, 5, 10)]
    _show(headers, [[f"{s:.0%}", f"{n}", *(_drift(s, n, drift, rng) for drift in drifts)] for s, n in cells])
    print("\n# TWO_SPEEDS: share of rows flagged\n")
    counts = (5, 6, 8, 10, 20)
    lines = [[name, *(_flagged(draw, count, rng) for count in counts)] for name, draw in SPEEDS.items()]
    _show(["process medians", *map(str, counts)], lines)


def _show(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    print(tabulate(lines, headers, tablefmt="github", disable_numparse=True), flush=True)


def _median_line(
    name: str, method: Callable[[Sequence[float]], Interval | None], rng: np.random.Generator
) -> list[str]:
    """Coverage of the true median by number of processes; how often the sample's median lies outside at all."""
    shares, outside, shown = [], 0, 0
    truths = HALVES if name == HALF else (_true_median(name),)
    for count in ROUNDS:
        held = np.zeros(len(truths))
        for values in np.exp(KINDS[name](rng, TRIALS, count)).tolist():
            result, centre = method(values), estimators.median(values)
            if result is None:
                continue
            held += [result.low <= math.exp(truth) <= result.high for truth in truths]
            # The rounding of a logarithm and back is no contradiction that a reader sees.
            outside += not result.low * (1 - 1e-12) <= centre <= result.high * (1 + 1e-12)
            shown += 1
        shares.append(f"{held.min() / TRIALS:.1%}")
    return [name, *shares, f"{outside / shown:.1%}"]


def _ratio_line(name: str, rng: np.random.Generator) -> list[str]:
    shares = []
    for count in ROUNDS:
        runs = (np.exp(KINDS[name](rng, TRIALS, count)).tolist() for _ in range(2))
        ratios = [ratio_of_medians(over, under) for over, under in zip(*runs, strict=True)]
        ends = [ratio.ci95 for ratio in ratios if ratio and ratio.ci95]
        shares.append(f"{sum(end.low <= 1 <= end.high for end in ends) / TRIALS:.1%}")
    return [name, *shares]


def _true_median(name: str) -> float:
    """On logarithms; 0 for what is symmetric."""
    shares = {"all rows at two speeds, 70:30": 0.7, "all rows at two speeds, 90:10": 0.9}
    if name in shares:
        return SPEED_SCATTER * float(special.ndtri(0.5 / shares[name]))
    return math.log1p(0.02 * math.log(2)) if name.startswith("skewed") else 0.0


def _one_process(rho: float, rng: np.random.Generator) -> list[str]:
    """Coverage of the true median by one process's iterations, its blocks, and by five processes."""
    raw = blocks = processes = 0
    trials = 600
    for _ in range(trials):
        runs = np.exp(rng.normal(0, SPREAD, (5, 1))) * (1 + SPREAD * _ar1(rho, (5, SAMPLES * 10), rng))
        first = runs[0]
        raw += _holds(first, 1.0)
        blocks += _holds(np.median(first.reshape(20, -1), axis=1), 1.0)
        result = estimators.median_interval([float(np.median(run)) for run in runs])
        processes += result is not None and result.low <= 1.0 <= result.high
    return [f"{count / trials:.1%}" for count in (raw, blocks, processes)]


QUANTILES = {"p90": 0.90, "p95": 0.95, "p99": 0.99}
COUNTS = ((3, 250), (3, 700), (5, 133), (5, 250), (5, 700), (10, 67))
SHAPES = [(count, samples, rho) for count, samples in COUNTS for rho in (0.0, 0.9)]


def _percentile_line(processes: int, samples: int, rho: float, rng: np.random.Generator) -> list[str]:
    """Of the percentile of the middle process, by its process percentiles; processes 1% apart, noise 1% inside."""
    trials = 1_000
    offsets = np.exp(rng.normal(0, SPREAD, (trials, processes, 1)))
    runs = offsets * (1 + SPREAD * _ar1(rho, (trials, processes, samples), rng))
    cells = []
    for quantile in (0.5, *QUANTILES.values()):
        truth = 1 + SPREAD * float(special.ndtri(quantile))
        result = [[estimators.percentile(values, quantile) for values in run] for run in runs]
        ends = [interval for values in result if (interval := estimators.median_interval(values)) is not None]
        held = sum(end.low <= truth <= end.high for end in ends) / trials
        bias = float(np.median([estimators.median(values) for values in result])) / truth - 1
        said = f"{held:.0%} / {bias:+.2%}"
        cells.append(said if estimators.process_percentiles(list(runs[0]), quantile) else f"({said})")
    return [f"{processes} × {samples}", f"{rho:g}", *cells]


def _further(planned: int, target: float, rng: np.random.Generator) -> str:
    """Coverage where rounds are added until the interval is within the target, at most 20; processes 1% apart."""
    settings = Measurement(rounds=planned, max_rounds=20, target_interval=target)
    held = 0
    for values in np.exp(rng.normal(0, SPREAD, (TRIALS, 20))).tolist():
        count = planned
        while count < 20 and is_wide(values[:count], settings):
            count += 1
        result = estimators.median_interval(values[:count])
        held += result is not None and result.low <= 1 <= result.high
    return f"{held / TRIALS:.1%}"


def _drift(scatter: float, rounds: int, change: float, rng: np.random.Generator) -> str:
    line = np.linspace(0, math.log1p(change), rounds)
    trends = [estimators.trend(values) for values in np.exp(line + rng.normal(0, scatter, (TRIALS, rounds))).tolist()]
    return f"{sum(trend is not None and abs(trend) > flags.MAX_DRIFT for trend in trends) / TRIALS:.1%}"


def _scattered(scatter: float) -> Draw:
    return lambda rng, rows, rounds: rng.normal(0, scatter, (rows, rounds))


def _at_two_speeds(gap: float, scatter: float) -> Draw:
    """Half of the processes are slow; only rows with two or more of each."""

    def draw(rng: np.random.Generator, rows: int, rounds: int) -> Array:
        slow = rng.random((rows, rounds)) < 0.5
        short = np.minimum(slow.sum(axis=1), rounds - slow.sum(axis=1)) < 2
        slow[short, :2], slow[short, 2:] = True, False
        return np.where(slow, math.log1p(gap), 0.0) + rng.normal(0, scatter, (rows, rounds))

    return draw


SPEEDS: dict[str, Draw] = {
    "one speed: normal, 1%": _scattered(0.01),
    "one speed: log-normal, 5%": _scattered(0.05),
    "one speed: log-normal, 15%": _scattered(0.15),
    "one speed: log-normal, 30%": _scattered(0.3),
    "one speed: skewed, exponential 20%": lambda rng, rows, rounds: np.log1p(0.2 * rng.exponential(1, (rows, rounds))),
    "two speeds, gap 38%, scatter 0.3%": _at_two_speeds(0.38, 0.003),
    "two speeds, gap 38%, scatter 3%": _at_two_speeds(0.38, 0.03),
    "two speeds, gap 10%, scatter 1%": _at_two_speeds(0.10, 0.01),
}


def _flagged(draw: Draw, rounds: int, rng: np.random.Generator) -> str:
    result = [estimators.two_speeds(values) for values in np.exp(draw(rng, TRIALS, rounds)).tolist()]
    return f"{sum(entry is not None for entry in result) / TRIALS:.1%}"


def _ar1(rho: float, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Variance 1, neighbours along the last axis correlate by rho."""
    shocks = rng.normal(size=shape) * math.sqrt(1 - rho**2)
    shocks[..., 0] = rng.normal(size=shape[:-1])
    return np.asarray(lfilter([1], [1, -rho], shocks, axis=-1))


def _holds(values: Array, truth: float) -> bool:
    """True where the ordinary 95% t interval over values holds the truth."""
    half = estimators.t_critical(len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return bool(abs(values.mean() - truth) <= half)


if __name__ == "__main__":
    main()
