"""The order of a run: rounds, comparison groups in random order, and cases in random order in each group (pure).

For two states in one run, it also decides which state goes first. Cases that will be compared run close together and in
another order each round: a drift of the machine then affects all of them equally. Where they ran one after the other, a
simulated warm-up drift of 3% caused a false difference of 1.1%.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from harness.aggregation.admission import comparison_groups
from harness.aggregation.flags import GroupKey
from harness.aggregation.more_rounds import half_width, is_wide
from harness.backends import backend_info
from harness.core.errors import UsageError
from harness.core.schemas import (
    Case,
    Device,
    GenerationCase,
    Measurement,
    Plan,
)
from harness.core.text import unknown_name
from harness.core.units import count

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


START_S: Mapping[Device, tuple[float, float]] = {"cpu": (1.5, 6.0), "cuda": (1.5, 4.0)}
"""Shortest and usual longest start of a process in results/published: load, first pass, comparison with the reference.
Longer: large models and batches, and ONNX Runtime's search for convolutions on a GPU (11 to 17 s)."""
COMPILE_S = 50.0
"""Longest first compilation of a case there (torch.compile 11 to 29 s, plans of cudnn 27 to 49 s)."""
RECOMPILE_S = 16.0
"""The same in a later process, which finds the kernels in the cache, and traces and lowers the model again."""

ENGINE_S = (26.0, 93.0)
"""Shortest and longest build of a TensorRT engine, as measured on an H200 and an H100 (docs/gpu-machine.md)."""

GENERATION_S = 10.0
"""A short process of generation of a model of GPT-2's size on two cores: load, comparison, warm-ups, requests."""


def estimate_s(plan: Plan) -> tuple[float, float]:
    """(shortest, longest) seconds of the run stage: every process converges at once, or none before its limit.

    The longest includes further rounds: all of them, or those that start within the budget and one more process.
    """
    settings = plan.measurement
    runnable = [case for case in plan.cases if case.skip_reason is None]
    quick, slow = _process_s(settings, runnable)
    processes = _processes(runnable, settings.rounds)
    planned = processes * slow + _compile_s(runnable, settings.rounds)
    generations = [case for case in plan.generations if case.skip_reason is None]
    own = settings.rounds * len(generations)
    quick_all, planned = processes * quick + own * GENERATION_S, planned + own * (GENERATION_S + plan.generation.max_s)
    if settings.max_rounds is None or settings.max_rounds <= settings.rounds or not runnable:
        return quick_all, planned
    every = _processes(runnable, settings.max_rounds) * slow + _compile_s(runnable, settings.max_rounds)
    if settings.budget_s is not None:
        every = min(every, max(planned, settings.budget_s + slow))
    return quick_all, every + own * (GENERATION_S + plan.generation.max_s)


def time_in_words(plan: Plan) -> str:
    """`2 min to 9 min to measure, besides export`; of the cases, with and without generation, not of loads."""
    excluded = "export and engines" if engines_in_words(plan) else "export"
    return f"{range_in_words(estimate_s(plan))} to measure, besides {excluded}"


def time_of_pairs_in_words(pairs: Sequence[Case], settings: Measurement) -> str:
    """`2 min to 9 min to measure` for a process of each of two states, once for each entry."""
    quick, slow = (2 * len(pairs) * seconds for seconds in _process_s(settings, pairs))
    turns = Counter(case.case_id for case in pairs)
    compiles = 2 * sum(_compile_s([case], turns[name]) for name, case in {case.case_id: case for case in pairs}.items())
    return f"{range_in_words((quick, slow + compiles))} to measure"


def _process_s(settings: Measurement, cases: Sequence[Case]) -> tuple[float, float]:
    """(shortest, longest) seconds of one process."""
    low, high = START_S["cuda" if any(case.device == "cuda" for case in cases) else "cpu"]
    quick = max(settings.warmup_min_s + 3 * settings.window_s + 3 * settings.block_s, settings.min_s)
    return low + quick, high + max(quick, settings.warmup_max_s + settings.max_s)


def _compile_s(cases: Iterable[Case], rounds: int) -> float:
    """Longest time for compilations in all processes."""
    compiled = [case for case in cases if backend_info(case.backend).compile_cache]
    return len(compiled) * COMPILE_S + (rounds - 1) * _further(compiled) * RECOMPILE_S


def _processes(cases: Sequence[Case], rounds: int) -> int:
    """Number of processes. Of a tuned row every setting runs in round 1, and one of them in the others."""
    return len(cases) + (rounds - 1) * _further(cases)


def _further(cases: Sequence[Case]) -> int:
    """Number of processes of a round after the first, in which a tuned row has only one setting."""
    tried = [case for case in cases if case.tuned]
    return len(cases) - len(tried) + _tuned_rows(tried)


def _tuned_rows(tried: Iterable[Case]) -> int:
    return len({GroupKey.of(case).without("setting") for case in tried})


def tuning_in_words(plan: Plan) -> str | None:
    """`30 settings of 8 rows are tried in round 1, 2 min to 9 min of it; …`; None for a plan that tries none."""
    tried = [case for case in plan.cases if case.tuned and case.skip_reason is None]
    if not tried:
        return None
    quick, slow = _process_s(plan.measurement, tried)
    time = range_in_words((len(tried) * quick, len(tried) * slow + _compile_s(tried, 1)))
    return (
        f"{len(tried)} settings of {count(_tuned_rows(tried), 'row')} are tried in round 1, {time} of it; the fastest "
        "of a row gets the other rounds"
    )


def engines_in_words(plan: Plan) -> str | None:
    """`12 to build, unless they are here: 5 min to 19 min one after the other`; None for a plan without engines."""
    wanted = set()
    for case in plan.cases:
        info = backend_info(case.backend)
        if info.artifact == "engine" and case.skip_reason is None:
            options = info.setting(case.device, case.setting).options
            built = tuple(sorted((name, value) for name, value in options.items() if name != "graph"))
            shape = None if options.get("profiles") == "dynamic" else (case.batch_size, case.sequence_length)
            wanted.add((case.model, case.precision, built, shape))
    if not wanted:
        return None
    low, high = (len(wanted) * seconds for seconds in ENGINE_S)
    return f"{len(wanted)} to build, unless they are here: {range_in_words((low, high))} one after the other"


def further_in_words(settings: Measurement) -> str | None:
    """`up to 20 rounds while …`; None where a plan asks for no further rounds."""
    if settings.max_rounds is None or settings.max_rounds <= settings.rounds:
        return None
    until = f" and {duration_in_words(settings.budget_s)} are not over" if settings.budget_s is not None else ""
    width = f"±{100 * settings.target_interval:.3g}%"
    return f"up to {settings.max_rounds} rounds while the interval is wider than {width}{until}"


def range_in_words(bounds: tuple[float, float]) -> str:
    """`2 min to 9 min`."""
    low, high = (duration_in_words(seconds) for seconds in bounds)
    return f"{low} to {high}" if low != high else f"about {low}"


def duration_in_words(seconds: float) -> str:
    """`40 s`, `9 min` or `1.5 h`."""
    if seconds < 90:
        return f"{round(seconds)} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


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
