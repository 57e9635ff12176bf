"""Expands the scenarios of a configuration into load cases, and these into cases; estimates how long they take
(pure)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from harness.backends import BACKENDS, backend_info
from harness.core.errors import ConfigError, UsageError
from harness.core.layout import case_id
from harness.core.schemas import Case, GenerationCase, LatencyBound, LoadCase
from harness.core.schemas.load_record import MOST_LENGTHS, Batching
from harness.core.store import digest_of
from harness.endpoints.target import parse_target
from harness.planning.config import READ_BY, ScenarioBlock, parse_delay_ns, parse_duration_s
from harness.planning.run_time import Range, range_in_words
from harness.serving.load_case import LEAST_REQUESTS, batch_sizes, planned_points, requests_at_rate, rounded_rate
from harness.serving.load_verdict import parse_bounds
from harness.zoo import model_info
from harness.zoo.model_files import DecoderFacts, facts_of

START_S = 3.0
"""Process, libraries, and load of one batch size, as measured on two cores; large models take longer."""

REPLAY_S = 4e-4
"""Of replay, for each request of a replication: of 200,000 in batches of one with two workers 72 s, in batches of 8
with one worker 11 to 21 s (two EPYC vCPUs)."""
HANDLED_S = 5e-6
"""For each request of a replication, besides its time: its record is written, read and judged."""
SHORTEST = 0.15
"""Of these times on a fast machine that does nothing else."""
FASTEST_PER_S = 1e7
"""Requests that the loop of a service could issue at most: a rate above every rate that it can serve."""
STEPS = 100
"""Rates for which the times are computed, up to that."""

CLOSED_REPLICATIONS = 5
CLOSED_S = 2.0
"""Of closed loops, which need no verdict: nothing waits in a queue, so latencies of one replication hardly scatter."""

LOADGEN_S = 600.0
"""Shortest run by LoadGen's rules (mlcommons/inference, loadgen/mlperf.conf and test_settings.h)."""

ISSUING = READ_BY["in_flight"]
"""Scenarios with workers, or batches in flight."""

LOADGEN_MOST = 500_000
"""Most requests of such a run: its record must still be readable."""


Deployment = Case | GenerationCase
"""What serves: a case at batch size 1."""

Decoders = Callable[[tuple[int, int]], Sequence[GenerationCase]]
"""(prompt tokens, new tokens) → what the blocks of generation serve such requests with."""


def load_cases(
    blocks: Sequence[ScenarioBlock],
    cases: Sequence[Case],
    source: str,
    decoders: Decoders,
    fixed: Mapping[str, int] | None = None,
) -> tuple[LoadCase, ...]:
    """Every scenario on every deployment of `cases`; of `decoders` where its requests are prompts and no service runs.

    cases: one of each model, backend, precision, sequence length and setting, at batch size 1. fixed: the only batch
    size of models that have one. Raises ConfigError for an invalid bound, for a scenario without its bound, for lengths
    beyond a model, and for a block that selects none.
    """
    loads: dict[str, LoadCase] = {}
    for index, block in enumerate(blocks):
        where = f"{source}: scenarios[{index}]"
        _refuse_joining(block, where)
        if block.generates and block.endpoint is None:
            for load in _generating(block, decoders, where):
                loads[load.load_id] = load
            continue
        selected = [case for case in cases if _selects(block, case)]
        if not selected:
            raise ConfigError(
                f"{where}: no case of the matrix has these models, backends and precisions.",
                "Name some of the matrix, or leave `models`, `backends` and `precisions` out for all.",
            )
        common, policies = _common(block, where), dict.fromkeys(_policies(block, where))
        _refuse_issuing(block, selected, where)
        for case in selected:
            for pairs in _distributions(block) or [()]:
                for load in _cases_of_lengths(block, case, common, policies, pairs):
                    loads[load.load_id] = _with_fixed_batch(load, (fixed or {}).get(load.model))
    return tuple(loads.values())


NO_SAMPLES = "the file is fixed to batch size 0, which has no samples to measure"


def fixed_to(batch: int, remedy: str) -> str:
    """The reason of cases and loads of another batch size. remedy: what can be done with this one."""
    return f"the file is fixed to batch size {batch}: {remedy}" if batch else NO_SAMPLES


