"""The order of a run: rounds, comparison groups in random order, and cases in random order in each group (pure).

For two states in one run, it also decides which state goes first. Cases that will be compared run close together and in
another order each round: a drift of the machine then affects all of them equally. Where they ran one after the other, a
simulated warm-up drift of 3% caused a false difference of 1.1%.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from harness.aggregation.admission import comparison_groups
from harness.aggregation.more_rounds import half_width, is_wide
from harness.core.errors import UsageError
from harness.core.schemas import (
    Case,
    GenerationCase,
    Measurement,
    Plan,
)
from harness.core.text import unknown_name

Turn = tuple[int, Case]
"""(round, counted from 1; case)."""
GenerationTurn = tuple[int, GenerationCase]


def schedule(cases: Sequence[Case], rounds: int, seed: int) -> list[Turn]:
    """Every runnable case once per round; the same seed gives the same order."""
    return [turn for number in range(1, rounds + 1) for turn in round_turns(cases, number, seed)]


def round_turns(cases: Sequence[Case], number: int, seed: int) -> list[Turn]:
    """One round: comparison groups in random order, the cases of a group next to each other in random order."""
    order = random.Random(f"{seed}-{number}")  # noqa: S311 - an order, not a secret
    shuffled = [order.sample(group, len(group)) for group in comparison_groups(cases).values()]
    order.shuffle(shuffled)
    return [(number, case) for group in shuffled for case in group]


def paired_rounds(cases: Sequence[Case], rounds: int, seed: int) -> list[list[tuple[Turn, bool]]]:
    """The turns of each round, each with True where the current state goes first, else False.

    Rounds 1 and 2, 3 and 4, … of a case have opposite orders, of which the first is random: an effect of the place in a
    pair (a warm cache, a falling clock) then affects both states equally often, and a drift affects them at random.
    """
    return [
        [(turn, _goes_first(turn[1], number, seed)) for turn in round_turns(cases, number, seed)]
        for number in range(1, rounds + 1)
    ]


def _goes_first(case: Case, number: int, seed: int) -> bool:
    block = (number + 1) // 2
    drawn = random.Random(f"{seed}-{case.case_id}-{block}").random() < 0.5  # noqa: S311 - an order, not a secret
    return drawn if number % 2 else not drawn


Medians = Mapping[str, Mapping[int, float]]
"""case id → round → process median in ns."""


def further_turns(
    cases: Sequence[Case],
    medians: Medians,
    settings: Measurement,
    elapsed_s: float,
    failed: Collection[str] = (),
) -> list[Turn]:
    """The next pass of a run: one more round for each case that needs it and may have it; empty when all cases are
    done.

    elapsed_s: time since the start of the command that contains the run. failed: ids of cases of which a process failed
    in this run: they would fail again in every pass.
    """
    if settings.max_rounds is None or is_over_budget(settings, elapsed_s):
        return []
    runnable = [case for case in cases if case.skip_reason is None and case.case_id not in failed]
    wanting = [case for case in runnable if _wants_more(medians.get(case.case_id, {}), settings)]
    wanting.sort(key=lambda case: -half_width(list(medians[case.case_id].values())))
    return [(max(medians[case.case_id]) + 1, case) for case in wanting]


def is_over_budget(settings: Measurement, elapsed_s: float) -> bool:
    """True when no further round may start."""
    return settings.budget_s is not None and elapsed_s >= settings.budget_s


def _wants_more(rounds: Mapping[int, float], settings: Measurement) -> bool:
    if not rounds or settings.max_rounds is None or max(rounds) >= settings.max_rounds:
        return False
    return is_wide(list(rounds.values()), settings)


def select_models(plan: Plan, names: Sequence[str] | None) -> Plan:
    """The plan with only the cases of these models; the whole plan where none are named.

    Nothing else changes, in particular not the plan's id: samples of both are the same. UsageError for a name that the
    plan does not have.
    """
    if not names:
        return plan
    known = list(dict.fromkeys([*(model.name for model in plan.models), *(case.model for case in plan.generations)]))
    for name in names:
        if name not in known:
            raise UsageError(*unknown_name("model of this plan", name, known))
    return plan.model_copy(
        update={
            "models": tuple(model for model in plan.models if model.name in names),
            "cases": tuple(case for case in plan.cases if case.model in names),
            "generations": tuple(case for case in plan.generations if case.model in names),
            "loads": tuple(load for load in plan.loads if load.model in names),
        }
    )


def select_cases(plan: Plan, cases: Sequence[Case]) -> Plan:
    """The plan with only these cases and their models. Its ids stay: samples of both are the same."""
    names = {case.model for case in cases}
    models = tuple(model for model in plan.models if model.name in names)
    return plan.model_copy(update={"cases": tuple(cases), "models": models})


def generation_turns(cases: Sequence[GenerationCase], rounds: int, seed: int) -> list[GenerationTurn]:
    """Every runnable case once a round. Cases of one model and shape run next to each other, in random order."""
    turns: list[GenerationTurn] = []
    for number in range(1, rounds + 1):
        groups: dict[tuple[object, ...], list[GenerationCase]] = {}
        for case in cases:
            if case.skip_reason is None:
                key = (case.model, case.batch_size, case.prompt_length, case.new_tokens)
                groups.setdefault(key, []).append(case)
        order = random.Random(f"{seed}-{number}")  # noqa: S311 - an order, not a secret
        shuffled = [order.sample(group, len(group)) for group in groups.values()]
        order.shuffle(shuffled)
        turns += [(number, case) for group in shuffled for case in group]
    return turns
