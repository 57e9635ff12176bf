"""TTFT, ITL, TPOT and rates from the instants of requests, with intervals over requests and over processes (pure).

A request has instants t_0, t_1 … t_N in ns: prompts ready, and each token of the whole batch on the host. A batch in
lockstep gives one value a step: its sequences are copies of one observation. Definitions: docs/generation.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import Interval
from harness.core.schemas.generation_record import ContextTimes, TokenTimes
from harness.statistics.estimators import (
    CONFIDENCE,
    PERCENTILE_MIN_SAMPLES,
    least_in_process,
    median,
    median_interval,
    percentile,
    t_critical,
)

QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
RESAMPLES = 1_000
"""Bootstrap resamples: the ends of a 95% interval are then known to about a tenth of its width."""
MIN_BOOTSTRAP = 5
"""Fewest requests for a bootstrap over them."""
MIN_SLOPE = 8
"""Fewest ITLs of a request for a slope over the context."""
SEED = 20261130
"""Of the bootstrap, so that a summary is the same each time."""


@dataclass(frozen=True)
class RequestInstants:
    """The instants of one request, in ns."""

    start: int
    tokens: tuple[int, ...]

    @property
    def ttft(self) -> int:
        """t_1 - t_0."""
        return self.tokens[0] - self.start

    @property
    def itl(self) -> NDArray[np.float64]:
        """t_(k+1) - t_k, k = 1 … N - 1: empty for a one-token output."""
        return np.diff(np.asarray(self.tokens, dtype=np.int64)).astype(np.float64)

    @property
    def tpot(self) -> float | None:
        """(t_N - t_1) / (N - 1), the mean ITL; None for a one-token output."""
        steps = len(self.tokens) - 1
        return (self.tokens[-1] - self.tokens[0]) / steps if steps else None

    @property
    def end_to_end(self) -> int:
        """t_N - t_0 = TTFT + the sum of all ITLs."""
        return self.tokens[-1] - self.start


Processes = Sequence[Sequence[RequestInstants]]
"""The timed requests of each process."""
Values = Callable[[RequestInstants], Sequence[float] | NDArray[np.float64]]


def ttfts(instants: RequestInstants) -> Sequence[float]:
    """The TTFT of a request, as its only value."""
    return [float(instants.ttft)]


def itls(instants: RequestInstants) -> NDArray[np.float64]:
    """Its N - 1 ITLs."""
    return instants.itl


def tpots(instants: RequestInstants) -> Sequence[float]:
    """Its TPOT, where it has one."""
    return [] if instants.tpot is None else [instants.tpot]


def token_times(processes: Processes, values: Values) -> TokenTimes | None:
    """Statistics of one kind of time; None where no request has such a value.

    values: those of one request. Each figure is the median over processes of the process's own.
    """
    by_request = [[np.asarray(values(request), dtype=np.float64) for request in requests] for requests in processes]
    pooled = [np.concatenate(requests) for requests in by_request if requests]
    pooled = [values for values in pooled if values.size]
    if not pooled:
        return None
    medians = tuple(median(values) for values in pooled)
    quantiles = {name: _quantile(pooled, share) for name, share in QUANTILES.items()}
    centre = median(medians)
    return TokenTimes(
        median=centre,
        ci95=median_interval(medians),
        p50=centre,
        p95=quantiles["p95"],
        p99=quantiles["p99"],
        max=max(float(values.max()) for values in pooled),
        mean=median([float(values.mean()) for values in pooled]),
        n=sum(values.size for values in pooled),
        requests=sum(request.size > 0 for requests in by_request for request in requests),
        rounds=len(pooled),
        process_medians=medians,
        requests_ci95=_over_requests(
            [request for requests in by_request for request in requests if request.size],
            {name: QUANTILES[name] for name, value in quantiles.items() if value is not None},
        ),
    )


def _quantile(pooled: Sequence[NDArray[np.float64]], share: float) -> float | None:
    """The project's rule: enough values together and in each process (estimators.process_percentiles)."""
    if share != 0.50 and (
        sum(values.size for values in pooled) < PERCENTILE_MIN_SAMPLES[share]
        or min(values.size for values in pooled) < least_in_process(share)
    ):
        return None
    return median([percentile(values, share) for values in pooled])


