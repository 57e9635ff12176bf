"""Are verdicts and the predicted peak of a load right? By simulation, with the functions of the project: docs/load.md.

    .venv/bin/python -m benchmarks.load_verdicts [--experiments 400] [--measurements 60]

A service of 10 ms (gamma, CV 0.15), one worker, Poisson arrivals, bound p99<50ms. The true peak is the rate at which
1% of the requests of an endless run are over the bound. Each experiment draws new arrivals and service times and judges
them by `decide`, without and with replay of its schedules as control; with a slower service under load, too. A
measurement draws 2,000 service times and predicts the peak from them alone.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from harness.serving.arrivals import at_rate
from harness.serving.batching import BatchPolicy
from harness.serving.load_verdict import Control, decide, is_enough, parse_bound
from harness.serving.peak_prediction import peak_rate
from harness.serving.replay import ServiceTimes, queue_completions, simulate

SERVICE_NS = 10e6
CV = 0.15
BOUND = parse_bound("p99<50ms")
REQUESTS = 2_000
FACTORS = (0.90, 0.95, 1.00, 1.03, 1.06, 1.10)
DESIGNS = (10, 30)
LONG_RUNS = (2_000, 6_000, 20_000)
"""Queries of single runs that are judged by LoadGen's early stopping, beside."""
TRUTH_REQUESTS, TRUTH_RUNS, TRUTH_STEPS = 1_000_000, 12, 10
"""Of the true peak: long runs, so that their start from an empty queue does not count."""
EXPECTED_RUNS = 200
"""Replayed runs that give the expectation of the control, as in harness/serving/peak_prediction.py."""
SHARED = 20
"""Experiments that share one measurement of service times."""
INFLATED = 1.05
"""Service times under load by those of the measurement, where replay is wrong."""


def service(rng: np.random.Generator, shape: tuple[int, ...], scale: float = 1.0) -> NDArray[np.int64]:
    form = 1 / CV**2
    return (rng.gamma(form, scale * SERVICE_NS / form, shape)).astype(np.int64)


def schedules(rng: np.random.Generator, rate: float, runs: int, requests: int) -> NDArray[np.int64]:
    return at_rate(rng.standard_exponential((runs, requests)), rate)