def _with_fixed_batch(load: LoadCase, fixed: int | None) -> LoadCase:
    """The load case, skipped where it would serve batches of another size than its file takes."""
    own = load.skip_reason is None and load.endpoint is None
    if fixed is None or not own or set(batch_sizes(load)) == {fixed}:
        return load
    if load.scenario == "multi-stream":
        remedy = f"SAMPLES={fixed}"
    elif load.scenario == "offline" or fixed == 1:
        remedy = f"MAX_BATCH={fixed}"
    else:
        remedy = f"SCENARIOS=offline MAX_BATCH={fixed}"
    return load.model_copy(update={"skip_reason": fixed_to(fixed, f"{remedy} serves it")})


def _refuse_joining(block: ScenarioBlock, where: str) -> None:
    """Raise ConfigError for continuous batching where no decoder of ours serves requests that arrive."""
    if "continuous" not in block.batching or (block.scenario == "server" and block.generates and not block.endpoint):
        return
    what = "a running service batches as it likes" if block.endpoint else "only requests that generate join a batch"
    raise ConfigError(
        f"{where}.batching: {what}.", "Leave BATCHING out; it is of SCENARIOS=server with PROMPTS and TOKENS."
    )


def _refuse_issuing(block: ScenarioBlock, cases: Sequence[Case], where: str) -> None:
    """Raise ConfigError for batches in flight where nothing has any: in other scenarios, or no backend that can."""
    if not block.in_flight:
        return
    if block.scenario not in ISSUING or block.endpoint:
        what = "a running service" if block.endpoint else f"the {block.scenario} scenario"
        raise ConfigError(
            f"{where}.in_flight: {what} has no batches in flight to choose.",
            f"IN_FLIGHT is of {' and '.join(ISSUING)} on backends in a process of our own; leave it out here.",
        )
    reasons = [_no_issuing(case) for case in cases]
    if all(reasons):
        on_cpu = [name for name, info in BACKENDS.items() if "cpu" in info.asynchronous]
        other = f"with {' or '.join(on_cpu)}" if cases[0].device == "cpu" else "in another setting (SETTINGS=…)"
        raise ConfigError(
            f"{where}.in_flight: {reasons[0]}.", f"Serve with threads, WORKERS={max(block.in_flight)}, or {other}."
        )


def _no_issuing(case: Deployment) -> str | None:
    """Why a case cannot have several batches in flight; None where it can."""
    why = backend_info(case.backend).no_issuing_on(case.device, case.setting)
    setting = f" in its setting {case.setting}" if case.device == "cuda" else ""
    return None if why is None else f"{case.backend} has no batches in flight{setting}: {why}"


def _selects(block: ScenarioBlock, case: Deployment) -> bool:
    return (
        backend_info(case.backend).remote == (block.endpoint is not None)
        and (block.models is None or case.model in block.models)
        and (block.backends is None or case.backend in block.backends)
        and (block.precisions is None or case.precision in block.precisions)
    )


def _common(block: ScenarioBlock, where: str) -> dict[str, Any]:
    """The fields that all load cases of a block share."""
    try:
        bounds = parse_bounds(block.bound) if block.bound else ()
        duration = parse_duration_s(block.duration) if block.duration else None
        service = parse_duration_s(block.service_duration) if block.service_duration else None
    except UsageError as error:
        raise ConfigError(f"{where}: {error.problem}", error.hint) from None
    server = block.scenario == "server"
    if server and not bounds:
        raise ConfigError(
            f"{where}: the server scenario needs a bound on the latency.", "Give one, in quotes: BOUND='p99<50ms'."
        )
    target = _address(block, where)
    if server:
        _check_bounds(block, bounds, where)
    if target is not None and server and not block.rates:
        raise ConfigError(
            f"{where}: a running service has no service times to predict a peak from.", "Name the loads: RATES=50,100."
        )
    if not server and block.rates:
        raise ConfigError(
            f"{where}.rates: {block.scenario} is a closed loop and has no rate.", "Leave `rates` out, or use `server`."
        )
    for rate in block.rates:
        if not 0 < rate < math.inf:
            raise ConfigError(
                f"{where}.rates: a rate of {rate:g} requests a second gives no load.", "Write rates above 0: RATES=50."
            )
    fields: dict[str, Any] = {
        "scenario": block.scenario,
        "bound": bounds[0] if server else None,
        "further_bounds": bounds[1:] if server else (),
        "rates": tuple(dict.fromkeys(map(rounded_rate, block.rates))),
        "factors": tuple(dict.fromkeys(block.factors)),
        "method": "loadgen" if block.loadgen else "replications",
        "price_per_hour": block.price_per_hour,
        "endpoint": target,
    }
    lengths = {
        "replications": 1 if block.loadgen else block.replications or (None if server else CLOSED_REPLICATIONS),
        "requests": LOADGEN_MOST if block.loadgen else block.requests,
        "replication_s": duration or (LOADGEN_S if block.loadgen else None if server else CLOSED_S),
        "service_s": service,
    }
    return fields | {name: value for name, value in lengths.items() if value is not None}


