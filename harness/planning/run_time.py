"""How long a plan takes: a range of seconds, in words, before it runs (pure).

A process makes some passes beside its timed part: it compares answers with the reference, and at its end runs the
repeat check. For a slow model these take longer than the timing. The time of a pass on a CPU is about known from the
model's export, whose reference eager PyTorch or unoptimised ONNX Runtime computes on the same machine; so is that of a
decode step. Before the export, the FLOPs of a built-in model limit it on a slow machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Literal, TypeVar

from harness.aggregation.flags import GroupKey
from harness.backends import BackendInfo, backend_info
from harness.core.schemas import Case, Device, ExportRecord, GenerationCase, GenerationExport, Measurement, Plan
from harness.core.text import short_names
from harness.core.units import count
from harness.planning.schedule import GenerationTurn, Turn
from harness.statistics.estimators import MIN_BLOCKS
from harness.timing.loop import WINDOWS
from harness.timing.repeat_check import BUDGET_NS, TOKENS_BUDGET_S
from harness.timing.rotation import batch_starts, passes_beside_timing
from harness.zoo import COUNTED_TOKENS, MODELS
from harness.zoo.families import known_duration
from harness.zoo.generation import LEAST_REFERENCED, MOST_WITH_LOGITS

Range = tuple[float, float]
"""(shortest, longest), in seconds."""

START_S: Mapping[Device, Range] = {"cpu": (0.5, 4.0), "cuda": (1.5, 4.0)}
"""Shortest and usual longest start of a process, from results/published: fork, load, the backend's own compilation.
Longer: very large models, and ONNX Runtime's search for convolutions on a GPU (11 to 17 s)."""
COMPILE_S = 50.0
"""Longest first compilation of a case there (torch.compile 11 to 29 s, plans of cudnn 27 to 49 s)."""
RECOMPILE_S = 16.0
"""The same in a later process, which finds the kernels in the cache, and traces and lowers the model again."""

SHORT_PASS_S: Mapping[Device, float] = {"cpu": 0.05, "cuda": 0.02}
"""Longest pass of a model whose export has not shown it: the words name this assumption …"""
LONG_PASS_S: Mapping[Device, float] = {"cpu": 1.0, "cuda": 0.2}
"""… and the time of the plan with passes of this length."""

FASTEST, SLOWEST = 0.1, 1.5
"""Shortest and longest pass on a CPU, over that of the reference. Of the cases published from two EPYC vCPUs on 30
November the fastest took 0.16 of eager PyTorch's (int8: 0.06), and the slowest 1.2."""
INT8 = 0.5
"""Shortest pass in int8, over the shortest one of the model."""

SLOW_FLOPS, SLOW_DEPTHWISE_FLOPS = 35e9, 8e9
"""FLOPs a second of the slowest backend on a slow CPU: a third of those on two EPYC vCPUs in results/published, which
are 107e9 or more, and with depthwise convolutions 23e9."""

ENGINE_S = (26.0, 93.0)
"""Shortest and longest build of a TensorRT engine, as measured on an H200 and an H100 (docs/gpu-machine.md)."""

STEP_TOKENS = 20
"""Longest decode step on a CPU, in prompt tokens of the slow CPU's pass, because it reads all weights: about three
times the 33 and 42 ms that PyTorch eager takes for gpt2 and smollm2-135m on two EPYC vCPUs (results/published). On a
GPU the longest step of a built-in model is SHORT_PASS_S: PyTorch eager takes 17 ms on an H200."""

PassTimes = Mapping[Device, float]
"""Seconds of a pass."""
TimeKey = tuple[str, int | None] | tuple[str, int, Literal["step"]]
SampleTimes = Mapping[TimeKey, Range]
"""(model, sequence length) → (shortest, longest) seconds of a sample on a CPU; (model, prompt length, "step") → those
of a decode step of a batch, of one sequence and of the most that the reference had."""
NOTHING_KNOWN: SampleTimes = {}


def expected_sample_times(plan: Plan, exports: Iterable[ExportRecord | GenerationExport]) -> SampleTimes:
    """The times that the exports recorded; of the other built-in models those on a slow CPU, unless they get inputs of
    the user's, which may be of any size."""
    given = {model.name for model in plan.models if model.inputs}
    shapes = {_shape(case) for cases in (plan.cases, plan.generations) for case in cases if case.model not in given}
    limits: dict[TimeKey, Range] = {
        shape: (0.0, seconds) for shape in shapes if (seconds := _slow_sample_s(*shape)) is not None
    }
    return {**limits, **sample_times(exports)}