def over(arrivals: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Requests over the bound of each run."""
    counts: NDArray[np.int64] = np.count_nonzero(queue_completions(arrivals, times) - arrivals > BOUND.limit_ns, axis=1)
    return counts


def true_peak(seed: int) -> float:
    """By bisection over long runs with the same random numbers at each rate."""
    low, high = 50.0, 60.0
    for _ in range(TRUTH_STEPS):
        middle, count = (low + high) / 2, 0
        for run in range(TRUTH_RUNS):
            rng = np.random.default_rng((seed, run))
            arrivals = schedules(rng, middle, 1, TRUTH_REQUESTS)
            count += int(over(arrivals, service(rng, arrivals.shape)).sum())
        good = count <= BOUND.allowed * TRUTH_RUNS * TRUTH_REQUESTS
        low, high = (middle, high) if good else (low, middle)
    return (low + high) / 2


def verdicts(
    seed: int, rate: float, runs: int, experiments: int, controlled: bool = False, scale: float = 1.0
) -> Counter[str]:
    """Verdicts of so many experiments, each with `runs` replications at this rate. scale: of the service under load."""
    rng = np.random.default_rng(seed)
    result: Counter[str] = Counter()
    for number in range(experiments):
        if controlled and number % SHARED == 0:
            times = ServiceTimes({1: service(rng, (REQUESTS,))})
            expected = replayed(times, schedules(rng, rate, EXPECTED_RUNS, REQUESTS), seed + number)
        arrivals = schedules(rng, rate, runs, REQUESTS)
        counts = over(arrivals, service(rng, arrivals.shape, scale)).tolist()
        control = None
        if controlled:
            error = float(expected.std(ddof=1)) / EXPECTED_RUNS**0.5
            shares = replayed(times, arrivals, seed + number + 1).tolist()
            control = Control(shares, float(expected.mean()), error)
        result[decide(counts, [REQUESTS] * runs, BOUND, control=control).verdict] += 1
    return result


def replayed(times: ServiceTimes, arrivals: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Share over the bound of each schedule in replay."""
    latency = simulate(arrivals, [times], BatchPolicy(), 1, (seed,)).latency_ns
    return np.asarray(np.mean(latency > BOUND.limit_ns, axis=1))


def early_stopping(seed: int, rate: float, queries: int, experiments: int) -> float:
    """Share of single runs that LoadGen's early stopping calls valid."""
    rng = np.random.default_rng(seed)
    runs = [schedules(rng, rate, 1, queries) for _ in range(experiments)]
    counts = [over(run, service(rng, run.shape)).item() for run in runs]
    return sum(is_enough(count, queries, BOUND.quantile) for count in counts) / experiments


def predictions(peak: float, measurements: int) -> list[tuple[float, bool]]:
    """Predicted / true peak of each measurement, and whether its 95% interval contains the true one."""
    result = []
    for seed in range(measurements):
        times = ServiceTimes({1: service(np.random.default_rng((77, seed)), (REQUESTS,))})
        predicted = peak_rate(times, BatchPolicy(), 1, BOUND, REQUESTS, seed)
        if predicted is None or predicted.ci95 is None:
            raise AssertionError("the bound of this benchmark is met by every measurement")
        result.append((predicted.rate_per_s / peak, predicted.ci95.low <= peak <= predicted.ci95.high))
    return result


def _slower_peak(peak: float) -> float:
    """The true peak with slower service, by the same bisection in short steps around a guess."""
    low, high = 0.7 * peak, peak
    for _ in range(TRUTH_STEPS):
        middle = (low + high) / 2
        rng = np.random.default_rng(3)
        arrivals = schedules(rng, middle, 1, 4 * TRUTH_REQUESTS)
        share = over(arrivals, service(rng, arrivals.shape, INFLATED)).mean() / arrivals.size
        low, high = (middle, high) if share <= BOUND.allowed else (low, middle)
    return (low + high) / 2


def _table(first: str, peak: float, experiments: int, scale: float) -> str:
    lines = []
    for at, factor in enumerate(FACTORS):
        line = [f"{factor:.2f}"]
        for runs in DESIGNS:
            for controlled in (False, True):
                result = verdicts(100 * at + runs, factor * peak, runs, experiments, controlled, scale)
                line.append(" / ".join(f"{result[word] / experiments:.1%}" for word in ("PASS", "FAIL")))
        lines.append(line)
    kinds = [f"R = {runs}{', control' if controlled else ''}" for runs in DESIGNS for controlled in (False, True)]
    return tabulate(
        lines, [first, *(f"PASS / FAIL, {kind}" for kind in kinds)], tablefmt="github", disable_numparse=True
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=400)
    parser.add_argument("--measurements", type=int, default=60)
    options = parser.parse_args(arguments)
    peak = true_peak(1)
    print(f"True peak {peak:.2f} requests a second ({peak * SERVICE_NS / 1e9:.3f} of the capacity).\n")
    print(_table("load / true peak", peak, options.experiments, 1.0))
    print(
        f"\nService times under load {INFLATED} times those of the measurement; load by the peak of the slower one:\n"
    )
    print(_table("load / true peak", _slower_peak(peak), options.experiments, INFLATED))
    lines = []
    for at, factor in enumerate(FACTORS):
        rate = factor * peak
        valid = [f"{early_stopping(at, rate, queries, options.experiments):.1%}" for queries in LONG_RUNS]
        lines.append([f"{factor:.2f}", *valid])
    headers = ["load / true peak", *(f"valid by early stopping, one run of {queries:,}" for queries in LONG_RUNS)]
    print()
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
