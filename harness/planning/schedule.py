"""The order of a run: rounds, in each the comparison groups in random order, in each group its cases (pure).

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