def _slow_sample_s(model: str, tokens: int | None) -> float | None:
    """Seconds of a sample on a slow CPU; None for a model whose FLOPs are unknown."""
    info = MODELS.get(model)
    if info is None or info.flops is None:
        return None
    # Attention grows faster than the text: at 8 times the tokens this is a fifth too short, of a limit of three times.
    flops = info.flops if tokens is None else info.flops * max(tokens, STEP_TOKENS) / COUNTED_TOKENS
    return flops / (SLOW_DEPTHWISE_FLOPS if info.depthwise else SLOW_FLOPS)


def sample_times(exports: Iterable[ExportRecord | GenerationExport]) -> SampleTimes:
    """The times that follow from those of the reference, which exports recorded; of two the last one's."""
    return {
        key: (FASTEST * fast, SLOWEST * slow)
        for export in exports
        for key, (fast, slow) in (
            _generation_times(export) if isinstance(export, GenerationExport) else _input_times(export)
        )
    }


def _input_times(export: ExportRecord) -> Iterator[tuple[TimeKey, Range]]:
    for inputs in export.input_sets:
        if inputs.sample_s is not None:
            yield (export.model, inputs.sequence_length), (inputs.sample_s, inputs.sample_s)


def _generation_times(export: GenerationExport) -> Iterator[tuple[TimeKey, Range]]:
    """Of a pass over a prompt, and of a decode step."""
    for prompts in export.sets:
        if prompts.prompt_s is not None:
            yield (export.model, prompts.prompt_length), (prompts.prompt_s, prompts.prompt_s)
        if prompts.step_s is not None:
            yield (export.model, prompts.prompt_length, "step"), (prompts.step_s / prompts.referenced, prompts.step_s)


def estimate_s(plan: Plan, samples: SampleTimes = NOTHING_KNOWN, unknown: PassTimes = SHORT_PASS_S) -> Range:
    """(shortest, longest) seconds of the run stage: every process converges at once, or none before its limit.

    The longest includes further rounds: all of them, or those that start within the budget and one more process.
    unknown: longest pass of models that `samples` lacks.
    """
    settings = plan.measurement
    runnable = _runnable(plan.cases)
    planned = [(number, case) for number in range(1, settings.rounds + 1) for case in runnable]
    generating = [(number, case) for number in range(1, settings.rounds + 1) for case in _runnable(plan.generations)]
    low, high = turns_s(planned, runnable, settings, samples, unknown)
    low_generating, high_generating = generation_turns_s(generating, plan, samples, unknown)
    return low + low_generating, high + high_generating


def turns_s(
    turns: Sequence[Turn],
    cases: Sequence[Case],
    settings: Measurement,
    samples: SampleTimes = NOTHING_KNOWN,
    unknown: PassTimes = SHORT_PASS_S,
    elapsed_s: float = 0.0,
) -> Range:
    """(shortest, longest) seconds of these turns; the longest with all further rounds that these cases may get.

    elapsed_s: the part of the budget that is over. samples, unknown: as of estimate_s.
    """

    def seconds(turn: Turn) -> Range:
        return _process_s(turn, settings, samples, unknown)

    low, high = _sum(turns, seconds)
    rounds = range(max([settings.rounds, *(number for number, _ in turns)]) + 1, (settings.max_rounds or 0) + 1)
    further = [(number, case) for number in rounds for case in cases]
    every = high + _sum(further, seconds)[1]
    if settings.budget_s is not None and further:
        slowest = max(seconds(turn)[1] for turn in further)
        every = min(every, max(high, settings.budget_s - elapsed_s + slowest))
    return low, every


def generation_turns_s(
    turns: Iterable[GenerationTurn], plan: Plan, samples: SampleTimes = NOTHING_KNOWN, unknown: PassTimes = SHORT_PASS_S
) -> Range:
    """(shortest, longest) seconds of these turns of the plan's generation. samples, unknown: as of estimate_s."""
    every = [_generation_s(number, case, plan, samples, unknown) for number, case in turns]
    return sum(low for low, _ in every), sum(high for _, high in every)


def _sum(turns: Iterable[Turn], seconds: Callable[[Turn], Range]) -> Range:
    """Of a tuned row every setting runs in round 1, and any one of them in the others."""
    times: dict[tuple[int, GroupKey | str], list[Range]] = {}
    for number, case in turns:
        row = GroupKey.of(case).without("setting") if case.tuned and number > 1 else case.case_id
        times.setdefault((number, row), []).append(seconds((number, case)))
    return (
        sum(min(low for low, _ in own) for own in times.values()),
        sum(max(high for _, high in own) for own in times.values()),
    )


