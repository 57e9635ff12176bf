"""Synthetic load rows, computed by the project's own replay: realistic figures without a run, the same each time."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.core.schemas import (
    Guard,
    Interval,
    LatencyBound,
    LoadedPoint,
    LoadPercentile,
    LoadRow,
    LoadVerdict,
    PredictedPoint,
    Scenario,
    Summary,
)
from harness.serving.arrivals import poisson, rate_of
from harness.serving.batching import BatchPolicy, prepared_sizes
from harness.serving.load_verdict import Control, decide, verified_peak
from harness.serving.peak_prediction import load_points, peak_rate, policies, policy_map
from harness.serving.replay import ServiceTimes, simulate

BOUND = LatencyBound(quantile=0.99, limit_ns=50_000_000)
REPLICATIONS, REQUESTS = 10, 1_000
INFLATION = 1.04
"""Of service times under load, against the closed loop that predictions are based on."""


def service_times(batch_one_ns: float, growth: float, sizes: Sequence[int], inflation: float = 1.0) -> ServiceTimes:
    """Gamma times with a spread of 15%; growth: time of each further sample of a batch, as a share of the first."""
    rng = np.random.default_rng(int(batch_one_ns))
    scale = {size: batch_one_ns * inflation * (1 + growth * (size - 1)) for size in sizes}
    return ServiceTimes({size: (rng.gamma(44, 1 / 44, 300) * mean).astype(np.int64) for size, mean in scale.items()})


def percentile(values: np.ndarray[Any, Any], quantile: float) -> LoadPercentile:
    each = np.quantile(values, quantile, axis=1)
    half = 2.262 * float(each.std(ddof=1)) / len(each) ** 0.5
    middle = float(np.median(each))
    return LoadPercentile(ns=middle, interval=Interval(low=max(middle - half, 1.0), high=middle + half))


def real_point(
    slower: ServiceTimes,
    times: ServiceTimes,
    policy: BatchPolicy,
    workers: int,
    rate: float,
    factor: float,
    replay: PredictedPoint,
) -> LoadedPoint:
    schedules = np.stack([poisson(rate, REQUESTS, seed) for seed in range(REPLICATIONS)])
    runs = simulate(schedules, [slower], policy, workers, (9,))
    again = np.mean(simulate(schedules, [times], policy, workers, (8,)).latency_ns > BOUND.limit_ns, axis=1)
    latency = runs.latency_ns.astype(np.float64)
    over = np.count_nonzero(latency > BOUND.limit_ns, axis=1).tolist()
    control = Control(again.tolist(), replay.over_share, replay.over_error)
    decision = decide(over, [REQUESTS] * REPLICATIONS, BOUND, control=control)
    results = {name: percentile(latency, quantile) for name, quantile in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
    goodput = 1 - sum(over) / latency.size
    return LoadedPoint(
        point=f"r{rate:.0f}",
        factor=factor,
        asked_per_s=rate,
        scheduled_per_s=float(np.mean([rate_of(schedule) for schedule in schedules])),
        achieved_per_s=REQUESTS * 1e9 / float(runs.length_ns.mean()),
        samples_per_s=REQUESTS * 1e9 / float(runs.length_ns.mean()),
        replications=REPLICATIONS,
        requests=latency.size,
        failed=0,
        latency=results,
        queue_p99_ns=0.7 * (results["p99"].ns or 0),
        compute_p50_ns=float(times.traces[1].mean()),
        compute_p99_ns=float(np.quantile(times.traces[times.sizes[-1]], 0.99)),
        dispatch_p99_ns=60_000.0,
        added_p99_ns=210_000.0,
        mean_batch=latency.size / int(runs.batches.sum()),
        goodput=goodput,
        goodput_per_s=goodput * rate,
        over_share=decision.share,
        over_explained=decision.explained,
        over_low=decision.low,
        over_high=decision.high,
        verdict=decision.verdict,
        predicted=replay,
        reality_over_replay={name: (results[name].ns or 0) / value for name, value in
                             (("p50", replay.p50_ns), ("p99", replay.p99_ns))},
        in_band=9,
    )  # fmt: skip


@functools.cache
def server_row(
    model: str, backend: str, precision: str, batch_one_ns: float, growth: float, max_batch: int, workers: int = 1,
    price: float | None = 0.34,
) -> LoadRow:  # fmt: skip
    sizes = prepared_sizes(max_batch)
    times = service_times(batch_one_ns, growth, sizes)
    policy = BatchPolicy(max_batch, 2_000_000 if max_batch > 1 else 0)
    peak = peak_rate(times, policy, workers, BOUND, 400, 1, runs=10, interval=False)
    assert peak is not None
    shares = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
    curve = load_points(times, policy, workers, [share * peak.capacity_per_s for share in shares], BOUND, 400, 1, 10)
    factors = (0.7, 0.9, 1.0, 1.1, 1.25)
    rates = [factor * peak.rate_per_s for factor in factors]
    under = load_points(times, policy, workers, rates, BOUND, REQUESTS, 1, 30)
    slower = service_times(batch_one_ns, growth, sizes, INFLATION)
    points = tuple(
        real_point(slower, times, policy, workers, rate, factor, replay)
        for rate, factor, replay in zip(rates, factors, under, strict=True)
    )
    verdicts: list[tuple[float, LoadVerdict]] = [
        (rate, point.verdict) for rate, point in zip(rates, points, strict=True) if point.verdict
    ]
    highest, lowest = verified_peak(verdicts)
    delays = (0, 2_000_000, 5_000_000, 10_000_000)
    cells = policy_map(times, policies(sizes, delays), workers, BOUND, (0.25, 0.5), 50, 1) if max_batch > 1 else ()
    return _row(model, backend, precision, "server").model_copy(
        update={
            "load_id": f"{model}-{backend}-{precision}-server-b{max_batch}-w{workers}",
            "bound": BOUND,
            "max_batch": max_batch,
            "max_delay_ns": policy.max_delay_ns,
            "workers": workers,
            "points": points,
            "service_median_ns": {size: float(np.median(times.traces[size])) for size in sizes},
            "predicted_peak_per_s": peak.rate_per_s,
            "predicted_interval": Interval(low=0.96 * peak.rate_per_s, high=1.04 * peak.rate_per_s),
            "capacity_per_s": peak.capacity_per_s,
            "predicted": curve,
            "map": cells,
            "peak_pass_per_s": highest,
            "peak_fail_per_s": lowest,
            "guards": (Guard(name="repeat-input", ratio=0.998, interval=Interval(low=0.991, high=1.006)),),
            "price_per_hour": price,
            "cost_per_million": price / highest / 3600 * 1e6 if highest and price is not None else None,
        }
    )


def closed_row(model: str, backend: str, scenario: Scenario, latency_ns: float, samples: int = 1) -> LoadRow:
    """A row of a closed loop with one point, or of concurrency with three."""
    clients: tuple[int | None, ...] = (1, 2, 4) if scenario == "concurrency" else (None,)
    points = tuple(
        LoadedPoint(
            point=f"c{count}" if count else "all",
            clients=count,
            achieved_per_s=1e9 / latency_ns,
            samples_per_s=samples * 1e9 / latency_ns,
            replications=REPLICATIONS,
            requests=1_000,
            failed=0,
            latency={
                name: LoadPercentile(ns=times * latency_ns * (count or 1), interval=None)
                for name, times in (("p50", 1.0), ("p90", 1.2), ("p99", 1.5))
            },
            compute_p50_ns=latency_ns,
            compute_p99_ns=1.5 * latency_ns,
            mean_batch=float(samples),
        )
        for count in clients
    )
    return _row(model, backend, "fp32", scenario).model_copy(update={"points": points, "max_batch": samples})


def _row(model: str, backend: str, precision: str, scenario: Scenario) -> LoadRow:
    return LoadRow(
        load_id=f"{model}-{backend}-{precision}-{scenario}",
        model=model,
        backend=backend,
        device="cpu",
        precision=precision,  # type: ignore[arg-type]
        sequence_length=128,
        weights="pretrained",
        setting="default",
        kind="text",
        scenario=scenario,
        method="replications",
        bound=None,
        max_batch=1,
        max_delay_ns=0,
        workers=1,
        status="measured",
        threads=2,
    )


@functools.cache
def load_rows() -> tuple[LoadRow, ...]:
    model = "minilm-l6"
    return (
        server_row(model, "onnxruntime", "fp32", 9e6, 0.5, 1),
        server_row(model, "onnxruntime", "fp32", 9e6, 0.5, 4),
        server_row(model, "openvino", "fp32", 8e6, 0.45, 4),
        server_row(model, "openvino", "int8", 5e6, 0.4, 8),
        closed_row(model, "onnxruntime", "single-stream", 14e6),
        closed_row(model, "openvino", "single-stream", 12e6),
        closed_row(model, "onnxruntime", "multi-stream", 80e6, 8),
        closed_row(model, "onnxruntime", "concurrency", 14e6),
        closed_row(model, "onnxruntime", "offline", 200e6, 32),
        _row(model, "torch-eager", "fp32", "server").model_copy(
            update={"load_id": "lost", "bound": BOUND, "status": "failed", "reason": "the process ended by signal 9"}
        ),
    )


def loaded(summary: Summary) -> Summary:
    """A summary with these load rows."""
    return summary.model_copy(update={"loads": load_rows()})
