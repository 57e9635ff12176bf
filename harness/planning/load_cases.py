"""Expands the scenarios of a configuration into load cases, and estimates how long they take (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from harness.backends import BACKENDS, backend_info
from harness.core.errors import ConfigError, UsageError
from harness.core.schemas import Case, LoadCase, Scenario
from harness.core.store import digest_of
from harness.endpoints.target import parse_target
from harness.planning.amounts import delay_ns, duration_s
from harness.planning.config import ScenarioBlock
from harness.serving.load_case import points_of, rounded_rate, sizes_of
from harness.serving.load_verdict import parse_bound

START_S = 3.0
"""Process, libraries, and load of one batch size, as measured on two cores; large models take longer."""

CLOSED_REPLICATIONS = 5
CLOSED_S = 2.0
"""Of closed loops, which need no verdict: nothing waits in a queue, so latencies of one replication hardly scatter."""

LOADGEN_S = 600.0
"""Shortest run by LoadGen's rules (mlcommons/inference, loadgen/mlperf.conf and test_settings.h)."""

ISSUING: tuple[Scenario, ...] = ("server", "offline")
"""Scenarios with workers, or batches in flight."""

LOADGEN_MOST = 500_000
"""Most requests of such a run: its record must still be readable."""


def load_cases(
    blocks: Sequence[ScenarioBlock], cases: Sequence[Case], settings: Mapping[str, str], source: str
) -> tuple[LoadCase, ...]:
    """Every scenario on every deployment of `cases`.

    cases: one of each model, backend, precision, sequence length and setting, at batch size 1. settings: by case id,
    the setting's part of a name, empty for the usual one. Raises ConfigError for a bound that is none, for a scenario
    without its bound, and for a block that selects nothing.
    """
    found: dict[str, LoadCase] = {}
    for index, block in enumerate(blocks):
        where = f"{source}: scenarios[{index}]"
        selected = [case for case in cases if _selects(block, case)]
        if not selected:
            raise ConfigError(
                f"{where}: no case of the matrix has these models, backends and precisions.",
                "Name some of the matrix, or leave `models`, `backends` and `precisions` out for all.",
            )
        common, policies = _common(block, where), dict.fromkeys(_policies(block, where))
        _refuse_issuing(block, selected, where)
        for case in selected:
            for load in _of_case(block, case, settings.get(case.case_id, ""), common, policies):
                found[load.load_id] = load
    return tuple(found.values())


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
    reasons = {case.backend: backend_info(case.backend).no_issuing_on(case.device) for case in cases}
    if all(reasons.values()):
        name, why = next(iter(reasons.items()))
        raise ConfigError(
            f"{where}.in_flight: {name} does not compute asynchronously: {why}.",
            f"Serve with threads, WORKERS={max(block.in_flight)}, or with {' or '.join(_asynchronous())} on a CPU.",
        )


def _asynchronous() -> list[str]:
    return [name for name, info in BACKENDS.items() if info.no_issuing_on("cpu") is None]


def _selects(block: ScenarioBlock, case: Case) -> bool:
    return (
        backend_info(case.backend).remote == (block.endpoint is not None)
        and (block.models is None or case.model in block.models)
        and (block.backends is None or case.backend in block.backends)
        and (block.precisions is None or case.precision in block.precisions)
    )


def _common(block: ScenarioBlock, where: str) -> dict[str, Any]:
    """The fields that all load cases of a block share."""
    try:
        bound = parse_bound(block.bound) if block.bound else None
        duration = duration_s(block.duration) if block.duration else None
        service = duration_s(block.service_duration) if block.service_duration else None
    except UsageError as error:
        raise ConfigError(f"{where}: {error.problem}", error.hint) from None
    server = block.scenario == "server"
    if server and bound is None:
        raise ConfigError(
            f"{where}: the server scenario needs a bound on the latency.", "Give one, in quotes: BOUND='p99<50ms'."
        )
    target = _address(block, where)
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
        "bound": bound if server else None,
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
    given = bool(block.prompt_lengths), bool(block.new_tokens)
    target = parse_target(block.endpoint) if block.endpoint else None
    generates = target is not None and target.protocol == "openai"
    if generates and not all(given):
        raise ConfigError(f"{where}: completions need lengths.", "Name them: PROMPTS=128 TOKENS=64.")
    if not generates and any(given):
        raise ConfigError(
            f"{where}: lengths of prompts and outputs belong to completions.",
            "Leave PROMPTS and TOKENS out, or name the endpoint: ENDPOINT=openai+http://…/v1/completions.",
        )
    return None if target is None else target.url


