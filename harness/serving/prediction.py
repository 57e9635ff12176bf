"""Replay of a load case on its measured service times: predicted peak, curve, and map of policies (pure)."""

from __future__ import annotations

import numpy as np

from harness.core.schemas import LatencyBound, LoadCase, MapCell, PredictedPoint, Prediction, ServiceRun
from harness.serving.load_case import points_of, policy_of, prediction_digest, requests_at
from harness.serving.load_points import Replayed, load_points, policies, policy_map
from harness.serving.peak import Peak, peak_rate
from harness.serving.replay import ServiceTimes

CURVE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Rates of the curve, as shares of the capacity."""

MAP_SHARES = (0.2, 0.4, 0.6, 0.8)
"""Rates of the map, as shares of the highest capacity of its policies."""

MEASURED_RUNS = 200
"""Simulated runs of a load that is also measured."""

MAP_DELAYS = (0.0, 0.02, 0.05, 0.1, 0.2)
"""Delays of the map, as shares of the bound; the case's own delay is added."""

GUESS_RUNS = 20
"""Simulated runs of the first prediction, which only decides how long a run is."""

MAP_REQUESTS = 500
"""Requests of a run of the map, which compares policies on the same arrivals."""


def predict(load: LoadCase, service: ServiceRun, service_sha256: str, seed: int, now: str) -> Prediction:
    """The prediction of a server case. Its peak is None where no load meets the bound.

    seed: of the simulated arrivals, which must differ from those of the real replications. now: date of the record.
    Raises ValueError for a case without a bound.
    """
    if load.bound is None:
        raise ValueError(f"{load.load_id} has no bound")
    times = times_of(service)
    bound, policy, workers = load.bound, policy_of(load), load.parallel
    peak = _peak(times, load, load.bound, seed)
    capacity = times.capacity_per_s(policy, workers)
    steps = points_of(load, peak.rate_per_s if peak else None)
    count = requests_at(load, peak.rate_per_s if peak else capacity)
    measured = {one.rate_per_s for one in steps if one.rate_per_s}
    rates = {round(share * capacity, 6) for share in CURVE} - measured
    curve = [*load_points(times, policy, workers, sorted(rates), bound, count, seed)]
    for rate in measured:
        # As long as the real replications, and many: these are also the expectation of their control variate.
        curve += load_points(times, policy, workers, [rate], bound, requests_at(load, rate), seed, MEASURED_RUNS)
    curve.sort(key=lambda point: point.rate_per_s)
    return Prediction(
        load_id=load.load_id,
        settings_id=service.settings_id,
        load_sha256=prediction_digest(load),
        artifacts_id=service.artifacts_id,
        started_at=now,
        environment_id=service.environment_id,
        service_sha256=service_sha256,
        bound=load.bound,
        seed=seed,
        peak_per_s=peak.rate_per_s if peak else None,
        peak_interval=peak.ci95 if peak else None,
        capacity_per_s=capacity,
        points=tuple(map(_point, curve)),
        map=_map(times, load, load.bound, count, seed),
    )


def times_of(service: ServiceRun) -> ServiceTimes:
    """The measured service times as replay takes them."""
    return ServiceTimes({size: np.array(times, dtype=np.int64) for size, times in service.service_ns.items()})


def _peak(times: ServiceTimes, load: LoadCase, limit: LatencyBound, seed: int) -> Peak | None:
    """The peak for runs as long as the real ones: their number of requests depends on the rate itself."""
    bound, policy, workers = limit, policy_of(load), load.parallel
    most = requests_at(load, times.capacity_per_s(policy, workers))
    guess = peak_rate(times, policy, workers, bound, most, seed, runs=GUESS_RUNS, interval=False)
    if guess is None:
        return None
    return peak_rate(times, policy, workers, bound, requests_at(load, guess.rate_per_s), seed)


def _map(times: ServiceTimes, load: LoadCase, bound: LatencyBound, count: int, seed: int) -> tuple[MapCell, ...]:
    delays = sorted({round(share * bound.limit_ns) for share in MAP_DELAYS} | {load.max_delay_ns})
    tried = policies(times.sizes, delays)
    found = policy_map(times, tried, load.parallel, bound, MAP_SHARES, min(count, MAP_REQUESTS), seed)
    return tuple(
        MapCell(
            max_batch=cell.policy.max_batch,
            max_delay_ns=cell.policy.max_delay_ns,
            rate_per_s=cell.peak.rate_per_s if cell.peak else None,
            points=tuple(map(_point, cell.points)),
        )
        for cell in found
    )


def _point(replayed: Replayed) -> PredictedPoint:
    return PredictedPoint(
        rate_per_s=replayed.rate_per_s,
        p50_ns=replayed.p50_ns,
        p99_ns=replayed.p99_ns,
        p50_band_ns=replayed.p50_band,
        p99_band_ns=replayed.p99_band,
        mean_ns=replayed.mean_ns,
        over_share=replayed.share_over,
        over_error=replayed.share_error,
        goodput_per_s=replayed.goodput_per_s,
        mean_batch=replayed.mean_batch,
        utilisation=replayed.utilisation,
    )