def _over_requests(requests: Sequence[NDArray[np.float64]], quantiles: dict[str, float]) -> dict[str, Interval]:
    """Percentile bootstrap over whole requests: tokens of one request share its machine state, and are not independent.

    Efron and Tibshirani, An Introduction to the Bootstrap (1993), 13.3; empty for fewer than MIN_BOOTSTRAP requests.
    """
    if len(requests) < MIN_BOOTSTRAP:
        return {}
    generator = np.random.default_rng(SEED)
    # Sorted once: a resample gives each value the weight of how often its request was drawn.
    order = np.argsort(np.concatenate(requests), kind="stable")
    ordered = np.concatenate(requests)[order]
    owner = np.repeat(np.arange(len(requests)), [request.size for request in requests])[order]
    shares = np.asarray([*quantiles.values()])
    resampled = np.empty((RESAMPLES, len(shares)))
    for number in range(RESAMPLES):
        drawn = np.bincount(generator.integers(0, len(requests), len(requests)), minlength=len(requests))
        heights = np.cumsum(drawn[owner])
        resampled[number] = ordered[np.searchsorted(heights, shares * heights[-1], side="left")]
    tail = (1 - CONFIDENCE) / 2
    return {
        name: Interval(low=percentile(column, tail), high=percentile(column, 1 - tail))
        for name, column in zip(quantiles, resampled.T, strict=True)
    }


def context_times(processes: Processes) -> ContextTimes | None:
    """Mean ITL by quarter of the output, and its slope over the context; None for one-token outputs.

    Each figure is the median over processes; requests of a process count equally. The slope is Theil's without its
    cost: the least-squares line through the median ITL of each step over the requests, so that a stalled token does not
    turn it.
    """
    tables = [np.stack([request.itl for request in requests]) for requests in processes if requests]
    tables = [table for table in tables if table.shape[1]]
    if not tables:
        return None
    steps = tables[0].shape[1]
    quarters = None
    if steps >= 4:
        each = np.asarray([[part.mean() for part in np.array_split(table.mean(axis=0), 4)] for table in tables])
        quarters = tuple(median(column) for column in each.T)
    slopes = [_slope(table) for table in tables] if steps >= MIN_SLOPE else []
    return ContextTimes(
        quarters=quarters,  # type: ignore[arg-type] # four columns
        slope_ns_per_1000=median(slopes) if slopes else None,
        slope_ci95=_t_interval(slopes),
    )


def _slope(table: NDArray[np.float64]) -> float:
    """ns of ITL per 1,000 tokens of context."""
    middle = np.median(table, axis=0)
    places = np.arange(middle.size) - (middle.size - 1) / 2
    return 1000 * math.fsum(places * middle) / math.fsum(places * places)


def _t_interval(values: Sequence[float]) -> Interval | None:
    """95% t interval of a figure that may be negative; None with fewer than two processes."""
    if len(values) < 2:
        return None
    centre = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))
    half = t_critical(len(values) - 1) * deviation / math.sqrt(len(values))
    middle = median(values)
    return Interval(low=min(centre - half, middle), high=max(centre + half, middle))


def per_sequence_rate(requests: Sequence[RequestInstants]) -> float | None:
    """Tokens a second of one sequence after its first token: request-weighted mean; None for one-token outputs."""
    rates = [1e9 / request.tpot for request in requests if request.tpot]
    return math.fsum(rates) / len(rates) if rates else None


def total_rate(requests: Sequence[RequestInstants], batch_size: int) -> float:
    """All tokens by the sum of the end-to-end times: token-weighted, prefill included, without the time in between.

    Between two requests the harness saves the record and reads counters: this is no work of the decoder.
    """
    tokens = batch_size * sum(len(request.tokens) for request in requests)
    return tokens * 1e9 / sum(request.end_to_end for request in requests)