def _address(block: ScenarioBlock, where: str) -> str | None:
    """The address of the block's service. Raises ConfigError where its protocol and its lengths do not fit."""
    target = parse_target(block.endpoint) if block.endpoint else None
    if target is not None and target.protocol == "openai" and not block.generates:
        raise ConfigError(f"{where}: completions need lengths.", "Name them: PROMPTS=128 TOKENS=64.")
    if target is not None and target.protocol != "openai" and block.generates:
        raise ConfigError(
            f"{where}: lengths of prompts and outputs belong to completions.",
            "Leave PROMPTS and TOKENS out, or name the endpoint: ENDPOINT=openai+http://…/v1/completions.",
        )
    if block.generates:
        _check_lengths(block, where)
    return None if target is None else target.url


def _check_lengths(block: ScenarioBlock, where: str) -> None:
    """Raise ConfigError for lengths that are no distribution and no lists."""
    if block.lengths and (block.prompt_lengths or block.new_tokens):
        raise ConfigError(
            f"{where}: pairs of lengths and lists of lengths exclude each other.",
            "Leave TOKENS out: the file of PROMPTS has the lengths of outputs too.",
        )
    if not block.lengths and not (block.prompt_lengths and block.new_tokens):
        given, other = ("prompts", "TOKENS=64") if block.prompt_lengths else ("outputs", "PROMPTS=128")
        raise ConfigError(f"{where}: completions need lengths of both, and only {given} have one.", f"Add {other}.")
    if (count := len({prompt for prompt, _ in block.lengths})) > MOST_LENGTHS:
        raise ConfigError(
            f"{where}: {count} different lengths of prompts, each with prompts and reference answers of its own.",
            f"Round them to at most {MOST_LENGTHS}, for example up to multiples of 16.",
        )


def _check_bounds(block: ScenarioBlock, bounds: Sequence[LatencyBound], where: str) -> None:
    """Raise ConfigError for bounds on tokens where a scenario has none, or where outputs of one token have no ITL."""
    of_tokens = [bound for bound in bounds if bound.of != "latency"]
    if of_tokens and not block.generates:
        raise ConfigError(
            f"{where}: {of_tokens[0].text} is a bound on tokens, and this scenario generates none.",
            "Bound the latency: BOUND='p99<50ms'. Or generate: make load MODELS=smollm2-135m PROMPTS=128 TOKENS=64.",
        )
    if of_tokens and block.loadgen:
        raise ConfigError(
            f"{where}: LoadGen's rule here is on the latency, and {of_tokens[0].text} is on tokens.",
            "Leave LOADGEN out, or bound the latency: BOUND='p99<2s'.",
        )
    longest = {max(new for _, new in pairs) for pairs in _distributions(block)}
    if 1 in longest and (between := next((bound for bound in bounds if bound.of == "itl"), None)):
        raise ConfigError(
            f"{where}: {between.text} is a bound on the time between tokens, and an output of one token has none.",
            "Ask for more: TOKENS=64. Or bound the first token: BOUND='ttft_p99<500ms'.",
        )


def _distributions(block: ScenarioBlock) -> list[tuple[tuple[int, int], ...]]:
    """The pairs of lengths of each load case of a block that generates."""
    if block.lengths:
        return [block.lengths]
    return [(pair,) for pair in product(block.prompt_lengths, block.new_tokens)]