def _of_case(
    block: ScenarioBlock, case: Case, way: str, common: Mapping[str, Any], policies: Iterable[_Policy]
) -> Iterator[LoadCase]:
    lengths: list[tuple[int | None, int | None]] = [*product(block.prompt_lengths, block.new_tokens)]
    lengths = lengths or [(None, None)]
    for policy, (prompt_length, new_tokens) in product(policies, lengths):
        # A completion has one prompt.
        samples = policy.max_batch if prompt_length is None else 1
        name = load_id(case, way, block, replace(policy, max_batch=samples), common["endpoint"])
        skip_reason = None if block.endpoint else case.skip_reason
        if policy.in_flight and skip_reason is None and (why := backend_info(case.backend).no_issuing_on(case.device)):
            skip_reason = f"{case.backend} has no batches in flight: {why}"
        yield LoadCase(
            load_id=name if prompt_length is None else f"{name}-p{prompt_length}-n{new_tokens}",
            model=case.model,
            slug=case.slug,
            backend=case.backend,
            device=case.device,
            precision=case.precision,
            sequence_length=case.sequence_length if prompt_length is None else None,
            weights=case.weights,
            setting=case.setting,
            max_batch=samples,
            max_delay_ns=policy.max_delay_ns,
            workers=policy.workers,
            in_flight=policy.in_flight,
            clients=tuple(dict.fromkeys(block.clients)) if block.scenario == "concurrency" else (),
            skip_reason=skip_reason,
            prompt_length=prompt_length,
            new_tokens=new_tokens,
            **common,
        )


@dataclass(frozen=True)
class _Policy:
    """Of one load case: batching, and who computes."""

    max_batch: int = 1
    max_delay_ns: int = 0
    workers: int = 1
    in_flight: int | None = None


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
            delays = [delay_ns(text) for text in block.max_delay]
        except UsageError as error:
            raise ConfigError(f"{where}: {error.problem}", error.hint) from None
        for max_batch, delay, (workers, in_flight) in product(block.max_batch, delays, _computing(block)):
            yield _Policy(max_batch, delay if max_batch > 1 else 0, workers, in_flight)
    elif block.scenario == "offline":
        for max_batch, (workers, in_flight) in product(block.max_batch, _computing(block)):
            yield _Policy(max_batch, 0, workers, in_flight)
    elif block.scenario == "multi-stream":
        yield _Policy(block.samples)
    elif block.scenario == "concurrency":
        yield _Policy(workers=max(block.clients))
    else:
        yield _Policy()


def load_id(case: Case, way: str, block: ScenarioBlock, policy: _Policy, endpoint: str | None) -> str:
    """The readable id, such as `minilm-l6-openvino-cpu-fp32-s128-server-b8-d2ms`; also its folder's name.

    Of an endpoint it has eight digits of the address's hash in place of the device: two services are two load cases.
    """
    parts = [case.slug, case.backend, case.device if endpoint is None else digest_of(endpoint)[:8], case.precision]
    parts += [f"s{case.sequence_length}"] if case.sequence_length and not block.prompt_lengths else []
    parts += [way] if way else []
    parts += [block.scenario]
    parts += [f"b{policy.max_batch}"] if policy.max_batch > 1 else []
    parts += [f"d{policy.max_delay_ns / 1e6:g}ms"] if policy.max_delay_ns else []
    parts += [f"w{policy.workers}"] if policy.workers > 1 and block.scenario != "concurrency" else []
    parts += [f"f{policy.in_flight}"] if policy.in_flight else []
    parts += ["loadgen"] if block.loadgen else []
    return "-".join(parts)


def estimate_load(loads: Iterable[LoadCase]) -> tuple[float, float]:
    """(shortest, longest) seconds of the load stage: replications end by their number of requests, or by their time."""
    low = high = 0.0
    for load in loads:
        if load.skip_reason is not None:
            continue
        sizes = len(sizes_of(load))
        start = START_S * sizes * load.workers
        service = load.service_s * (sizes + 1) if load.scenario == "server" else 0.0
        points = len(load.rates or load.factors) if load.scenario == "server" else len(points_of(load, None))
        runs = points * load.replications * load.replication_s
        low += start + service / 2 + (runs if load.method == "loadgen" else runs / 4)
        high += start + service + runs
    return low, high