def _process_s(turn: Turn, settings: Measurement, samples: SampleTimes, unknown: PassTimes) -> Range:
    """(shortest, longest) seconds of one process."""
    number, case = turn
    info = backend_info(case.backend)
    checks = 0 if info.artifact == "none" else _passes_beside_timing(case, number, settings)
    fast, slow = _pass_s(case, samples, unknown)
    start_low, start_high = START_S[case.device]
    start_high += _compile_s(number, info)
    quick = _quick_s(settings, fast, settings.min_s if info.computes else 0.0)
    limits = settings.warmup_max_s + max(settings.window_s, slow) + settings.max_s + slow
    low = start_low + quick + checks * fast
    high = start_high + max(quick, limits) + checks * slow + (BUDGET_NS / 1e9 if checks else 0.0)
    return min(low, settings.timeout_s), min(high, settings.timeout_s)


def _passes_beside_timing(case: Case, number: int, settings: Measurement) -> int:
    return passes_beside_timing(len(batch_starts(settings.parity_samples, case.batch_size)), number)


def _quick_s(settings: Measurement, pass_s: float, least_s: float) -> float:
    """Warm-up and timed part of a process that converges at once; the last pass of each may end after its limit."""
    warmed = max(
        settings.warmup_min_s,
        WINDOWS * max(settings.window_s, pass_s),
        settings.warmup_min_iterations * pass_s,
    )
    timed = max(MIN_BLOCKS * max(settings.block_s, settings.block_iterations * pass_s), settings.min_samples * pass_s)
    parts = min(warmed, settings.warmup_max_s + pass_s) + min(timed, settings.max_s + pass_s)
    return max(parts, min(least_s, settings.warmup_max_s + settings.max_s))


def _pass_s(case: Case, samples: SampleTimes, unknown: PassTimes) -> Range:
    """(shortest, longest) seconds of a pass."""
    if not backend_info(case.backend).computes:
        return 0.0, 0.0
    if known_duration.is_spin(case.model):
        seconds = known_duration.duration_ns(case.model) / 1e9
        return seconds, SLOWEST * seconds
    if not _is_known(case, samples):
        return 0.0, unknown[case.device]
    return _known_batch_s(case, samples)


def _known_batch_s(case: Case | GenerationCase, samples: SampleTimes) -> Range:
    """(shortest, longest) seconds of a pass over a batch whose time of a sample is known."""
    fast, slow = samples[_shape(case)]
    return case.batch_size * _of_precision(fast, case), case.batch_size * slow


def _of_precision(fast: float, case: Case | GenerationCase) -> float:
    """Shortest time in the precision of a case. fast: the shortest of the model."""
    return fast * (INT8 if case.precision == "int8" else 1.0)


def _compile_s(number: int, info: BackendInfo) -> float:
    """Longest time that a process compiles, in round `number`."""
    return (COMPILE_S if number == 1 else RECOMPILE_S) if info.compile_cache else 0.0


def _generation_s(number: int, case: GenerationCase, plan: Plan, samples: SampleTimes, unknown: PassTimes) -> Range:
    """(shortest, longest) seconds of one process of generation, in round `number`."""
    settings, options, info = plan.measurement, plan.generation, backend_info(case.backend)
    fast, slow = _request_s(case, samples, unknown)
    start_low, start_high = START_S[case.device]
    start_high += _compile_s(number, info)
    # Warm-up and timed part end with the request that passes their limit.
    timing = max(settings.warmup_max_s + slow, options.warmups * slow) + max(options.max_s, settings.min_s, slow) + slow
    # The repeat check has a request, pairs of passes, and about a request more: the passes that begin at its limit.
    compared = min(MOST_WITH_LOGITS, max(LEAST_REFERENCED, *(each.batch_size for each in plan.generations)))
    checks = 0.0 if info.decoder_reads == "none" else (ceil(compared / case.batch_size) + 2) * slow + TOKENS_BUDGET_S
    low = start_low + max((1 + options.warmups + 2) * fast, settings.min_s)
    high = start_high + slow + timing + checks
    return min(low, settings.timeout_s), min(high, settings.timeout_s)


def _request_s(case: GenerationCase, samples: SampleTimes, unknown: PassTimes) -> Range:
    """(shortest, longest) seconds of a request: a pass over the prompts, and decode steps."""
    if known_duration.is_spin(case.model):
        seconds = case.new_tokens * known_duration.duration_ns(case.model) / 1e9
        return seconds, SLOWEST * seconds
    if backend_info(case.backend).decoder_reads == "none":
        return 0.0, 0.0
    if not _is_known(case, samples):
        return 0.0, case.new_tokens * (unknown if _is_assumed(case, samples) else SHORT_PASS_S)[case.device]
    fast, slow = _known_batch_s(case, samples)
    unrecorded = 0.0, slow * min(1.0, STEP_TOKENS / case.prompt_length)
    fast_step, slow_step = samples.get((case.model, case.prompt_length, "step"), unrecorded)
    steps = case.new_tokens - 1
    return fast + steps * _of_precision(fast_step, case), slow + steps * slow_step


