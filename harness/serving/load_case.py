"""Facts that follow from a load case: its batch sizes, its points, the length of a replication, and digests (pure)."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import get_args

import numpy as np

from harness.core.errors import CaseError
from harness.core.schemas import LoadCase
from harness.core.schemas.load_record import MOST_REQUESTS, Bounded
from harness.core.store import digest_of
from harness.serving import arrivals
from harness.serving.batching import BatchPolicy, prepared_sizes

LEAST_REQUESTS = 20
"""Of a replication, also where they take longer than its time."""

BOUNDS_LONG = 50
"""A replication lasts so many times the limit of its bound, within its time: a queue that grows by 2% of the capacity
is then over the limit at its end. 2,000 requests of a fast service would be over before any queue could grow."""

MOST_FOR_BOUND = 200_000
"""Most requests that make a replication so long, where the case asks for fewer: a service that answers in microseconds
would have millions, each with its record and its place in every simulated run."""

_JUDGED = frozenset(
    {"bound", "further_bounds", "price_per_hour", "rates", "factors", "clients", "skip_reason", "replications"}
)
"""Fields that change no single replication: with other values, what is measured already stays valid."""
_QUEUE = frozenset({"scenario", "method", "max_delay_ns", "requests", "replication_s", "load_id"})
"""Fields that change no service time."""


BOUNDED: tuple[Bounded, ...] = get_args(Bounded)

Pair = tuple[int, int]
"""(prompt tokens, new tokens) of a request."""


@dataclass(frozen=True)
class LoadPoint:
    """One point of a load case: a rate, a number of clients, or neither. name: also that of its folder.

    factor: the rate as a share of the predicted peak, where it was chosen so.
    """

    name: str
    rate_per_s: float | None = None
    clients: int | None = None
    factor: float | None = None


def planned_points(load: LoadCase, peak_per_s: float | None) -> tuple[LoadPoint, ...]:
    """The points that are measured. peak_per_s: the predicted peak; a server case without it and without rates has no
    points."""
    if load.scenario == "concurrency":
        return tuple(LoadPoint(f"c{count}", clients=count) for count in load.clients)
    if load.scenario != "server":
        return (LoadPoint("all"),)
    if load.rates:
        return tuple(LoadPoint(rate_name(rate), rate) for rate in load.rates)
    if peak_per_s is None:
        return ()
    rates = [(rounded_rate(factor * peak_per_s), factor) for factor in load.factors]
    return tuple(LoadPoint(rate_name(rate), rate, factor=factor) for rate, factor in rates)


def batch_sizes(load: LoadCase) -> tuple[int, ...]:
    """Batch sizes that are prepared, ascending: a batch is padded to the next of them. Continuous batching has one
    decoder, with a slot for each request."""
    own = load.scenario == "server" and load.endpoint is None and load.batching == "static"
    return prepared_sizes(load.max_batch) if own else (load.max_batch,)


def batch_policy(load: LoadCase) -> BatchPolicy:
    """The batching policy of a server or offline case."""
    return BatchPolicy(load.max_batch, load.max_delay_ns)


PATIENCE_NS = 5_000_000_000
GENERATES_NS = 60_000_000_000
"""Least patience with a request that generates, where no bound limits the time of all its tokens."""
PATIENCE = 10


def patience_ns(load: LoadCase) -> int:
    """How long a request may take: the longer of 5 s and 10 times its bounds. A later one is over any bound that a
    percentile could still meet. Bounds on tokens add up over the longest output."""
    limits = {kind: max((bound.limit_ns for bound in load.bounds if bound.of == kind), default=0) for kind in BOUNDED}
    request_ns = limits["latency"] or limits["ttft"] + limits["itl"] * (load.new_tokens or 1)
    endless = load.new_tokens is not None and not (limits["latency"] or limits["itl"])
    return max(GENERATES_NS if endless else PATIENCE_NS, PATIENCE * request_ns)


def longest_ns(load: LoadCase) -> int:
    """The largest limit of a request; 0 without one. The time between two tokens is no request."""
    return max((bound.limit_ns for bound in load.bounds if bound.of != "itl"), default=0)


def draw_length_pairs(load: LoadCase, count: int, seed: int) -> tuple[Pair, ...]:
    """(prompt tokens, new tokens) of each request: independent draws from the pairs of a case that generates."""
    return tuple(load.pairs[place] for place in draw_places(len(load.pairs), count, seed))


def draw_places(pairs: int, count: int, seed: int) -> list[int]:
    """The place of the pair that each request draws, independent of its schedule."""
    places: list[int] = np.random.default_rng((seed, 1)).integers(0, pairs, count).tolist()
    return places


def requests_at_rate(load: LoadCase, rate_per_s: float) -> int:
    """Requests of one replication at a rate: the case's number, or as many as BOUNDS_LONG needs, within its time."""
    by_time, by_bound = _wanted(load, rate_per_s)
    return max(LEAST_REQUESTS, min(by_time, max(load.requests, min(by_bound, MOST_FOR_BOUND)), MOST_REQUESTS))


