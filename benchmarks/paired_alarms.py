"""How often does `make ab` cry wolf, and what does it miss? By simulation, with its own functions: docs/speed.md.

    .venv/bin/python -m benchmarks.paired_alarms [--tables 1000] [--sizes 1 10 30] [--rounds 6 8 10 12]

A table holds the process medians of two states that were measured in turn. In A/A tables nothing changed, and one
SLOWER or FASTER anywhere is a false alarm of the whole table; in the others the first row is 5% slower.

Kinds that benchmarks/false_alarms.py has are drawn for each state by itself, so that nothing cancels in a pair: rounds
that correlate are then something that lasts for rounds and meets one state alone, which the order that is drawn cannot
help against. The others are of one machine, whose state at each turn both states meet in the order of the schedule.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from benchmarks.false_alarms import KINDS as SEPARATE
from benchmarks.false_alarms import SCATTER, Draw, Medians, Sides, correlated, error_rates
from harness.comparison.paired import paired_change
from harness.comparison.verdicts import EQUIVALENCE, RULES, judge
from harness.core.schemas import Case
from harness.planning.schedule import paired_rounds
from harness.statistics.ratios import Change

Pair = Callable[..., Sides]
"""(rng, rows, rounds) → both states, rows by rounds, on logarithms."""

RHO = 0.5
PLACE_COST = 0.01
"""How much slower the second process of a pair is."""
DRIFT = 0.10
"""How much slower the machine is at the end of a run than at its beginning."""


def each_by_itself(draw: Draw, rng: np.random.Generator, rows: int, rounds: int) -> Sides:
    return draw(rng, rows, rounds), draw(rng, rows, rounds)


def machine(rng: np.random.Generator, rows: int, rounds: int) -> Sides:
    """The machine's state at each turn, such that neighbouring rounds correlate by RHO, and scatter of each process."""
    turns = correlated(RHO**0.5, rng, rows, 2 * rounds) + rng.normal(0, SCATTER / 2, (rows, 2 * rounds))
    return in_turn(turns, rng)


def whole_rounds(rng: np.random.Generator, rows: int, rounds: int) -> Sides:
    """What slows a round slows both of its processes alike; rounds correlate by RHO."""
    shared = 5 * correlated(RHO, rng, rows, rounds)
    own = rng.normal(0, SCATTER, (2, rows, rounds))
    return shared + own[0], shared + own[1]


def second_place(rng: np.random.Generator, rows: int, rounds: int) -> Sides:
    turns = rng.normal(0, SCATTER / 5, (rows, 2 * rounds))
    turns[:, 1::2] += PLACE_COST
    return in_turn(turns, rng)


def drifting(rng: np.random.Generator, rows: int, rounds: int) -> Sides:
    turns = rng.normal(0, SCATTER / 5, (rows, 2 * rounds)) + np.linspace(0, np.log1p(DRIFT), 2 * rounds)
    return in_turn(turns, rng)


def in_turn(turns: Medians, rng: np.random.Generator) -> Sides:
    """Turns, two a round, handed to the states in the order that the schedule draws."""
    first = goes_first(len(turns), turns.shape[1] // 2, int(rng.integers(1 << 31)))
    entry, other = turns[:, ::2], turns[:, 1::2]
    return np.where(first, other, entry), np.where(first, entry, other)


def goes_first(rows: int, rounds: int, seed: int) -> NDArray[np.bool_]:
    """Rows by rounds: whether the current state goes first, as the run stage asks the schedule."""
    cases = [CASE.model_copy(update={"case_id": f"row-{row}"}) for row in range(rows)]
    result = np.zeros((rows, rounds), dtype=bool)
    for pairs in paired_rounds(cases, rounds, seed):
        for (number, case), first in pairs:
            result[int(case.case_id.removeprefix("row-")), number - 1] = first
    return result


CASE = Case(
    case_id="row-0",
    model="m",
    slug="m",
    backend="noop",
    device="cpu",
    precision="fp32",
    batch_size=1,
    sequence_length=None,
    boundary="compute",
    mode="sync",
    weights="seeded",
)

KINDS: dict[str, Pair] = {
    **{name: partial(each_by_itself, draw) for name, draw in SEPARATE.items()},
    "whole rounds, correlating by 0.5": whole_rounds,
    "turns, rounds correlating by 0.5": machine,
    "the second of a pair is 1% slower": second_place,
    "drift of 10% over the run": drifting,
}


def changes(baseline: Medians, current: Medians) -> list[Change]:
    """What each row's pairs say, as harness.comparison.paired has it."""
    rows = zip(np.exp(baseline).tolist(), np.exp(current).tolist(), strict=True)
    return [result for before, after in rows if (result := paired_change(before, after)) is not None]


def verdicts(result: Sequence[Change]) -> list[str]:
    """A verdict per row, as harness.comparison.verdicts gives it."""
    return [entry.verdict for entry in judge(result, EQUIVALENCE, RULES["paired"])]


def simulate(draw: Pair, tables: int, rows: int, rounds: int, seed: int) -> tuple[float, float, float]:
    """As false_alarms.error_rates, of so many rounds in turn."""
    return error_rates(partial(draw, rows=rows, rounds=rounds), changes, verdicts, tables, rows, seed)


def table(kinds: Sequence[str], sizes: Sequence[int], rounds: Sequence[int], tables: int) -> str:
    """A line for each kind and number of rounds."""
    lines = []
    for name in kinds:
        for count in rounds:
            seed = zlib.crc32(f"{name} {count}".encode())
            cells = [simulate(KINDS[name], tables, rows, count, seed) for rows in sizes]
            alarms, hits, same = zip(*cells, strict=True)
            lines.append([name, str(count), *(f"{value:.1%}" for value in (*alarms, *hits)), f"{same[-1]:.0%}"])
    headers = ["process medians", "rounds"]
    headers += [f"{what}, {rows} rows" for what in ("false alarm", "5% found") for rows in sizes]
    return tabulate(lines, [*headers, "SAME"], tablefmt="github", disable_numparse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 10, 30], help="rows of a table")
    parser.add_argument("--rounds", type=int, nargs="+", default=[6, 8, 10, 12])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), metavar="KIND")
    options = parser.parse_args()
    print(table(options.kinds, options.sizes, options.rounds, options.tables))


if __name__ == "__main__":
    main()