def _shape(case: Case | GenerationCase) -> tuple[str, int | None]:
    """Its key in SampleTimes: a prompt is a text of its length."""
    return case.model, case.sequence_length if isinstance(case, Case) else case.prompt_length


def _is_known(case: Case | GenerationCase, samples: SampleTimes) -> bool:
    """Whether the time of a pass is about known. A CPU's time shows nothing about a GPU's."""
    return case.device == "cpu" and _shape(case) in samples


def _is_assumed(case: Case | GenerationCase, samples: SampleTimes) -> bool:
    """Whether the length of its passes is an assumption. The steps of built-in decoders are limited: STEP_TOKENS."""
    return not _is_known(case, samples) and not (isinstance(case, GenerationCase) and case.model in MODELS)


AnyCase = TypeVar("AnyCase", Case, GenerationCase)


def _runnable(cases: Iterable[AnyCase]) -> list[AnyCase]:
    return [case for case in cases if case.skip_reason is None]


def time_in_words(plan: Plan, samples: SampleTimes = NOTHING_KNOWN) -> str:
    """`2 min to 9 min to measure, besides export`; of the cases, with and without generation, not of loads."""
    excluded = "export and engines" if engines_in_words(plan) else "export"
    cases: list[Case | GenerationCase] = [*_runnable(plan.cases), *_runnable(plan.generations)]
    time = _to_measure(cases, samples, partial(estimate_s, plan, samples))
    return f"{time}{'; ' if ',' in time else ', '}besides {excluded}"


def time_of_turns_in_words(
    turns: Sequence[Turn], cases: Sequence[Case], settings: Measurement, samples: SampleTimes, elapsed_s: float
) -> str:
    """The same of some turns. Arguments as of turns_s."""

    def seconds(unknown: PassTimes) -> Range:
        return turns_s(turns, cases, settings, samples, unknown, elapsed_s)

    return _to_measure([case for _, case in turns], samples, seconds)


def time_of_generation_in_words(turns: Sequence[GenerationTurn], plan: Plan, samples: SampleTimes) -> str:
    """The same of some turns of the plan's generation."""
    return _to_measure([case for _, case in turns], samples, partial(generation_turns_s, turns, plan, samples))


def time_of_pairs_in_words(pairs: Sequence[Case], settings: Measurement, samples: SampleTimes = NOTHING_KNOWN) -> str:
    """`2 min to 9 min to measure` for a process of each of two states, once for each entry."""
    counts = Counter[str]()
    turns: list[Turn] = []
    for case in pairs:
        counts[case.case_id] += 1
        turns.append((counts[case.case_id], case))

    def seconds(unknown: PassTimes) -> Range:
        every = [_process_s(turn, settings, samples, unknown) for turn in turns]
        return 2 * sum(low for low, _ in every), 2 * sum(high for _, high in every)

    return _to_measure(pairs, samples, seconds)


def _to_measure(
    cases: Iterable[Case | GenerationCase], samples: SampleTimes, seconds: Callable[[PassTimes], Range]
) -> str:
    """`2 min to 9 min to measure`; where the passes of a model are unknown, also for which passes it is, and the time
    with long ones."""
    text = f"{range_in_words(seconds(SHORT_PASS_S))} to measure"
    passing = [case for case in cases if backend_info(case.backend).artifact != "none"]
    unknown = [case for case in passing if _is_assumed(case, samples)]
    longest = duration_in_words(seconds(LONG_PASS_S)[1])
    if not unknown or longest == duration_in_words(seconds(SHORT_PASS_S)[1]):
        return text
    models = short_names(case.model for case in passing)
    named = list(dict.fromkeys(models[case.model] for case in unknown))
    of = f" of {', '.join(named)}" if len(named) < len(models) else ""
    device = unknown[0].device
    short, long = (duration_in_words(times[device]) for times in (SHORT_PASS_S, LONG_PASS_S))
    return f"{text} with passes{of} of up to {short}, up to {longest} with passes of {long}"


def tuning_in_words(plan: Plan, samples: SampleTimes = NOTHING_KNOWN) -> str | None:
    """`30 settings of 8 rows are tried in round 1, 2 min to 9 min of it; …`; None for a plan that tries none."""
    tried = [case for case in plan.cases if case.tuned and case.skip_reason is None]
    if not tried:
        return None
    rows = {GroupKey.of(case).without("setting") for case in tried}
    time = range_in_words(turns_s([(1, case) for case in tried], (), plan.measurement, samples))
    return (
        f"{len(tried)} settings of {count(len(rows), 'row')} are tried in round 1, {time} of it; the fastest "
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
    """`50 ms`, `40 s`, `9 min` or `1.5 h`."""
    if 0 < seconds < 1:
        return f"{round(1e3 * seconds)} ms"
    if seconds < 90:
        return f"{round(seconds)} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