def _wanted(load: LoadCase, rate_per_s: float) -> tuple[int, int]:
    """Requests in the time of a replication, and in BOUNDS_LONG limits."""
    return round(rate_per_s * load.replication_s), round(rate_per_s * BOUNDS_LONG * longest_ns(load) / 1e9)


def shortened_to(load: LoadCase, rate_per_s: float) -> float | None:
    """How many limits of its bound a replication lasts that MOST_FOR_BOUND ends before BOUNDS_LONG; None where it is as
    long as its bound or its time asks for."""
    count = requests_at_rate(load, rate_per_s)
    return None if count >= min(_wanted(load, rate_per_s)) else count / rate_per_s * 1e9 / longest_ns(load)


def replication_seed(plan_seed: int, number: int) -> int:
    """Seed of the schedule of a replication. It has the same arrivals, stretched, for every backend and rate."""
    return zlib.crc32(f"{plan_seed}/load/{number}".encode())


def replication_schedule(load: LoadCase, point: LoadPoint, seed: int) -> list[int]:
    """Arrivals of a replication of a point with a rate, in ns after its start."""
    if point.rate_per_s is None:
        raise CaseError(f"{point.name} has no rate.", "Write the plan again: make plan.")
    draw = arrivals.loadgen if load.method == "loadgen" else arrivals.poisson
    instants: list[int] = draw(point.rate_per_s, requests_at_rate(load, point.rate_per_s), seed).tolist()
    return instants


def rounded_rate(rate: float) -> float:
    """A rate with four significant digits, as in the name of its folder."""
    return float(f"{rate:.4g}")


def rate_name(rate: float) -> str:
    """The folder of a rate's replications: `r53.21`."""
    return f"r{rate:.4g}"


def service_digest(load: LoadCase) -> str:
    """Identifies what service times were measured of, besides the plan's settings."""
    return _digest(load, _JUDGED | _QUEUE)


def replication_digest(load: LoadCase) -> str:
    """Identifies what a replication was measured of, besides the plan's settings and its point."""
    return _digest(load, _JUDGED | {"service_s"})


def prediction_digest(load: LoadCase) -> str:
    """Identifies what was replayed, besides the service times."""
    return _digest(load, frozenset({"price_per_hour", "skip_reason", "replications", "clients"}))


def _digest(load: LoadCase, without: frozenset[str]) -> str:
    """Digest of the fields that differ from their defaults, so that a field that comes later changes no digest."""
    return digest_of(load.model_dump(mode="json", exclude=set(without), exclude_defaults=True))


def replication_phase(point: LoadPoint, number: int) -> str:
    """The phase of a process that serves this replication."""
    return f"replication {number} of {point.name}"


def parse_phase(phase: str) -> tuple[str, int] | None:
    """(point, number of the replication) from the name of its phase; None for another phase.

    >>> parse_phase("replication 3 of r53.2")
    ('r53.2', 3)
    """
    words = phase.split()
    return (words[3], int(words[1])) if len(words) == 4 and words[0] == "replication" else None
