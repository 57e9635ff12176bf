"""The bound of a load, and the verdict on it from several runs: pass, fail or undecided; and MLPerf LoadGen's
percentile and early stopping, for verdicts that can be compared with LoadGen's (pure).

Latencies of a queue depend on each other: in a run of 2,000 the number over the bound varies 6 to 8 times as much as a
binomial number, so one run decides nothing. The unit is the run: each has its own schedule and starts with an empty
queue, and a one-sided t interval over the runs' shares decides. It is never narrower than that of as many independent
requests, the best case.

LoadGen's definitions: mlcommons/inference, loadgen/early_stopping.cc and results.cc (6.0.17), computed here from the
binomial distribution. They assume independent latencies, which those of a queue are not (docs/load.md).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.core.errors import UsageError
from harness.core.schemas import LatencyBound, LoadVerdict
from harness.core.schemas.load_record import Bounded
from harness.core.text import shortened
from harness.statistics.binomial import probability_at_most, widened
from harness.statistics.estimators import percentile, t_critical

CONFIDENCE = 0.99
"""LoadGen's constant: n requests with t over the bound are enough when P[Binomial(n, 1 - quantile) <= t] <= 1%."""


def loadgen_percentile(latency_ns: ArrayLike, quantile: float) -> float:
    """LoadGen's estimator: the value at index floor(n x quantile) of the sorted latencies."""
    ordered = np.sort(np.asarray(latency_ns, dtype=np.float64))
    return float(ordered[int(ordered.size * quantile)])


def is_enough(over: int, requests: int, quantile: float) -> bool:
    """Whether `over` latencies above the bound among `requests` show that the quantile is below it, at CONFIDENCE."""
    return probability_at_most(over, requests, 1 - quantile) <= 1 - CONFIDENCE


def least_requests(over: int, quantile: float) -> int:
    """Fewest requests that are enough with `over` of them above the bound: 64 for one at p90, 662 at p99."""
    low, high = over, over + 1
    while not is_enough(over, high, quantile):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(over, middle, quantile) else (middle, high)
    return high


def most_over(requests: int, quantile: float) -> int | None:
    """Largest number of latencies above the bound that so many requests allow; None where even none is too many."""
    if not is_enough(0, requests, quantile):
        return None
    low, high = 0, requests
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_enough(middle, requests, quantile) else (low, middle)
    return low


def loadgen_upper_estimate(latency_ns: ArrayLike, quantile: float) -> float | None:
    """LoadGen's result of SingleStream and MultiStream: the latency at index n - most_over of the sorted latencies.

    None with too few requests, which LoadGen reports as early stopping not satisfied. It needs most_over >= 1.
    """
    ordered = np.sort(np.asarray(latency_ns, dtype=np.float64))
    allowed = most_over(ordered.size, quantile)
    return float(ordered[ordered.size - allowed]) if allowed else None


@dataclass(frozen=True)
class LoadGenVerdict:
    """LoadGen's judgement of a Server run. valid: both conditions are true, and it lasted long enough."""

    percentile_ns: float
    over: int
    within_bound: bool
    early_stopping: bool
    least_duration: bool

    @property
    def valid(self) -> bool:
        """The verdict that LoadGen's summary prints as `Result is : VALID`."""
        return self.within_bound and self.early_stopping and self.least_duration


def server_verdict(
    scheduled: NDArray[np.int64],
    latency_ns: NDArray[np.float64],
    quantile: float,
    limit_ns: float,
    least_duration_ns: int = 0,
) -> LoadGenVerdict:
    """LoadGen's verdict of a Server run, from each request's instant and latency (infinite for a failure)."""
    over = int(np.count_nonzero(latency_ns > limit_ns))
    percentile = loadgen_percentile(latency_ns, quantile)
    return LoadGenVerdict(
        percentile_ns=percentile,
        over=over,
        within_bound=percentile <= limit_ns,
        early_stopping=is_enough(over, latency_ns.size, quantile),
        least_duration=int(scheduled[-1]) >= least_duration_ns,
    )