def _longest(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """(longest prompt, longest output): a batch is as long as both."""
    return max(prompt for prompt, _ in pairs), max(new for _, new in pairs)


def _generating(block: ScenarioBlock, decoders: Decoders, where: str) -> Iterator[LoadCase]:
    """The load cases of decoders in a process of our own."""
    if block.scenario != "server":
        raise ConfigError(
            f"{where}: generation here is loaded by arrivals, and {block.scenario} has none.",
            "Use SCENARIOS=server; `make generate` measures one request after the other.",
        )
    common = _common(block, where)
    if not block.rates:
        raise ConfigError(
            f"{where}: generation has no replay to predict a peak from.", "Name the loads: RATES=1,2,4 (requests/s)."
        )
    if any(count > 1 for count in block.workers) or block.in_flight:
        raise ConfigError(
            f"{where}: a decoder here serves with one worker.", "Leave WORKERS and IN_FLIGHT out, or use MAX_BATCH=1,8."
        )
    policies = dict.fromkeys(_policies(block, where))
    if "continuous" in block.batching and max(block.max_batch) == 1:
        raise ConfigError(
            f"{where}.batching: in batches of 1 there is nothing to join.",
            "Allow more: MAX_BATCH=8, or leave BATCHING out.",
        )
    for pairs in _distributions(block):
        known = decoders(_longest(pairs))
        if not known:
            raise ConfigError(
                f"{where}: the configuration has no block of `generation`, so that nothing generates.",
                "Use one that has: make load CONFIG=configs/generation.yaml.",
            )
        selected = [case for case in known if _selects(block, case)]
        if not selected:
            raise ConfigError(
                f"{where}: no decoder of `generation` has these models, backends and precisions.",
                "Name some of its blocks, or leave `models`, `backends` and `precisions` out for all.",
            )
        reasons = [_not_joining(case) for case in selected]
        if block.batching == ("continuous",) and all(reasons):
            raise ConfigError(
                f"{where}.batching: {reasons[0]}.", f"Choose {' or '.join(_joinable())}, or leave BATCHING out."
            )
        for case in selected:
            yield from _cases_of_lengths(block, case, common, policies, pairs)


def _unequal(case: Deployment, pairs: Sequence[tuple[int, int]]) -> str | None:
    """Why a decoder cannot serve prompts of these lengths; None where it can."""
    if len({prompt for prompt, _ in pairs}) == 1:
        return None
    facts = facts_of(model_info(case.model), case.weights)
    if isinstance(facts, DecoderFacts) and facts.kind == "seq2seq":
        return f"prompts of several lengths are padded for causal models alone, and {case.model} has an encoder"
    if backend_info(case.backend).decoder_pads:
        return None
    return f"{case.backend} takes prompts of one length: it masks no padding (torch-eager does)"


def _not_joining(case: Deployment) -> str | None:
    """Why requests cannot join the running batch of a decoder; None where they can."""
    if backend_info(case.backend).decoder_joins is None:
        return f"{case.backend} lets no request join a running batch ({' and '.join(_joinable())} do)"
    facts = facts_of(model_info(case.model), case.weights)
    if isinstance(facts, DecoderFacts) and facts.kind == "seq2seq":
        return f"requests join causal models alone, and {case.model} has an encoder"
    return None


def _joinable() -> list[str]:
    return [name for name, info in BACKENDS.items() if info.decoder_joins is not None and info.computes]


def _cases_of_lengths(
    block: ScenarioBlock,
    case: Deployment,
    common: Mapping[str, Any],
    policies: Iterable[_Policy],
    pairs: tuple[tuple[int, int], ...],
) -> Iterator[LoadCase]:
    prompt_length, new_tokens = _longest(pairs) if pairs else (None, None)
    lengths = pairs if len(set(pairs)) > 1 else ()
    drawn = f"-lengths-{digest_of(sorted(lengths))[:8]}" if lengths else f"-p{prompt_length}-n{new_tokens}"
    # A completion of a service has one prompt.
    single = bool(pairs) and block.endpoint is not None
    decodes_here = bool(pairs) and block.endpoint is None
    skip = None if block.endpoint else case.skip_reason
    for policy in policies:
        samples = 1 if single else policy.max_batch
        name = load_id(case, block, replace(policy, max_batch=samples), common["endpoint"])
        skip_reason = skip
        if skip is None and decodes_here:
            skip_reason = _unequal(case, pairs) if policy.batching == "static" else _not_joining(case)
        if policy.in_flight and skip_reason is None:
            skip_reason = _no_issuing(case)
        yield LoadCase(
            load_id=f"{name}{drawn}" if pairs else name,
            model=case.model,
            slug=case.slug,
            backend=case.backend,
            device=case.device,
            precision=case.precision,
            sequence_length=None if pairs or isinstance(case, GenerationCase) else case.sequence_length,
            weights=case.weights,
            setting=case.setting,
            max_batch=samples,
            batching=policy.batching,
            max_delay_ns=policy.max_delay_ns,
            workers=policy.workers,
            in_flight=policy.in_flight,
            clients=tuple(dict.fromkeys(block.clients)) if block.scenario == "concurrency" else (),
            skip_reason=skip_reason,
            prompt_length=prompt_length,
            new_tokens=new_tokens,
            lengths=lengths,
            **common,
        )


@dataclass(frozen=True)
class _Policy:
    """The policy of one load case: batching, and what computes."""

    max_batch: int = 1
    max_delay_ns: int = 0
    workers: int = 1
    in_flight: int | None = None
    batching: Batching = "static"


def _computing(block: ScenarioBlock) -> list[tuple[int, int | None]]:
    """(workers, batches in flight) of a block's load cases."""
    threads = block.workers or (() if block.in_flight else (1,))
    return [*((count, None) for count in threads), *((1, count) for count in block.in_flight)]


def _policies(block: ScenarioBlock, where: str) -> Iterator[_Policy]:
    """Those of a block's load cases; a scenario without batching has one batch size."""
    if block.scenario == "server" and block.endpoint:
        yield _Policy()  # the service's own batching and workers are not ours to choose
    elif block.scenario == "server":
        try:
            delays = [parse_delay_ns(text) for text in block.max_delay]
        except UsageError as error:
            raise ConfigError(f"{where}: {error.problem}", error.hint) from None
        for max_batch, batching, delay, (workers, in_flight) in product(
            block.max_batch, block.batching, delays, _computing(block)
        ):
            # Nothing joins a batch of one, and nothing waits where requests may join.
            kind: Batching = batching if max_batch > 1 else "static"
            waits = max_batch > 1 and kind == "static"
            yield _Policy(max_batch, delay if waits else 0, workers, in_flight, kind)
    elif block.scenario == "offline":
        for max_batch, (workers, in_flight) in product(block.max_batch, _computing(block)):
            yield _Policy(max_batch, 0, workers, in_flight)
    elif block.scenario == "multi-stream":
        yield _Policy(block.samples)
    elif block.scenario == "concurrency":
        yield _Policy(workers=max(block.clients))
    else:
        yield _Policy()


def _setting_in_id(case: Deployment) -> str:
    info = backend_info(case.backend)
    in_id = info.decoder_setting_in_id if isinstance(case, GenerationCase) else info.setting_in_id
    return in_id(case.device, case.setting)


def load_id(case: Deployment, block: ScenarioBlock, policy: _Policy, endpoint: str | None) -> str:
    """The readable id, such as `minilm-l6-openvino-cpu-fp32-s128-server-b8-d2ms`; also its folder's name.

    Of an endpoint it has eight digits of the address's hash in place of the device: two services are two load cases.
    """
    parts = [case.slug, case.backend, case.device if endpoint is None else digest_of(endpoint)[:8], case.precision]
    length = None if block.generates or isinstance(case, GenerationCase) else case.sequence_length
    parts += [f"s{length}"] if length else []
    setting = _setting_in_id(case)
    parts += [setting] if setting else []
    parts += [block.scenario]
    parts += [f"b{policy.max_batch}"] if policy.max_batch > 1 else []
    parts += [policy.batching] if policy.batching != "static" else []
    parts += [f"d{policy.max_delay_ns / 1e6:g}ms"] if policy.max_delay_ns else []
    parts += [f"w{policy.workers}"] if policy.workers > 1 and block.scenario != "concurrency" else []
    parts += [f"f{policy.in_flight}"] if policy.in_flight else []
    parts += ["loadgen"] if block.loadgen else []
    return "-".join(parts)


def estimate_load(loads: Iterable[LoadCase]) -> Range:
    """(shortest, longest) seconds of the load stage: replications end by their number of requests, or by their time. As
    the rates that a service reaches are unknown, so is its number of requests, on which the time of replay depends."""
    every = [_case_s(load) for load in loads if load.skip_reason is None]
    return sum((low for low, _ in every), 0.0), sum((high for _, high in every), 0.0)


def _case_s(load: LoadCase) -> Range:
    sizes = len(batch_sizes(load))
    computes = backend_info(load.backend).computes
    start = START_S * sizes * load.sets
    service = load.service_s * (sizes + 1) if load.scenario == "server" else 0.0
    low, high = _served_s(load)
    return low + (start + service / 2 if computes else 0.0), high + start + service


def _served_s(load: LoadCase) -> Range:
    """Of replications and replay."""
    if load.scenario != "server":
        runs = len(planned_points(load, None)) * load.replications
        served, handled = runs * load.replication_s, runs * load.requests * HANDLED_S
        return served if load.method == "loadgen" else served / 4, served + handled
    # Replications of a slow service have LEAST_REQUESTS, those of the fastest are the shortest.
    possible = np.geomspace(LEAST_REQUESTS / load.replication_s, FASTEST_PER_S, STEPS).tolist()
    at_once = [load.rates] if load.rates else [len(load.factors) * (rate,) for rate in possible]
    measured = [_replications_s(load, rates) for rates in at_once]
    replayed = [REPLAY_S * requests_at_rate(load, rate) if load.replayed else 0.0 for rate in possible]
    if load.rates:
        # The rates are known, and the predicted peak is not.
        (run, handled), replay = measured[0], max(replayed)
        return run + SHORTEST * (handled + min(replayed)), run + handled + replay
    both = [(run, handled + replay) for (run, handled), replay in zip(measured, replayed, strict=True)]
    return min(run + SHORTEST * beside for run, beside in both), max(run + beside for run, beside in both)


def _replications_s(load: LoadCase, rates: Sequence[float]) -> Range:
    """(time of all schedules, time beside them) of replications at these rates."""
    counts = [requests_at_rate(load, rate) for rate in rates]
    runs = sum(count / rate for count, rate in zip(counts, rates, strict=True))
    return load.replications * runs, load.replications * sum(counts) * HANDLED_S


def load_time_in_words(loads: Iterable[LoadCase]) -> str:
    """`2 min to 9 min to measure, besides export`."""
    return f"{range_in_words(estimate_load(loads))} to measure, besides export"


def backend_case(load: LoadCase, batch_size: int) -> Case:
    """The case of a deployment at one batch size, as a backend gets it: model only, one batch at a time."""
    setting = backend_info(load.backend).setting_in_id(load.device, load.setting)
    shape = batch_size, load.sequence_length
    return Case(
        case_id=case_id(load.slug, load.backend, load.device, load.precision, *shape, "compute", "sync", setting),
        model=load.model,
        slug=load.slug,
        backend=load.backend,
        device=load.device,
        precision=load.precision,
        batch_size=batch_size,
        sequence_length=load.sequence_length,
        boundary="compute",
        mode="sync",
        weights=load.weights,
        setting=load.setting,
        skip_reason=load.skip_reason,
    )


def decoder_case(load: LoadCase, batch_size: int, prompt_length: int, new_tokens: int) -> GenerationCase:
    """The case of a load case's decoder: so many sequences, prompts and outputs of at most these lengths."""
    return GenerationCase(
        case_id=f"{load.load_id}-b{batch_size}-p{prompt_length}-n{new_tokens}",
        model=load.model,
        slug=load.slug,
        backend=load.backend,
        device=load.device,
        precision=load.precision,
        batch_size=batch_size,
        prompt_length=prompt_length,
        new_tokens=new_tokens,
        weights=load.weights,
        setting=load.setting,
        skip_reason=load.skip_reason,
    )


def served_cases(loads: Iterable[LoadCase]) -> list[Case]:
    """A case for each batch size that the load cases prepare: their exports and engines. Completions need the files of
    generation instead."""
    return [backend_case(load, size) for load in loads if load.new_tokens is None for size in batch_sizes(load)]
