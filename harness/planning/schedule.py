"""The order of a run: rounds, in each the comparison groups in random order, in each group its cases (pure). Of two
states in one run: which of them goes first.

Cases that will be compared run close together and in another order each round: a drift of the machine then hits
all of them alike. One after the other, a warm-up drift of 3% showed a false difference of 1.1% (METHOD.md §2.2).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from harness.core.schemas import Case

Turn = tuple[int, Case]
"""(round, counted from 1; case)."""


def schedule(cases: Sequence[Case], rounds: int, seed: int) -> list[Turn]:
    """Every runnable case once a round; the same seed gives the same order."""
    return [turn for number in range(1, rounds + 1) for turn in one_round(cases, number, seed)]


def one_round(cases: Sequence[Case], number: int, seed: int) -> list[Turn]:
    """One round: comparison groups in random order, the cases of a group next to each other in random order."""
    groups: dict[tuple[object, ...], list[Case]] = {}
    for case in cases:
        if case.skip_reason is None:
            shape = (case.batch_size, case.sequence_length, case.boundary, case.mode)
            groups.setdefault((case.model, *shape), []).append(case)
    order = random.Random(f"{seed}-{number}")  # noqa: S311 - an order, not a secret
    shuffled = [order.sample(group, len(group)) for group in groups.values()]
    order.shuffle(shuffled)
    return [(number, case) for group in shuffled for case in group]


def paired_rounds(cases: Sequence[Case], rounds: int, seed: int) -> list[list[tuple[Turn, bool]]]:
    """Of each round its turns, and whether of two states the current one goes first in it; else the other does.

    A case's two rounds 1 and 2, 3 and 4, … have opposite orders, of which the first is drawn: what the place in a pair
    costs (a cache left warm, a clock that falls) then meets both states as often, and what drifts meets them at random.
    """
    return [
        [(turn, _goes_first(turn[1], number, seed)) for turn in one_round(cases, number, seed)]
        for number in range(1, rounds + 1)
    ]


def _goes_first(case: Case, number: int, seed: int) -> bool:
    block = (number + 1) // 2
    drawn = random.Random(f"{seed}-{case.case_id}-{block}").random() < 0.5  # noqa: S311 - an order, not a secret
    return drawn if number % 2 else not drawn