ONE_SIDED = 0.99
"""Confidence of each side of a verdict."""

MIN_RUNS = 2
"""With one run the scatter between runs is unknown, and the verdict is UNDECIDED."""

MIN_CONTROLLED = 5
"""Fewest runs for a control: its slope costs a degree of freedom."""

LATE_SHARE = 0.05
"""Largest p99 of the dispatch delay, as a share of the bound: above it the load was not the load that was asked for."""

UNITS_NS = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_BOUND = re.compile(r"(?:(ttft|itl)_)?p(\d{1,2}(?:\.\d+)?)\s*(?:<=|<|≤)\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-zµ]*)")


def parse_bounds(text: str) -> tuple[LatencyBound, ...]:
    """One bound or several: `p99<50ms`, `ttft_p99<500ms,itl_p99<50ms`. Raises as parse_bound."""
    return tuple(dict.fromkeys(parse_bound(part) for part in text.split(",") if part.strip() or "," not in text))


def parse_bound(text: str) -> LatencyBound:
    """`p99<50ms` of the latency, `ttft_p99<500ms` or `itl_p99<50ms` of tokens; UsageError for anything else, also for a
    number without a unit."""
    match = _BOUND.fullmatch(text.strip())
    shown = shortened(text, 40)
    if match and not match[4]:
        raise UsageError(f"The bound `{shown}` has no unit.", f"Write it with one: {text.strip()}ms.")
    if not match or match[4] not in UNITS_NS:
        raise UsageError(
            f"`{shown}` is not a bound on a latency.",
            "Write a percentile and a time: BOUND='p99<50ms', for tokens BOUND='ttft_p99<500ms,itl_p99<50ms'.",
        )
    quantile, limit_ns = round(float(match[2]) / 100, 12), round(float(match[3]) * UNITS_NS[match[4]])
    if not (0 < quantile < 1 and limit_ns > 0):
        raise UsageError(
            f"No load meets the bound `{shown}`.", "Write a percentile above 0 and a time above 0: BOUND='p99<50ms'."
        )
    kinds: dict[str, Bounded] = {"ttft": "ttft", "itl": "itl"}
    return LatencyBound(quantile=quantile, limit_ns=limit_ns, of=kinds.get(match[1] or "", "latency"))


