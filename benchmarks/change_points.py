"""Error rates of the change points of a history, on simulated nights of 100 cases, and the speed of the whole history.

    python -m benchmarks.change_points --nights 400       # rates: false alarms, found steps
    python -m benchmarks.change_points --nights 1000 --noise normal heavy
    python -m benchmarks.change_points --speed            # 500 runs of 100 cases: analysis, page

A night is wrong where any of its cases shows a shift that was not put in. The scatter between runs is 0.5%; each run
has five processes of 0.5%, so its own interval is known.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special

from harness.comparison.run_history import analyse
from harness.core.schemas import HistoryPoint, HistoryRun
from harness.reporting.html.history_page import history_page
from harness.statistics.change_points import (
    LATER_RUNS,
    RunSeries,
    changes_of_a_night,
    largest_split,
    smallest_visible_shift,
)

CASES = 100
SCATTER = 0.005
PROCESSES = 5

Logs = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Logs]
"""(generator, number of runs) → logarithms of the levels of one case."""


def plain(chance: np.random.Generator, runs: int) -> Logs:
    """Normal scatter."""
    return chance.normal(0, SCATTER, runs)


def heavy(chance: np.random.Generator, runs: int) -> Logs:
    """Heavy tails: t with three degrees of freedom."""
    return chance.standard_t(3, runs) * SCATTER / math.sqrt(3)


def restless_end(chance: np.random.Generator, runs: int) -> Logs:
    """Three times the scatter in the last third, in every case."""
    return chance.normal(0, SCATTER, runs) * np.where(np.arange(runs) >= runs * 2 // 3, 3, 1)


def correlated(chance: np.random.Generator, runs: int) -> Logs:
    """Each run correlates with the next by 0.3, in every case."""
    values = chance.normal(0, SCATTER, runs)
    for place in range(1, runs):
        values[place] = 0.3 * values[place - 1] + math.sqrt(1 - 0.09) * values[place]
    return values


def one_outlier(chance: np.random.Generator, runs: int) -> Logs:
    """One outlier of 20% in every case."""
    values = plain(chance, runs)
    values[chance.integers(runs)] += 0.2
    return values


NOISES: dict[str, Noise] = {
    "normal": plain,
    "heavy": heavy,
    "outlier": one_outlier,
    "restless": restless_end,
    "correlated": correlated,
}


def series_of(chance: np.random.Generator, logs: Logs, boundaries: Sequence[int] = ()) -> RunSeries:
    spread = SCATTER**2 * chance.chisquare(PROCESSES - 1, logs.size) / (PROCESSES - 1) / PROCESSES
    return RunSeries(
        list(np.exp(logs)), list(spread * math.pi / 2), boundaries, "m", [str(run) for run in range(logs.size)]
    )


def false_alarms(nights: int, runs: int, names: Sequence[str]) -> None:
    for name in names:
        noise, wrong = NOISES[name], 0
        for night in range(nights):
            chance = np.random.default_rng([1, night])
            wrong += any(changes_of_a_night([series_of(chance, noise(chance, runs)) for _ in range(CASES)], seed=night))
        print(f"false alarms, {runs} runs, {name}: {wrong} of {nights} nights{upper(wrong, nights)}", flush=True)


def found_steps(nights: int, before: int, shift: float) -> None:
    result = placed = 0
    for night in range(nights):
        chance = np.random.default_rng([2, night])
        logs = [plain(chance, before + LATER_RUNS) for _ in range(CASES)]
        logs[0][before:] += math.log1p(shift)
        splits = changes_of_a_night([series_of(chance, entry) for entry in logs], seed=night)[0]
        result += bool(splits)
        placed += any(abs(split.at - before) <= 1 for split in splits)
    print(
        f"step of {shift:.1%} in one of {CASES} cases after {before} runs, {LATER_RUNS} later: found in {result} of "
        f"{nights} nights, in {placed} at its run or one beside",
        flush=True,
    )


def visible(before: int) -> float:
    """The median over cases of the smallest visible shift that the history prints."""
    chance = np.random.default_rng([3, before])
    shifts = [smallest_visible_shift(list(np.exp(plain(chance, before))), CASES) for _ in range(CASES)]
    return float(np.median([shift for shift in shifts if shift is not None]))


def known_boundary(nights: int) -> None:
    wrong = 0
    for night in range(nights):
        chance = np.random.default_rng([4, night])
        series = []
        for _ in range(CASES):
            logs = plain(chance, 40)
            logs[20:] += 0.05
            series.append(series_of(chance, logs, (20,)))
        wrong += any(changes_of_a_night(series, seed=night))
    print(f"false alarms, step of 5% at a change of environment: {wrong} of {nights} nights{upper(wrong, nights)}")


def drift(nights: int) -> None:
    called = result = 0
    for night in range(nights):
        chance = np.random.default_rng([5, night])
        series = [series_of(chance, plain(chance, 60) + np.linspace(0, 0.03, 60))]
        result += bool(changes_of_a_night(series, seed=night)[0])
        first = largest_split(series[0].values, series[0].within, night)
        called += first is not None and first.trend
    print(
        f"drift of 3% over 60 runs: a shift in {result} of {nights} series, "
        f"the largest split called a drift in {called}"
    )


def upper(wrong: int, trials: int) -> str:
    """The rate that this number excludes at 95% (Clopper and Pearson)."""
    return f" (excludes rates above {special.betaincinv(wrong + 1, trials - wrong, 0.95):.1%} at 95%)"


def speed(save: Path | None) -> None:
    chance = np.random.default_rng(6)
    names = [f"model-{number // 10}-backend-cpu-fp32-b{number % 10}" for number in range(CASES)]
    runs = []
    for place in range(500):
        levels = np.exp(chance.normal(0, SCATTER, (CASES, PROCESSES))) * 1e6
        points = {
            name: HistoryPoint(process_medians=tuple(map(float, levels[number])), grade="A")
            for number, name in enumerate(names)
        }
        runs.append(
            HistoryRun(
                run_id=f"n{place:04d}",
                plan_id="p",
                settings_id="s",
                config="c",
                measured_from=f"{2020 + place // 336}-{place // 28 % 12 + 1:02d}-{place % 28 + 1:02d}T01:00:00+00:00",
                measured_to="",
                commit=f"{place:040x}",
                machine_key="m",
                machine="a machine",
                conditions={},
                points=points,
            )
        )
    start = time.perf_counter()
    history = analyse(runs, [], "now")
    analysed = time.perf_counter()
    page = history_page(history, runs)
    if save is not None:
        save.write_text(page)
    print(
        f"500 runs of {CASES} cases: analysis {analysed - start:.1f} s, page {time.perf_counter() - analysed:.1f} s, "
        f"{len(page) / 1e6:.1f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=400)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--page", type=Path, help="with --speed: keep the page here")
    parser.add_argument("--noise", nargs="+", choices=NOISES, help="only the false alarms of these")
    options = parser.parse_args()
    if options.speed:
        speed(options.page)
        return
    false_alarms(options.nights, 30, options.noise or list(NOISES))
    if options.noise:
        return
    known_boundary(options.nights)
    found_steps(options.nights, 25, 0.02)
    for before in (15, 25, 60):
        shift = visible(before)
        print(f"smallest visible shift after {before} runs, as the history prints it: {shift:.2%}")
        found_steps(options.nights, before, shift)
    drift(options.nights)


if __name__ == "__main__":
    main()
