"""Are verdicts and the predicted peak of a load right? By simulation, with the functions of the project: docs/load.md.

    .venv/bin/python -m benchmarks.load_verdicts [--experiments 400] [--measurements 60]

A service of 10 ms (gamma, CV 0.15), one worker, Poisson arrivals, bound p99<50ms. The true peak is the rate at which
1% of the requests of a run of 2,000 are over the bound. Each experiment draws new arrivals and service times and judges
them by `decide`; a measurement draws 2,000 service times and predicts the peak from them alone.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from harness.serving import lindley
from harness.serving.arrivals import at_rate
from harness.serving.batching import BatchPolicy
from harness.serving.early_stopping import is_enough
from harness.serving.load_verdict import decide, parse_bound
from harness.serving.peak import peak_rate
from harness.serving.replay import ServiceTimes

SERVICE_NS = 10e6
CV = 0.15
BOUND = parse_bound("p99<50ms")
REQUESTS = 2_000
FACTORS = (0.90, 0.95, 1.00, 1.03, 1.06, 1.10)
DESIGNS = (10, 30)
LONG_RUNS = (2_000, 6_000, 20_000)
"""Queries of single runs that are judged by LoadGen's early stopping, beside."""
TRUTH_RUNS = 3_000
TRUTH_STEPS = 14


def service(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int64]:
    form = 1 / CV**2
    return (rng.gamma(form, SERVICE_NS / form, shape)).astype(np.int64)


def over(rng: np.random.Generator, rate: float, runs: int, requests: int) -> NDArray[np.int64]:
    """Requests over the bound of each of `runs` runs."""
    arrivals = at_rate(rng.standard_exponential((runs, requests)), rate)
    done = lindley.completions(arrivals, service(rng, (runs, requests)))
    return np.count_nonzero(done - arrivals > BOUND.limit_ns, axis=1)


def true_peak(seed: int, runs: int = TRUTH_RUNS) -> float:
    """By bisection over many runs with the same random numbers at each rate."""
    low, high = 40.0, 70.0
    for _ in range(TRUTH_STEPS):
        middle = (low + high) / 2
        share = over(np.random.default_rng(seed), middle, runs, REQUESTS).mean() / REQUESTS
        low, high = (middle, high) if share <= BOUND.allowed else (low, middle)
    return (low + high) / 2


def verdicts(seed: int, rate: float, runs: int, experiments: int) -> Counter[str]:
    """Verdicts of so many experiments, each with `runs` replications at this rate."""
    rng = np.random.default_rng(seed)
    found: Counter[str] = Counter()
    for _ in range(experiments):
        counts = over(rng, rate, runs, REQUESTS).tolist()
        found[decide(counts, [REQUESTS] * runs, BOUND).verdict] += 1
    return found


def early_stopping(seed: int, rate: float, queries: int, experiments: int) -> float:
    """Share of single runs that LoadGen's early stopping calls valid."""
    rng = np.random.default_rng(seed)
    counts = [over(rng, rate, 1, queries).item() for _ in range(experiments)]
    return sum(is_enough(count, queries, BOUND.quantile) for count in counts) / experiments


def predictions(peak: float, measurements: int) -> list[tuple[float, bool]]:
    """Predicted / true peak of each measurement, and whether its 95% interval contains the true one."""
    found = []
    for seed in range(measurements):
        times = ServiceTimes({1: service(np.random.default_rng((77, seed)), (REQUESTS,))})
        predicted = peak_rate(times, BatchPolicy(), 1, BOUND, REQUESTS, seed)
        if predicted is None or predicted.ci95 is None:
            raise AssertionError("the bound of this benchmark is met by every measurement")
        found.append((predicted.rate_per_s / peak, predicted.ci95.low <= peak <= predicted.ci95.high))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=400)
    parser.add_argument("--measurements", type=int, default=60)
    options = parser.parse_args(arguments)
    peak = true_peak(1)
    print(f"True peak {peak:.2f} requests a second ({peak * SERVICE_NS / 1e9:.3f} of the capacity).\n")
    lines = []
    for at, factor in enumerate(FACTORS):
        line: list[str] = [f"{factor:.2f}"]
        for runs in DESIGNS:
            found = verdicts(10 * at + runs, factor * peak, runs, options.experiments)
            line += [f"{found[word] / options.experiments:.1%}" for word in ("PASS", "UNDECIDED", "FAIL")]
        line += [f"{early_stopping(at, factor * peak, queries, options.experiments):.1%}" for queries in LONG_RUNS]
        lines.append(line)
    headers = ["load / peak", *(f"{word}, R = {runs}" for runs in DESIGNS for word in ("PASS", "UNDECIDED", "FAIL"))]
    headers += [f"early stopping valid, one run of {queries:,}" for queries in LONG_RUNS]
    print(tabulate(lines, headers, tablefmt="github", disable_numparse=True))
    ratios = predictions(peak, options.measurements)
    values = np.array([value for value, _ in ratios])
    covered = sum(inside for _, inside in ratios) / len(ratios)
    print(
        f"\nReplay of 2,000 service times, {len(ratios)} measurements: predicted / true {values.mean():.3f}, "
        f"standard deviation {values.std(ddof=1):.2%}, its 95% interval contains the true peak in {covered:.0%}."
    )


if __name__ == "__main__":
    main()