def scheduled_latencies(
    scheduled: NDArray[np.int64], done: NDArray[np.int64], failed: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Latency of each scheduled request from its scheduled instant, in ns; +inf for a failure.

    done is ignored where failed is True. All arrays have one entry for each scheduled request.
    """
    latency = (done - scheduled).astype(np.float64)
    latency[failed] = math.inf
    return latency


def dispatched_on_time(dispatch_delay_ns: ArrayLike, limit_ns: float) -> bool:
    """Whether requests were dispatched on time: p99 of the dispatch delay within LATE_SHARE of the limit.

    dispatch_delay_ns: lateness of each wake-up from an idle worker; empty where no request met one.
    """
    delays = np.asarray(dispatch_delay_ns, dtype=np.float64)
    return delays.size == 0 or percentile(delays, 0.99) <= LATE_SHARE * limit_ns


@dataclass(frozen=True)
class Control:
    """A control variate: the share over the limit of each run's own schedule in replay, and what it is on average.

    A schedule with bursts has a high share in reality and in replay; what replay says about the luck of the schedules
    is taken out of their mean. expected: mean share of many other schedules in replay; error: its standard error.
    """

    shares: Sequence[float]
    expected: float
    error: float


@dataclass(frozen=True)
class LoadDecision:
    """The verdict of a load. share: of all requests over the limit, mean over runs, with a control adjusted by it; low,
    high: its one-sided 99% ends, from which the verdict follows, None with fewer than MIN_RUNS. explained: part of the
    variance between runs that the control explains, None without one."""

    verdict: LoadVerdict
    share: float
    low: float | None
    high: float | None
    explained: float | None = None


def decide(
    over: Sequence[int],
    scheduled: Sequence[int],
    bound: LatencyBound,
    on_time: bool = True,
    control: Control | None = None,
) -> LoadDecision:
    """The verdict from each run's number of requests over the limit and number of scheduled requests.

    PASS: the upper end of the share is at or below the bound's; FAIL: the lower end is above it. The interval is
    Student's t over runs, with a control that of the linear regression on it (S. S. Lavenberg and P. D. Welch, A
    perspective on the use of control variables to increase the efficiency of Monte Carlo simulations, Management
    Science 27(3), 1981). It reaches at least as far as the binomial limits of all runs together, the best case, else
    runs with equal shares would decide whatever their length: ten runs of five requests, none over the limit.
    """
    shares = np.asarray(over, dtype=np.float64) / np.asarray(scheduled, dtype=np.float64)
    share = float(shares.mean())
    if shares.size < MIN_RUNS:
        return LoadDecision("UNDECIDED" if on_time else "LOAD NOT REACHED", share, None, None)
    share, error, freedom, explained = _estimate(shares, control)
    half = t_critical(freedom, 2 * ONE_SIDED - 1) * error
    requests, count = sum(scheduled), math.ceil(share * sum(scheduled) - 1e-9)
    low, high = widened(max(0.0, share - half), min(1.0, share + half), count, requests, ONE_SIDED)
    verdict: LoadVerdict = "UNDECIDED"
    if not on_time:
        verdict = "LOAD NOT REACHED"
    elif high <= bound.allowed:
        verdict = "PASS"
    elif low > bound.allowed:
        verdict = "FAIL"
    return LoadDecision(verdict, share, low, high, explained)


def _estimate(shares: NDArray[np.float64], control: Control | None) -> tuple[float, float, int, float | None]:
    """(mean share, its standard error, degrees of freedom, part of the variance that the control explains)."""
    count, mean = shares.size, float(shares.mean())
    x = np.asarray(control.shares, dtype=np.float64) if control is not None else np.zeros(count)
    centred, apart = x - x.mean(), shares - mean
    spread, total = float(centred @ centred), float(apart @ apart)
    if control is None or count < MIN_CONTROLLED or spread == 0:
        return mean, float(shares.std(ddof=1)) / math.sqrt(count), count - 1, None
    slope, luck = float(centred @ apart) / spread, float(x.mean()) - control.expected
    residuals = apart - slope * centred
    rest = float(residuals @ residuals)
    variance = rest / (count - 2) * (1 / count + luck**2 / spread) + (slope * control.error) ** 2
    return max(0.0, mean - slope * luck), math.sqrt(variance), count - 2, 1 - rest / total if total else None


def combined_verdict(verdicts: Sequence[LoadVerdict]) -> LoadVerdict:
    """The verdict on several bounds: PASS where all pass, FAIL where one fails. With k bounds the chance of a false
    FAIL is up to k times the chance with one bound; the chance of a false PASS is no larger."""
    order: tuple[LoadVerdict, ...] = ("LOAD NOT REACHED", "FAIL", "UNDECIDED")
    return next((decisive for decisive in order if decisive in verdicts), "PASS")


def verified_peak(points: Iterable[tuple[float, LoadVerdict]]) -> tuple[float | None, float | None]:
    """(highest rate that passed, lowest rate that failed): the verified peak; None where no rate did.

    A pass above the lowest fail does not count: the load at which the bound first breaks limits the service.
    """
    ordered = list(points)
    fails = [rate for rate, verdict in ordered if verdict == "FAIL"]
    lowest = min(fails, default=None)
    passes = [rate for rate, verdict in ordered if verdict == "PASS" and (lowest is None or rate < lowest)]
    return max(passes, default=None), lowest
