"""How often a 95% interval holds the true latency, by simulation: the numbers of docs/decisions/0003-intervals.md.

    .venv/bin/python benchmarks/coverage.py

A process median is the truth times exp(offset), offset ~ N(0, 1%), and one slow process in ten in the skewed case. The
true value is the median over processes. Within a process, iterations are AR(1) with 1% noise.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.measure import order_statistics, stats

Array = np.ndarray[Any, np.dtype[np.float64]]

TRIALS, SPREAD, SAMPLES = 4_000, 0.01, 400
RESAMPLES = 1_000


def main() -> None:
    rng = np.random.default_rng(20261127)
    rows = []
    for rounds in (2, 3, 5, 10):
        medians = np.exp(rng.normal(0, SPREAD, (TRIALS, rounds)))
        skewed = medians * np.where(rng.random((TRIALS, rounds)) < 0.1, 1.03, 1.0)
        rows.append(
            [
                str(rounds),
                *(_share(medians, method, rng) for method in (_t_interval, _bootstrap)),
                *(_share(skewed, method, rng) for method in (_t_interval, _bootstrap)),
            ]
        )
    headers = ["processes", "t on logs", "bootstrap", "t on logs, 1 in 10 slow by 3%", "bootstrap, same"]
    print(tabulate(rows, headers, tablefmt="github", disable_numparse=True))
    print()
    lines = [[f"{rho:g}", *_one_process(rho, rng)] for rho in (0.0, 0.9, 0.99)]
    headers = ["lag-1 autocorrelation", "t over raw iterations", "t over 20 block medians", "5 processes, t on logs"]
    print(tabulate(lines, headers, tablefmt="github", disable_numparse=True))
    print()
    shapes = [(1, 1_000), (3, 250), (3, 700), (5, 700)]
    lines = [
        [f"{processes} × {samples}", f"{spread:.0%}", f"{rho:g}", *_percentiles(processes, samples, spread, rho, rng)]
        for processes, samples in shapes
        for spread in (0.0, SPREAD)
        for rho in (0.0, 0.9)
    ]
    headers = ["processes × samples", "spread between them", "lag-1", *order_statistics.QUANTILES]
    print(tabulate(lines, headers, tablefmt="github", disable_numparse=True))


def _percentiles(processes: int, samples: int, spread: float, rho: float, rng: np.random.Generator) -> list[str]:
    """By percentile: coverage of the true one of these processes, of the true one over all processes, share known."""
    trials = 400
    counts = {name: np.zeros(3) for name in order_statistics.QUANTILES}
    for _ in range(trials):
        offsets = rng.normal(0, spread, processes)
        runs = list(1 + offsets[:, None] + SPREAD * _ar1(rho, (processes, samples), rng))
        for name, quantile in order_statistics.QUANTILES.items():
            found = order_statistics.percentile_interval(runs, quantile)
            if found is not None:
                everywhere = 1 + math.hypot(spread, SPREAD) * special.ndtri(quantile)
                these = _of_mixture(offsets, quantile)
                counts[name] += [found.low <= these <= found.high, found.low <= everywhere <= found.high, 1]
    return [f"{own / known:.0%} / {all_ / known:.0%} / {known / trials:.0%}" for own, all_, known in counts.values()]


def _of_mixture(offsets: Array, quantile: float) -> float:
    """The true percentile of processes with these offsets, by bisection."""
    low, high = 0.5, 1.5
    for _ in range(40):
        middle = (low + high) / 2
        below = float(special.ndtr((middle - 1 - offsets) / SPREAD).mean())
        low, high = (middle, high) if below < quantile else (low, middle)
    return low


def _t_interval(values: Array, _rng: np.random.Generator) -> tuple[float, float]:
    found = stats.log_t_interval(values.tolist())
    return (found.low, found.high) if found else (0.0, float("inf"))


def _bootstrap(values: Array, rng: np.random.Generator) -> tuple[float, float]:
    """Percentile bootstrap of the median over processes."""
    draws = np.median(rng.choice(values, (RESAMPLES, len(values))), axis=1)
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)


def _share(
    trials: Array, method: Callable[[Array, np.random.Generator], tuple[float, float]], rng: np.random.Generator
) -> str:
    truth = 1.0
    held = sum(low <= truth <= high for low, high in (method(values, rng) for values in trials))
    return f"{held / len(trials):.1%}"


def _one_process(rho: float, rng: np.random.Generator) -> list[str]:
    """Coverage of the true median by one process's iterations, its blocks, and by five processes."""
    raw = blocks = processes = 0
    trials = 600
    for _ in range(trials):
        runs = np.exp(rng.normal(0, SPREAD, (5, 1))) * (1 + SPREAD * _ar1(rho, (5, SAMPLES * 10), rng))
        first = runs[0]
        raw += _holds(first, 1.0)
        blocks += _holds(np.median(first.reshape(20, -1), axis=1), 1.0)
        found = stats.log_t_interval([float(np.median(run)) for run in runs])
        processes += found is not None and found.low <= 1.0 <= found.high
    return [f"{count / trials:.1%}" for count in (raw, blocks, processes)]


def _ar1(rho: float, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    shocks = rng.normal(size=shape) * np.sqrt(1 - rho**2)
    noise = np.empty(shape)
    noise[:, 0] = rng.normal(size=shape[0])
    for index in range(1, shape[1]):
        noise[:, index] = rho * noise[:, index - 1] + shocks[:, index]
    return noise


def _holds(values: Array, truth: float) -> bool:
    """True where the ordinary 95% t interval over values holds the truth."""
    half = stats.t_critical(len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return bool(abs(values.mean() - truth) <= half)


if __name__ == "__main__":
    main()
