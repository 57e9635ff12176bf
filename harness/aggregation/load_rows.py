"""Raw records of a load case → its row: latencies from the scheduled instant, verdicts, reality beside replay (pure).

The unit is the replication: figures are medians over replications with an interval over them, and a verdict needs
several. Denominators are scheduled requests: one that failed, or was not served in time, has an infinite latency.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.aggregation import checks, flags
from harness.aggregation.client_figures import client_figures
from harness.aggregation.energy_per_inference import MIN_WINDOW_S
from harness.aggregation.flags_host import MAX_THREADS_OVER
from harness.aggregation.generation_rows import token_findings
from harness.aggregation.token_load import TokenSamples, exceeds_bound, token_samples, within_bounds
from harness.core.schemas import (
    NO_FLOATS,
    Guard,
    GuardTimes,
    Interval,
    JudgedBound,
    Kind,
    LatencyBound,
    LoadCase,
    LoadedPoint,
    LoadEnergy,
    LoadFailure,
    LoadGenResult,
    LoadPercentile,
    LoadRow,
    Parity,
    PointEnergy,
    PredictedPoint,
    Prediction,
    Repeats,
    Replication,
    ServiceRun,
    Status,
    TokenLoad,
    TokenParity,
)
from harness.core.schemas.load_record import MOST_REQUESTS, Bounded
from harness.core.units import duration, significant
from harness.serving import arrivals
from harness.serving.load_case import LoadPoint, batch_policy, requests_at_rate, shortened_to
from harness.serving.load_verdict import (
    LATE_SHARE,
    Control,
    LoadDecision,
    combined_verdict,
    decide,
    dispatched_on_time,
    loadgen_upper_estimate,
    scheduled_latencies,
    server_verdict,
    verified_peak,
)
from harness.serving.peak_prediction import replay_times
from harness.serving.replay import replay_recorded, simulate
from harness.statistics import parity as distance
from harness.statistics.estimators import (
    PERCENTILE_MIN_SAMPLES,
    median,
    median_interval,
    percentile,
    process_percentiles,
)
from harness.statistics.ratios import mean_ratio

HOUR_S, MILLION = 3600, 1_000_000

NAMED = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

SEGMENTS = 10
"""Parts of a single long run (LoadGen's rules) that serve as replications in our own verdict beside LoadGen's."""

MAX_WAITED_SHARE = 0.05
"""Of the repeat check, for a CPU: an honest pass that shares its CPU took 2.5 times as long as in a loop that did not
(epyc-2-vcpu, 2026-11-30)."""

MIN_REPEAT_RATIO = 0.9
"""A repeated input that is faster than this, by the whole of its interval, voids the row: work was skipped."""

LOADGEN_QUANTILE = {"single-stream": 0.9, "multi-stream": 0.99}
"""The percentiles that LoadGen reports of closed loops."""


@dataclass(frozen=True)
class LoadEvidence:
    """The valid records of a load case. replications: by the name of the point, in the order of their numbers."""

    service: ServiceRun | None = None
    prediction: Prediction | None = None
    points: Sequence[LoadPoint] = ()
    replications: Mapping[str, Sequence[Replication]] = field(default_factory=dict)
    failure: LoadFailure | None = None
    energy: LoadEnergy | None = None

    @property
    def records(self) -> list[Replication]:
        """The replications of all points."""
        return [record for records in self.replications.values() for record in records]


def load_row(
    load: LoadCase,
    kind: Kind,
    criteria: flags.Criteria,
    evidence: LoadEvidence,
) -> LoadRow:
    """The row of a load case."""
    blank = _blank(load, kind)
    if load.skip_reason is not None:
        return blank.model_copy(update={"status": "skipped", "reason": load.skip_reason})
    service, failure = evidence.service, evidence.failure
    if failure is not None:
        blank = blank.model_copy(update={"reason": f"{failure.error} (in {failure.phase})", "hint": failure.hint})
    if service is None:
        if failure is not None:
            return blank.model_copy(update={"status": "failed"})
        return blank.model_copy(update={"reason": "it was not measured yet", "hint": "Run `make load`."})
    points = tuple(
        _point(load, point, evidence.replications[point.name], evidence)
        for point in evidence.points
        if evidence.replications.get(point.name)
    )
    guards = _guards(service, evidence)
    parity = distance.worst([*service.parity.values(), *(point.parity for point in points if point.parity)])
    tokens = _token_parity(service, evidence)
    prediction = evidence.prediction
    judged = [(point.asked_per_s, point.verdict) for point in points]
    highest_pass, lowest_fail = verified_peak(
        (rate, verdict) for rate, verdict in judged if rate is not None and verdict is not None
    )
    if points or _fails_at_every_load(load, prediction):
        status: Status = "measured"
    else:
        status = "failed" if failure else "missing"
    row = blank.model_copy(
        update={
            "status": status,
            "void": _misplaced(load, service)
            or _more_cpus(load, service)
            or _unchecked(load, parity, criteria)
            or _wrong_tokens(load, tokens, criteria, service.rounding)
            or _wrong_outputs(load, criteria, parity, service)
            or _skipped_work(load, service)
            or _outside_the_times(load, service, points)
            or _another_model(points),
            "points": points,
            "service_median_ns": {size: median(times) for size, times in service.service_ns.items()},
            "predicted_peak_per_s": prediction.peak_per_s if prediction else None,
            "predicted_interval": prediction.peak_interval if prediction else None,
            "capacity_per_s": prediction.capacity_per_s if prediction else None,
            "predicted": prediction.points if prediction else (),
            "map": prediction.map if prediction else (),
            "peak_pass_per_s": highest_pass,
            "peak_fail_per_s": lowest_fail,
            "guards": guards,
            "parity": parity,
            "token_parity": tokens,
            "placement": service.placement,
            "threads": service.threads,
            "memory_bytes": None if load.endpoint else service.peak_rss_bytes,
            "environment_ids": _environments(service, evidence),
            "artifacts": service.artifacts,
            "notes": (*service.notes, *_notes(load, service, evidence, guards, points)),
        }
    )
    if row.reason is None and row.status == "missing":
        row = row.model_copy(update={"reason": "no replication was measured yet", "hint": "Run `make load`."})
    joules = _best_joules(row)
    idle_w = evidence.energy.idle_w if evidence.energy and joules is not None else None
    return row.model_copy(update={"cost_per_million": _cost(row), "joules_per_request": joules, "idle_w": idle_w})


def _blank(load: LoadCase, kind: Kind) -> LoadRow:
    same = {name: getattr(load, name) for name in LoadRow.model_fields if name in LoadCase.model_fields}
    return LoadRow(**same, kind=kind, status="missing")


def _fails_at_every_load(load: LoadCase, prediction: Prediction | None) -> bool:
    """Whether a case meets its bound at no load by replay, so that there is nothing to verify."""
    return not load.rates and prediction is not None and prediction.peak_per_s is None


@dataclass(frozen=True)
class _Replication:
    """One replication as arrays, one entry a request; times in ns."""

    scheduled: NDArray[np.int64]
    latency: NDArray[np.float64]
    queue: NDArray[np.float64]
    compute: NDArray[np.float64]
    dispatch: NDArray[np.float64]
    added: NDArray[np.float64]
    batches: int
    failed: int
    length_ns: int
    record: Replication
    tokens: TokenSamples | None


def _replication_figures(load: LoadCase, record: Replication) -> _Replication:
    sizes = np.array(record.sizes, dtype=np.int64)
    start, done, ready = (
        np.array(times, dtype=np.int64) for times in (record.start_ns, record.done_ns, record.ready_ns)
    )
    served = int(sizes.sum())
    requests = max(record.requests, served)
    by_request = [np.repeat(times, sizes) for times in (start, done)]
    lost = np.zeros(len(sizes), dtype=bool)
    lost[list(record.failed)] = True
    failed = np.concatenate([np.repeat(lost, sizes), np.ones(requests - served, dtype=bool)])
    ends = np.concatenate([by_request[1], np.zeros(requests - served, dtype=np.int64)])
    if load.scenario == "server":
        scheduled = np.array(record.scheduled_ns, dtype=np.int64)
    elif load.scenario == "offline":
        scheduled = np.zeros(requests, dtype=np.int64)
    else:
        scheduled = by_request[0]
    batch_ends = ends
    tokens = token_samples(load, record, failed)
    if record.generated is not None and tokens is not None:
        # A request is done with its own last token, before the end of its batch.
        ends = np.where(failed, 0, tokens.done).astype(np.int64)
    added = np.zeros(0)
    # The replay lets no request join a running batch.
    can_replay = load.scenario == "server" and load.endpoint is None and load.batching == "static"
    if can_replay and served == requests and not record.failed:
        service_ns = (done - start).tolist()
        replayed = replay_recorded(record.scheduled_ns, record.sizes, service_ns, batch_policy(load), record.workers)
        added = (batch_ends - replayed).astype(np.float64)
    last = max(int(done.max(initial=0)), int(scheduled.max(initial=0)))
    return _Replication(
        scheduled=scheduled,
        latency=scheduled_latencies(scheduled, ends, failed),
        queue=(by_request[0] - scheduled[:served]).astype(np.float64),
        compute=(done - start).astype(np.float64),
        dispatch=(start - ready).astype(np.float64),
        added=added,
        batches=len(sizes),
        failed=int(failed.sum()),
        length_ns=max(1, last - min(int(scheduled.min(initial=0)), 0)),
        record=record,
        tokens=tokens,
    )


def _point(load: LoadCase, point: LoadPoint, records: Sequence[Replication], evidence: LoadEvidence) -> LoadedPoint:
    runs = [_replication_figures(load, record) for record in records]
    requests, failed = sum(run.latency.size for run in runs), sum(run.failed for run in runs)
    served = requests - failed
    seconds = sum(run.length_ns for run in runs) / 1e9
    samples = load.max_batch if load.scenario == "multi-stream" else 1
    compute = np.concatenate([run.compute for run in runs])
    server = load.scenario == "server"
    measured = LoadedPoint(
        point=point.name,
        factor=point.factor,
        clients=point.clients,
        asked_per_s=point.rate_per_s,
        scheduled_per_s=median([arrivals.rate_of(run.scheduled) for run in runs]) if server else None,
        achieved_per_s=served / seconds,
        samples_per_s=served * samples / seconds,
        replications=len(runs),
        requests=requests,
        failed=failed,
        latency={} if load.scenario == "offline" else _latencies(load, runs),
        queue_p99_ns=_pooled([run.queue for run in runs]) if server else None,
        compute_p50_ns=percentile(compute, 0.5) if compute.size else 0.0,
        compute_p99_ns=percentile(compute, 0.99) if compute.size else 0.0,
        dispatch_p99_ns=_pooled([run.dispatch for run in runs]) if server else None,
        unseen_p99_ns=_pooled([np.array(run.record.unseen_ns, np.float64) for run in runs]) if server else None,
        added_p99_ns=_pooled([run.added for run in runs]) if server else None,
        mean_batch=_mean_batch(runs),
        loadgen_estimate_ns=_estimate(load, runs),
        joules_per_request=None if load.endpoint else _joules(runs, point, evidence.energy, samples),
        parity=distance.worst([run.record.parity for run in runs if run.record.parity is not None]),
        client=client_figures(records) if load.endpoint else None,
        tokens=_token_load(load, runs, seconds),
    )
    return _with_verdict(load, measured, runs, evidence)


def _mean_batch(runs: Sequence[_Replication]) -> float:
    """Mean number of requests of a batch; with continuous batching, of a decode step."""
    joined = [(run, generated) for run in runs if (generated := run.record.generated) and generated.joined]
    if not joined:
        return sum(sum(run.record.sizes) for run in runs) / max(1, sum(run.batches for run in runs))
    stepped = sum(len(instants) - 1 for _, generated in joined for instants in generated.token_ns if instants)
    return stepped / max(1, sum(generated.joined.steps for _, generated in joined if generated.joined))


def _token_load(load: LoadCase, runs: Sequence[_Replication], seconds: float) -> TokenLoad | None:
    """Times of the tokens of a load; None without any."""
    samples = [run.tokens for run in runs if run.tokens is not None]
    if not samples:
        return None
    gaps = [sample.all_gaps for sample in samples]
    between = all(gap.size for gap in gaps) and all(_steps_are_tokens(run) for run in runs)
    computed = sum(sample.computed for sample in samples)
    served = sum(int(sample.asked[np.isfinite(sample.done)].sum()) for sample in samples)
    return TokenLoad(
        ttft=_percentiles(load, "ttft", [sample.ttft for sample in samples]),
        itl=_percentiles(load, "itl", gaps) if between else {},
        tokens_per_s=served / seconds,
        one_token=sum(int(np.count_nonzero(sample.asked == 1)) for sample in samples),
        useful_share=served / computed if computed else None,
    )


def _steps_are_tokens(run: _Replication) -> bool:
    """Whether each step of the complete streams has one token; always so of decoders here."""
    if run.record.client is None:
        return True
    steps, lost = run.record.client.steps, frozenset(run.record.failed)
    if steps is None:
        return False
    ends = zip(steps.offsets, steps.offsets[1:], strict=False)
    return all(set(steps.tokens[low:high]) <= {1} for place, (low, high) in enumerate(ends) if place not in lost)


def _with_verdict(
    load: LoadCase, point: LoadedPoint, runs: Sequence[_Replication], evidence: LoadEvidence
) -> LoadedPoint:
    """The point with its verdict, and beside replay; the same point where the case has no bound."""
    if load.bound is None:
        return point
    bound = load.bound
    replayed = _replayed(evidence.prediction, point.asked_per_s)
    control = _control(load, runs, replayed, evidence.service)
    dispatch = np.concatenate([run.dispatch for run in runs])
    of_requests = [limit.limit_ns for limit in load.bounds if limit.of != "itl"]
    on_time = dispatched_on_time(dispatch, min(of_requests or [bound.limit_ns]))
    decisions = [_decision(load, limit, runs, on_time, control) for limit in load.bounds]
    decision = decisions[0]
    good = sum(int(np.count_nonzero(within_bounds(load.bounds, run.latency, run.tokens))) for run in runs)
    # A closed loop has no schedule: it is divided by its length.
    server = load.scenario == "server"
    seconds = sum(int(run.scheduled[-1]) if server else run.length_ns for run in runs) / 1e9
    p99 = [percentile(run.latency, 0.99) for run in runs]
    ratios = {}
    if replayed is not None:
        pairs = (("p50", 0.5, replayed.p50_ns), ("p99", 0.99, replayed.p99_ns))
        ratios = {
            name: ratio
            for name, quantile, predicted in pairs
            if math.isfinite(ratio := median([percentile(run.latency, quantile) for run in runs]) / predicted)
        }
    return point.model_copy(
        update={
            "goodput": good / point.requests,
            "goodput_per_s": good / seconds if seconds else None,
            "over_share": decision.share,
            "over_explained": decision.explained,
            "over_low": decision.low,
            "over_high": decision.high,
            "verdict": combined_verdict([result.verdict for result in decisions]),
            "judged": _judged_bounds(load, decisions),
            "loadgen": _loadgen(load, runs) if load.method == "loadgen" else None,
            "predicted": replayed,
            "reality_over_replay": ratios,
            "in_band": None
            if replayed is None
            else sum(replayed.p99_band_ns.low <= value <= replayed.p99_band_ns.high for value in p99),
        }
    )


def _control(
    load: LoadCase, runs: Sequence[_Replication], replayed: PredictedPoint | None, service: ServiceRun | None
) -> Control | None:
    """Replay of each replication's own schedule, as the control variate of the verdict; None where replay has not
    simulated this load with as many requests, or where replications have different numbers."""
    if load.bound is None or load.method == "loadgen" or replayed is None or service is None:
        return None
    if replayed.over_error <= 0 or len({run.scheduled.size for run in runs}) > 1:
        return None
    schedules = np.stack([run.scheduled for run in runs])
    simulation = simulate(schedules, [replay_times(service)], batch_policy(load), load.parallel, (runs[0].record.seed,))
    shares = np.mean(simulation.latency_ns > load.bound.limit_ns, axis=1)
    return Control(tuple(shares.tolist()), replayed.over_share, replayed.over_error)


def _decision(
    load: LoadCase, bound: LatencyBound, runs: Sequence[_Replication], on_time: bool, control: Control | None
) -> LoadDecision:
    """Our verdict on one bound. A single long run is cut into SEGMENTS, which are long against the memory of its queue.

    The unit stays the replication where the bound is on times between tokens: those of one request depend on each
    other, and so do those of one queue.
    """
    values = [exceeds_bound(bound, run.latency, run.tokens) for run in runs]
    if load.method == "loadgen" and len(runs) == 1 and values[0].size >= 10 * SEGMENTS:
        parts = np.array_split(values[0], SEGMENTS)
        return decide([int(part.sum()) for part in parts], [part.size for part in parts], bound, on_time)
    # A replication of one-token outputs alone has no time between tokens.
    kept = [part for part in values if part.size]
    if not kept:
        return LoadDecision("UNDECIDED", 0.0, None, None)
    alone = control if bound.of == "latency" else None
    return decide([int(part.sum()) for part in kept], [part.size for part in kept], bound, on_time, alone)


def _judged_bounds(load: LoadCase, decisions: Sequence[LoadDecision]) -> tuple[JudgedBound, ...]:
    if [bound.of for bound in load.bounds] == ["latency"]:
        return ()
    return tuple(
        JudgedBound(
            bound=bound.text,
            over_share=decision.share,
            over_low=decision.low,
            over_high=decision.high,
            verdict=decision.verdict,
        )
        for bound, decision in zip(load.bounds, decisions, strict=True)
    )


def _loadgen(load: LoadCase, runs: Sequence[_Replication]) -> LoadGenResult | None:
    if load.bound is None:
        return None
    shortest = round(load.replication_s * 1e9)
    verdicts = [
        server_verdict(
            run.scheduled,
            run.latency,
            load.bound.quantile,
            load.bound.limit_ns,
            least_duration_ns=round(0.98 * shortest),
        ).valid
        for run in runs
    ]
    return "VALID" if all(verdicts) else "INVALID"


def _estimate(load: LoadCase, runs: Sequence[_Replication]) -> float | None:
    """LoadGen's upper estimate of its percentile of a closed loop, of its long run."""
    quantile = LOADGEN_QUANTILE.get(load.scenario)
    if load.method != "loadgen" or quantile is None:
        return None
    estimate = loadgen_upper_estimate(np.concatenate([run.latency for run in runs]), quantile)
    return estimate if estimate is not None and math.isfinite(estimate) else None


def _latencies(load: LoadCase, runs: Sequence[_Replication]) -> dict[str, LoadPercentile]:
    """p50, p90, p99 and the percentiles of the bounds."""
    return _percentiles(load, "latency", [run.latency for run in runs])


def _percentiles(load: LoadCase, of: Bounded, parts: Sequence[NDArray[np.float64]]) -> dict[str, LoadPercentile]:
    named = NAMED | {f"p{100 * bound.quantile:g}": bound.quantile for bound in load.bounds if bound.of == of}
    return {name: _percentile(parts, quantile) for name, quantile in sorted(named.items(), key=lambda entry: entry[1])}


def _percentile(parts: Sequence[NDArray[np.float64]], quantile: float) -> LoadPercentile:
    """parts: of each replication."""
    values = process_percentiles(parts, quantile)
    if quantile not in PERCENTILE_MIN_SAMPLES and quantile != 0.5:
        # As for the named percentiles: three times the reciprocal of the tail in each replication.
        enough = min(part.size for part in parts) * (1 - quantile) >= 3
        values = values if enough else None
    if values is None:
        return LoadPercentile(ns=None)
    centre = median(values)
    if not math.isfinite(centre):
        return LoadPercentile(ns=None, infinite=True)
    finite = all(map(math.isfinite, values))
    return LoadPercentile(ns=centre, interval=median_interval(values) if finite else None)


def _joules(runs: Sequence[_Replication], point: LoadPoint, energy: LoadEnergy | None, samples: int) -> float | None:
    """Energy of a completed request, of a query of several samples by sample, without the GPU's idle power; None where
    a replication is too short a window of the counter, or where the GPU used no more than idle."""
    spent = energy.points.get(point.name) if energy else None
    if energy is None or spent is None or _window_s(spent) < MIN_WINDOW_S:
        return None
    metered = [run for run in runs if run.record.number in spent.numbers]
    served = samples * sum(run.latency.size - run.failed for run in metered)
    net_j = spent.energy_j - energy.idle_w * spent.window_ns / 1e9
    return net_j / served if len(metered) == len(spent.numbers) and served and net_j > 0 else None


def _window_s(spent: PointEnergy) -> float:
    """Each replication is a window of its own; those of a point are about equally long."""
    return spent.window_ns / len(spent.numbers) / 1e9 if spent.numbers else 0.0


def _no_energy(load: LoadCase, energy: LoadEnergy | None, points: Sequence[LoadedPoint]) -> str | None:
    """Why no load of a row on a GPU of our own has its energy; None where one has."""
    if load.device != "cuda" or load.endpoint or not points or any(point.joules_per_request for point in points):
        return None
    if energy is None or not energy.points:
        return "no energy: the GPU's counter was not read"
    longest_s = max(map(_window_s, energy.points.values()))
    if longest_s >= MIN_WINDOW_S:
        return "no energy: the GPU used no more than idle, or not all of its replications were metered"
    rate = max(point.achieved_per_s for point in points)
    return (
        f"no energy: the GPU's counter needs {MIN_WINDOW_S:g} s, and a replication lasts {duration(longest_s * 1e9)}: "
        f"DURATION={MIN_WINDOW_S + 1:g}s REQUESTS={math.ceil(rate * (MIN_WINDOW_S + 1)):d}"
    )


def _pooled(parts: Sequence[NDArray[np.float64]]) -> float | None:
    values = np.concatenate(parts)
    return percentile(values, 0.99) if values.size else None


def _replayed(prediction: Prediction | None, rate: float | None) -> PredictedPoint | None:
    if prediction is None or rate is None:
        return None
    return next((point for point in prediction.points if math.isclose(point.rate_per_s, rate, rel_tol=1e-9)), None)


def _guards(service: ServiceRun, evidence: LoadEvidence) -> tuple[Guard, ...]:
    guards = (
        _guard("repeat-input", service.repeat_input),
        _guard("other-order", service.other_order),
        _seed_guard(evidence),
    )
    return tuple(guard for guard in guards if guard is not None)


def _guard(name: Literal["repeat-input", "other-order"], times: GuardTimes | None) -> Guard | None:
    """Median ratio of the pairs with its interval over pairs; None where it was not timed."""
    if times is None:
        return None
    ratios = _ratios(times)
    if not ratios:
        return Guard(name=name, ratio=1.0, interval=None)
    return Guard(name=name, ratio=median(ratios), interval=median_interval(ratios))


def _ratios(times: GuardTimes, saved_ns: float = 0.0) -> list[float]:
    """Of pairs. saved_ns: what the other block may save."""
    return [
        (other + saved_ns) / usual for usual, other in zip(times.usual_ns, times.other_ns, strict=True) if usual > 0
    ]


def _seed_guard(evidence: LoadEvidence) -> Guard | None:
    """Median service time of replications with other seeds: even over odd numbers of the first point, in pairs."""
    for point in evidence.points:
        records = evidence.replications.get(point.name, ())
        centres = [
            median(np.array(record.done_ns, dtype=np.float64) - np.array(record.start_ns, dtype=np.float64))
            for record in records
            if record.sizes
        ]
        ratios = [second / first for first, second in zip(centres[::2], centres[1::2], strict=False) if first > 0]
        if len(ratios) >= 2:
            mean = mean_ratio(ratios)
            return Guard(name="other-seed", ratio=mean.value, interval=mean.ci95)
    return None


def _unchecked(load: LoadCase, parity: Parity | None, criteria: flags.Criteria) -> str | None:
    """Outputs without a comparison prove nothing. Completions are compared as text; calibration computes nothing."""
    compared = parity is not None or criteria.calibration or load.new_tokens is not None
    return None if compared else "the outputs were not compared with the reference"


def _wrong_outputs(load: LoadCase, criteria: flags.Criteria, parity: Parity | None, service: ServiceRun) -> str | None:
    """Why outputs differ too much from the reference, or equal ones prove nothing; None where nothing shows it."""
    if parity is None:
        return None
    if parity.nonfinite:
        return f"{parity.nonfinite} output values are not finite where the reference is, or the other way round"
    tolerance = criteria.tolerance
    far = flags.beyond_tolerance(load, parity, tolerance, criteria.judge_top1) if tolerance is not None else ()
    if far:
        return far[0].flag.detail
    if tolerance is not None and service.repeats is not None:
        wrong = flags.wrong_new_answers([service.repeats], parity, tolerance)
        if wrong is not None:
            return wrong
    return flags.ALIKE if flags.answers_alike(load, criteria) else None


def _repeated_input(load: LoadCase, service: ServiceRun) -> Interval | None:
    """How many times as long a repeated input takes, with the confidence of the repeat check: of 1,000 load cases on a
    busy machine the 95% interval of the guard would void ten, and with fewer pairs more. None for fewer than eleven
    pairs, as of slow services, whose new inputs decide."""
    times = service.repeat_input
    if times is None:
        return None
    # An honest pass saves no more than its input's way from the memory. A GPU has a memory of its own, far faster.
    saved_ns = (times.copy_ns or 0.0) if load.device == "cpu" else 0.0
    return checks.ratio_interval(_ratios(times, saved_ns))


def _skipped_work(load: LoadCase, service: ServiceRun) -> str | None:
    """Why inputs were answered without the work of a pass; None where nothing shows it."""
    repeated = _repeated_input(load, service) if load.new_tokens is None else None
    if repeated is not None and repeated.high < MIN_REPEAT_RATIO:
        return (
            f"a repeated input takes {repeated.low:.2g} to {repeated.high:.2g} times as long as inputs in rotation: "
            "work was skipped"
        )
    repeats, usual = service.repeats, median(service.service_ns[min(service.service_ns)])
    if repeats is None or load.new_tokens is not None:
        return None
    if checks.is_stuck(repeats.compared, repeats.unchanged):
        return "new inputs, written where stored ones lay, got the answers of the stored ones"
    interval = checks.repeat_interval([repeats])
    if interval is not None and interval.low > 1 / MIN_REPEAT_RATIO:
        return (
            f"new inputs take {interval.low:.3g} to {interval.high:.3g} times as long as stored ones: work was skipped"
        )
    # Beside others a pass takes longer than alone, not less. A GPU takes another time for single passes. Where the
    # check waited for a CPU, its threads waited for each other as well, and a load cannot have grade C.
    alone = (repeats.waited_share or 0.0) <= MAX_WAITED_SHARE
    ratio = checks.checked_over_timed(repeats, usual, service.threads) if load.device == "cpu" and alone else None
    if ratio is not None:
        return f"passes that are checked take {ratio:.3g} times as long as those that are timed: work was skipped"
    return None


def _outside_the_times(load: LoadCase, service: ServiceRun, points: Sequence[LoadedPoint]) -> str | None:
    """Why work is not in the times: outputs() computes, or batches under load are shorter than all service times."""
    if load.new_tokens is not None or not service.parity:
        return None
    alone = service.service_ns[min(service.service_ns)]
    lazy = service.outputs_time and checks.lazy_outputs(service.outputs_time, median(alone), load.device)
    if lazy:
        return f"{lazy}: it computes there"
    shortest = _shortest_ns(service, alone)
    for point in points:
        # Workers may slow each other in service times and not at a low rate; a request that is refused is short.
        least = shortest / (checks.MAX_CHECKED_RATIO * load.parallel)
        if point.compute_p50_ns < least and 2 * point.failed < point.requests:
            took = f"batches take {duration(point.compute_p50_ns)} under load (p50)"
            return f"{took}, and {duration(shortest)} at least while service times are measured: work was skipped"
    return None


def _shortest_ns(service: ServiceRun, times: Sequence[int]) -> float:
    """The shortest service time, or the mean without the share of the time in which the process waited for a CPU: each
    of a few long passes may have waited."""
    used = service.cpu_use
    share = 0.0 if used is None else (used.waited_ns or 0) / used.wall_ns
    own_ns = max(0.0, 1 - share) * sum(times) / len(times)
    return min(own_ns, *times)


def _token_parity(service: ServiceRun, evidence: LoadEvidence) -> TokenParity | None:
    """The forced comparison before the load, with the free sequences of every replication. None without any."""
    forced = service.token_parity
    if forced is None:
        return None
    free = [
        record.generated.parity
        for record in evidence.records
        if record.generated is not None and record.generated.parity is not None
    ]
    differing = [parity for parity in free if parity.first_difference is not None]
    first = min(differing, key=lambda parity: parity.first_difference or 0, default=forced)
    return forced.model_copy(
        update={
            "free_sequences": sum(parity.free_sequences for parity in free),
            "free_equal": sum(parity.free_equal for parity in free),
            "first_difference": first.first_difference,
            "first_margin": first.first_margin,
            "first_moved": first.first_moved,
            "unexplained": forced.unexplained + sum(parity.unexplained for parity in free),
        }
    )


def _wrong_tokens(
    load: LoadCase,
    parity: TokenParity | None,
    criteria: flags.Criteria,
    rounding: float | None,
) -> str | None:
    """Why tokens of a decoder are wrong, or were not compared, by the rules of the table of generation."""
    if not load.generates_here or criteria.calibration:
        return None
    flagged = [finding.flag for finding in token_findings(load, parity, criteria.tolerance, rounding)]
    return next((flag.detail for flag in flagged if flag.caps_at == "F" or flag.name == flags.PARITY_UNCHECKED), None)


LEAST_COMPARED = 8
"""Compared completions, from which on not one equal answer shows another model."""


def _another_model(points: Sequence[LoadedPoint]) -> str | None:
    """For completions: the finding that no compared answer of any load equals greedy fp32."""
    clients = [point.client for point in points if point.client is not None and point.client.equal is not None]
    compared = sum(client.compared for client in clients)
    if compared < LEAST_COMPARED or any(client.equal for client in clients):
        return None
    return f"none of {compared} completions has the tokens or text of greedy fp32: it is another model"


def _misplaced(load: LoadCase, service: ServiceRun) -> str | None:
    """Where and in what precision it ran instead; None where as planned, or where nothing is computed."""
    ran = service.placement
    if load.endpoint is not None:
        return None  # a service does not show it
    right = ran.precision in (load.precision, NO_FLOATS) and ran.device.partition(":")[0] == load.device
    compared = bool(service.parity) or service.token_parity is not None
    return None if right or not compared else f"it ran in {ran.precision} on {ran.device}"


def _more_cpus(load: LoadCase, service: ServiceRun) -> str | None:
    """How many more CPUs than its threads it used while service times were measured, its helper processes included."""
    used = service.cpu_use
    if used is None or load.device != "cpu":
        return None
    # One thread issues all batches in flight, beside those that compute them.
    given = service.threads + 1 if load.in_flight else service.threads * load.parallel
    counted = (used.cpu_ns + used.helpers_ns) / used.wall_ns
    if counted <= given * (1 + MAX_THREADS_OVER):
        return None
    return f"it used {counted:.2f} CPUs on average, and has {given} by its threads and workers"


def _environments(service: ServiceRun, evidence: LoadEvidence) -> tuple[str, ...]:
    records = (service, *evidence.records)
    return tuple(sorted({record.environment_id for record in records if record.environment_id is not None}))


def _unmade(repeats: Repeats) -> list[str]:
    """Notes on parts of the repeat check that were not made."""
    reasons = {
        "answers from memory were not looked for": repeats.missing,
        "answers to new samples were not compared": repeats.new_missing,
    }
    return [f"{what}: {why}" for what, why in reasons.items() if why]


def _notes(
    load: LoadCase,
    service: ServiceRun,
    evidence: LoadEvidence,
    guards: Sequence[Guard],
    points: Sequence[LoadedPoint],
) -> list[str]:
    notes = [note for guard in guards if load.new_tokens is not None and (note := _prefix_note(guard))]
    notes += _about_tokens(load, points)
    repeats = service.repeats
    notes += [] if repeats is None else _unmade(repeats)
    new = checks.repeat_interval([repeats]) if repeats is not None and load.new_tokens is not None else None
    if new is not None and new.low > 1 / MIN_REPEAT_RATIO:
        notes.append(
            f"new prompts take {new.low:.3g} to {new.high:.3g} times as long as stored ones: the server keeps answers "
            "or caches of prompts. Start it without them to measure the whole work"
        )
    notes += [note for guard in guards if (note := _depends(guard))]
    if _fails_at_every_load(load, evidence.prediction):
        first = service.service_ns[min(service.service_ns)]
        notes.append(
            f"by replay no load meets the bound: a request alone takes {duration(median(first))}, "
            f"p99 {duration(percentile(first, 0.99))}. RATES names loads that are measured all the same"
        )
    planned = len(evidence.points) * load.replications
    measured = sum(point.replications for point in points)
    if measured < planned:
        notes.append(f"{planned - measured} of {planned} replications are missing: `make load` measures them")
    if any(point.verdict == "UNDECIDED" for point in points):
        notes.append("an UNDECIDED load needs more requests: REPLICATIONS=30, or a longer DURATION")
    notes += _shortened(load, points)
    unseen = max((point.unseen_p99_ns or 0 for point in points), default=0)
    if load.bound is not None and unseen > LATE_SHARE * load.bound.limit_ns:
        notes.append(
            f"the issuing thread noticed the ends of batches up to {duration(unseen)} late (p99): a PASS holds, a "
            "FAIL may be the thread's. WORKERS in place of IN_FLIGHT have a thread each"
        )
    if service.placement.ran_eagerly is not None:
        notes.append(f"some work ran uncompiled: {service.placement.ran_eagerly}")
    if (lacking := _no_energy(load, evidence.energy, points)) is not None:
        notes.append(lacking)
    errors = [record.error for record in evidence.records if record.error]
    if errors:
        notes.append(f"failed requests: {errors[0]}")
    return notes


def _shortened(load: LoadCase, points: Sequence[LoadedPoint]) -> list[str]:
    """On loads that passed with replications too short for a queue that grows slowly, because of their requests."""
    passed = [point.asked_per_s for point in points if point.verdict == "PASS" and point.asked_per_s is not None]
    lasting = [(times, rate) for rate in passed if (times := shortened_to(load, rate)) is not None]
    if not lasting or load.method == "loadgen":
        return []
    times, rate = min(lasting)
    return [
        f"at {significant(rate)}/s replications of {requests_at_rate(load, rate):,} requests last {times:.2g} times "
        f"the limit of the bound: a load up to {1 / times:.0%} above the capacity may pass. "
        f"REQUESTS={MOST_REQUESTS} makes them longer"
    ]


def _about_tokens(load: LoadCase, points: Sequence[LoadedPoint]) -> list[str]:
    """On batching, and on what a bound on tokens is held against."""
    notes = []
    if load.batching == "continuous":
        notes.append(
            "continuous batching: a request joins before the next step, by a pass of its own over its prompt, which "
            "delays the others. Only the named loads are measured: replay does not model joining"
        )
    elif load.generates_here and load.max_batch > 1:
        notes.append(
            "static batching: a batch runs to its longest output. BATCHING=continuous lets requests join, in backends "
            "that can"
        )
    token_loads = [point.tokens for point in points if point.tokens is not None]
    between = [bound.text for bound in load.bounds if bound.of == "itl"]
    if between and token_loads and not all(token_load.itl for token_load in token_loads):
        notes.append(
            f"{between[0]} is held against the steps of the streams: not every step is known to have one token, and "
            "the time of a step is not divided"
        )
    if between and (alone := sum(token_load.one_token for token_load in token_loads)):
        notes.append(f"{alone} requests of one token have no time between tokens")
    return notes


def _depends(guard: Guard) -> str:
    """Where times depend on what should not matter, by the whole interval."""
    names = {"other-order": "another order of the inputs", "other-seed": "schedules of another seed"}
    if guard.name not in names or guard.interval is None:
        return ""
    if guard.interval.low <= 1 / MIN_REPEAT_RATIO and guard.interval.high >= MIN_REPEAT_RATIO:
        return ""
    return f"{names[guard.name]} takes {guard.ratio:.3g} times as long: its times depend on it"


def _prefix_note(guard: Guard) -> str:
    """On a server that keeps the cache of earlier prompts: prompts repeat here after 128 of them."""
    if guard.name != "repeat-input" or guard.interval is None or guard.interval.high >= MIN_REPEAT_RATIO:
        return ""
    return (
        f"a repeated prompt takes {guard.ratio:.2g} times as long as others: the server keeps caches of prompts. Start "
        "it without them to measure the whole pass over a prompt"
    )


def _cost(row: LoadRow) -> float | None:
    """Cost of a million requests at the highest rate that passed; in a closed loop, at its throughput."""
    if row.price_per_hour is None or row.void is not None:
        return None
    rate = row.peak_pass_per_s
    if row.scenario != "server":
        rate = max((point.samples_per_s for point in row.points), default=None)
    return row.price_per_hour / (rate * HOUR_S) * MILLION if rate else None


def _best_joules(row: LoadRow) -> float | None:
    """Energy of a request in J at the highest rate that passed; in a closed loop, at its highest throughput."""
    if row.void is not None or not row.points:
        return None
    if row.scenario == "server":
        return next(
            (point.joules_per_request for point in row.points if point.asked_per_s == row.peak_pass_per_s), None
        )
    return max(row.points, key=lambda point: point.samples_per_s).joules_per_request
