"""How often does `compare` cry wolf, and what does it miss? By simulation: docs/decisions/0006-comparison.md.

    .venv/bin/python -m benchmarks.false_alarms [--tables 2000] [--rows 30]

A table holds the process medians of two runs. In A/A tables nothing changed, and one SLOWER or FASTER anywhere is a
false alarm of the whole table; in the others the first row is 5% slower.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from harness.measure.comparison import EQUIVALENCE, verdict_of
from harness.measure.ratios import holm, welch

Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]

SPREAD = 0.01
SLOW_DOWN = 1.05


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return rng.normal(size=shape)


def student(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return rng.standard_t(3, shape) / np.sqrt(3)


def disturbed(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return rng.normal(size=shape) + 3 * (rng.random(shape) < 0.1)


def unequal(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return rng.normal(size=shape) * np.exp(rng.normal(size=(shape[0], 1)))


SPREADS: dict[str, Draw] = {
    "normal": normal,
    "heavy tails (t, 3 degrees)": student,
    "1 process in 10 is 3% slower": disturbed,
    "each row and run its own (log sd 1)": unequal,
}
"""Deviations of process medians, in units of SPREAD."""


def verdicts(baseline: NDArray[np.float64], current: NDArray[np.float64]) -> list[str]:
    """A verdict per row, as harness.measure.comparison gives it."""
    ratios = [welch(before, after) for before, after in zip(baseline.tolist(), current.tolist(), strict=True)]
    tested = [ratio for ratio in ratios if ratio is not None]
    adjusted = holm([ratio.p for ratio in tested])
    return [verdict_of(ratio, p, EQUIVALENCE) for ratio, p in zip(tested, adjusted, strict=True)]


def simulate(draw: Draw, tables: int, rows: int, rounds: int, seed: int) -> tuple[float, float, float]:
    """Shares of A/A tables with a false alarm, of slowed rows called SLOWER, of A/A rows called SAME."""
    rng = np.random.default_rng(seed)
    alarms = hits = same = 0
    for _ in range(tables):
        baseline, current = (10 * np.exp(SPREAD * draw(rng, (rows, rounds))) for _ in range(2))
        found = verdicts(baseline, current)
        alarms += any(verdict in ("SLOWER", "FASTER") for verdict in found)
        same += found.count("SAME")
        current[0] *= SLOW_DOWN
        hits += verdicts(baseline, current)[0] == "SLOWER"
    return alarms / tables, hits / tables, same / tables / rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 10, 30])
    parser.add_argument("--rounds", type=int, nargs="+", default=[3, 5, 10])
    options = parser.parse_args()
    lines = []
    for name, draw in SPREADS.items():
        for rounds in options.rounds:
            cells = [simulate(draw, options.tables, rows, rounds, seed=rows + rounds) for rows in options.rows]
            alarms, hits, same = zip(*cells, strict=True)
            lines.append([name, rounds, *(f"{value:.1%}" for value in (*alarms, *hits)), f"{same[-1]:.0%}"])
    headers = ["spread of 1%", "rounds"]
    headers += [f"{what}, {rows} rows" for what in ("false alarm", "5% found") for rows in options.rows]
    print(tabulate(lines, [*headers, "SAME"], tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
