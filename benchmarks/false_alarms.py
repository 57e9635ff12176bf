"""How often does `compare` cry wolf, and what does it miss? By simulation, with its own functions: docs/speed.md.

    .venv/bin/python -m benchmarks.false_alarms [--tables 1000] [--sizes 1 10 30 100] [--rounds 5 6 7 8 10 20]

A table holds the process medians of two runs. In A/A tables nothing changed, and one SLOWER or FASTER anywhere is a
false alarm of the whole table; in the others the first row is 5% slower.
"""

from __future__ import annotations

import argparse
import math
import zlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from harness.comparison.verdicts import EQUIVALENCE, judge
from harness.statistics.ratios import Change, change_between

Medians = NDArray[np.float64]
"""Rows by rounds, on logarithms."""
Draw = Callable[[np.random.Generator, int, int], Medians]
Sides = tuple[Medians, Medians]

SCATTER = 0.01
SPEED_GAP, SPEED_SCATTER = 0.38, 0.003
"""Of rows at two speeds: 55 and 76 ms, as torch-eager's processes on the published CPU."""
SLOW_DOWN = 1.05
MOST_ROWS = 30
"""Rows of a table up to which as many tables are drawn as were asked for; of larger ones fewer, for their time."""
MIXED = 10
"""Of mixed tables every tenth row is at two speeds: 3 of 30."""


def normal(rng: np.random.Generator, rows: int, rounds: int, scatter: float = SCATTER) -> Medians:
    return rng.normal(0, scatter, (rows, rounds))


def skewed(rng: np.random.Generator, rows: int, rounds: int) -> Medians:
    return np.log1p(0.02 * rng.exponential(1, (rows, rounds)))


def heavy(rng: np.random.Generator, rows: int, rounds: int) -> Medians:
    return SCATTER * rng.standard_t(3, (rows, rounds)) / math.sqrt(3)


def disturbed(rng: np.random.Generator, rows: int, rounds: int) -> Medians:
    return normal(rng, rows, rounds) + 3 * SCATTER * (rng.random((rows, rounds)) < 0.1)


def unequal(rng: np.random.Generator, rows: int, rounds: int) -> Medians:
    return normal(rng, rows, rounds) * np.exp(rng.normal(size=(rows, 1)))


def two_speeds(slow: float, rng: np.random.Generator, rows: int, rounds: int) -> Medians:
    """`slow`: probability that a process is slow."""
    at = np.where(rng.random((rows, rounds)) < slow, np.log1p(SPEED_GAP), 0.0)
    return at + normal(rng, rows, rounds, SPEED_SCATTER)


def mixed(slow: float, rng: np.random.Generator, rows: int, rounds: int) -> Medians:
    result = normal(rng, rows, rounds)
    result[::MIXED] = two_speeds(slow, rng, len(result[::MIXED]), rounds)
    return result


def correlated(rho: float, rng: np.random.Generator, rows: int, rounds: int) -> Medians:
    """Neighbouring rounds of a row correlate by `rho`: AR(1)."""
    result = normal(rng, rows, rounds)
    for at in range(1, rounds):
        result[:, at] = rho * result[:, at - 1] + np.sqrt(1 - rho**2) * result[:, at]
    return result


KINDS: dict[str, Draw] = {
    "normal, 1%": normal,
    "log-normal, 15%": partial(normal, scatter=0.15),
    "skewed, exponential 2%": skewed,
    "heavy tails, t with 3 degrees": heavy,
    "1 process in 10 is 3% slower": disturbed,
    "each row and run its own (log sd 1)": unequal,
    "3 of 30 rows at two speeds, 50:50": partial(mixed, 0.5),
    "3 of 30 rows at two speeds, 70:30": partial(mixed, 0.3),
    "all rows at two speeds, 50:50": partial(two_speeds, 0.5),
    "all rows at two speeds, 70:30": partial(two_speeds, 0.3),
    "all rows at two speeds, 90:10": partial(two_speeds, 0.1),
    "rounds correlate by 0.5": partial(correlated, 0.5),
}
"""How process medians scatter."""


def changes(baseline: Medians, current: Medians) -> list[Change]:
    """What each row's two runs say, as harness.statistics.ratios has it."""
    runs = zip(np.exp(baseline).tolist(), np.exp(current).tolist(), strict=True)
    return [result for before, after in runs if (result := change_between(before, after)) is not None]


def verdicts(result: Sequence[Change]) -> list[str]:
    """A verdict per row, as harness.comparison.verdicts gives it."""
    return [entry.verdict for entry in judge(result, EQUIVALENCE)]


def simulate(draw: Draw, tables: int, rows: int, rounds: tuple[int, int], seed: int) -> tuple[float, float, float]:
    """As error_rates, of two separate runs with so many rounds."""

    def sides(rng: np.random.Generator) -> Sides:
        return draw(rng, rows, rounds[0]), draw(rng, rows, rounds[1])

    return error_rates(sides, changes, verdicts, tables, rows, seed)


def error_rates(
    draw: Callable[[np.random.Generator], Sides],
    changes: Callable[[Medians, Medians], list[Change]],
    verdicts: Callable[[Sequence[Change]], list[str]],
    tables: int,
    rows: int,
    seed: int,
) -> tuple[float, float, float]:
    """Shares of A/A tables with a false alarm, of slowed rows called SLOWER, of A/A rows called SAME.

    draw: both sides of a table, logarithms of shape (rows, rounds). changes, verdicts: of the design that is simulated.
    """
    rng = np.random.default_rng(seed)
    alarms = hits = same = 0
    tables = min(tables, MOST_ROWS * tables // rows)
    for _ in range(tables):
        baseline, current = draw(rng)
        result = changes(baseline, current)
        said = verdicts(result)
        alarms += any(verdict in ("SLOWER", "FASTER") for verdict in said)
        same += said.count("SAME")
        slowed = changes(baseline[:1], current[:1] + np.log(SLOW_DOWN))
        hits += verdicts([*slowed, *result[1:]])[0] == "SLOWER"
    return alarms / tables, hits / tables, same / tables / rows


def table(kinds: Sequence[str], sizes: Sequence[int], pairs: Sequence[tuple[int, int]], tables: int) -> str:
    """A line for each kind and pair of rounds."""
    lines = []
    for name in kinds:
        for rounds in pairs:
            seed = zlib.crc32(f"{name} {rounds}".encode())
            cells = [simulate(KINDS[name], tables, rows, rounds, seed) for rows in sizes]
            alarms, hits, same = zip(*cells, strict=True)
            said = f"{rounds[0]}" if rounds[0] == rounds[1] else f"{rounds[0]} and {rounds[1]}"
            lines.append([name, said, *(f"{value:.1%}" for value in (*alarms, *hits)), f"{same[-1]:.0%}"])
    headers = ["process medians", "rounds a side"]
    headers += [f"{what}, {rows} rows" for what in ("false alarm", "5% found") for rows in sizes]
    return tabulate(lines, [*headers, "SAME"], tablefmt="github", disable_numparse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 10, 30, 100], help="rows of a table")
    parser.add_argument("--rounds", type=int, nargs="+", default=[5, 6, 7, 8, 10, 20])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), metavar="KIND")
    options = parser.parse_args()
    print(table(options.kinds, options.sizes, [(rounds, rounds) for rounds in options.rounds], options.tables))
    print()
    print(table(options.kinds, [30], [(5, 10), (5, 20)], options.tables))


if __name__ == "__main__":
    main()
