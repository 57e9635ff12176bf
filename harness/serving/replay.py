"""Arrivals x batching policy x workers on measured service times: a discrete simulation of many runs at once (pure).

Each column is one run: its own arrivals, its own block bootstrap of the service times, an empty queue at the start.
The loop goes from batch to batch, in all columns together, so a step costs a few NumPy calls for hundreds of runs.

Assumption: service times do not depend on the state of the queue. Only real runs can test it (docs/load.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.serving.batching import BatchPolicy, batch_closes_at

BLOCK = 100
"""Length of a block of the bootstrap, in batches: drift and bursts of the service stay together."""

_FAR = np.iinfo(np.int64).max // 4
"""An instant after every run."""


@dataclass(frozen=True)
class ServiceTimes:
    """Measured service times in ns: prepared batch size → times in the order of measurement.

    They must be measured with as many workers at work as the simulation has: workers of one device slow each other.
    """

    traces: Mapping[int, NDArray[np.int64]]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Measured batch sizes, ascending."""
        return tuple(sorted(self.traces))

    def up_to(self, max_batch: int) -> tuple[int, ...]:
        """The sizes on which batches of up to max_batch requests run. ValueError where none is as large."""
        enough = next((size for size in self.sizes if size >= max_batch), None)
        if enough is None:
            raise ValueError(f"no service times of a batch of {max_batch}")
        return tuple(size for size in self.sizes if size <= enough)

    def capacity_per_s(self, policy: BatchPolicy, workers: int) -> float:
        """Highest possible rate: every worker always has a full batch of the best size."""
        sizes = self.up_to(policy.max_batch)
        return workers * max(min(size, policy.max_batch) / float(self.traces[size].mean()) for size in sizes) * 1e9

    def resampled(self, seed: tuple[int, ...]) -> ServiceTimes:
        """A block bootstrap of each trace, of the same length."""
        return ServiceTimes({size: _resampled(self.traces[size], (*seed, size)) for size in self.sizes})


@dataclass(frozen=True)
class Simulated:
    """Runs, one a row: latency of each request in ns, batches and busy time of all workers in ns of each run."""

    latency_ns: NDArray[np.int64]
    batches: NDArray[np.int64]
    busy_ns: NDArray[np.int64]
    length_ns: NDArray[np.int64]


def simulate(
    arrivals: NDArray[np.int64],
    services: Sequence[ServiceTimes],
    policy: BatchPolicy,
    workers: int,
    seed: tuple[int, ...],
    alike: int = 1,
) -> Simulated:
    """Runs with these arrivals: (runs, requests), sorted instants in ns along each row.

    services: one for all runs, or one for each of as many equal groups of consecutive runs; all with the same sizes and
    lengths. seed: of the bootstrap; runs with the same seed use the same blocks at every rate and policy. alike: number
    of equal groups of consecutive runs that use the same blocks, group by group.
    """
    runs, requests = arrivals.shape
    table = _Table.of(services, (runs, alike), policy, seed, requests)
    if policy.max_batch == 1 and workers == 1:
        service = table.all_of_one_size(requests)
        done = queue_completions(arrivals, service)
        batches = np.full(runs, requests, dtype=np.int64)
        return Simulated(done - arrivals, batches, service.sum(axis=1), done[:, -1])
    return _simulate_batches(arrivals, table, policy, workers)


@dataclass(frozen=True)
class _Table:
    """Service times of all groups and sizes in one array, and where each run reads them."""

    flat: NDArray[np.int64]
    sizes: NDArray[np.int64]
    base: NDArray[np.int64]
    """(sizes, runs): beginning of the run's trace."""
    length: NDArray[np.int64]
    """(sizes,)"""
    starts: NDArray[np.int64]
    """(sizes, runs, blocks): beginnings of the blocks within the trace."""

    @classmethod
    def of(
        cls,
        services: Sequence[ServiceTimes],
        counts: tuple[int, int],
        policy: BatchPolicy,
        seed: tuple[int, ...],
        requests: int,
    ) -> _Table:
        runs, alike = counts
        sizes = services[0].up_to(policy.max_batch)
        group = np.repeat(np.arange(len(services)), runs // len(services))
        flat = np.concatenate([service.traces[size] for size in sizes for service in services]).astype(np.int64)
        length = np.array([services[0].traces[size].size for size in sizes], dtype=np.int64)
        first = np.concatenate([[0], np.cumsum(length * len(services))[:-1]])
        base = first[:, None] + group[None, :] * length[:, None]
        blocks = -(-requests // BLOCK)
        drawn = [
            np.random.default_rng((*seed, size)).integers(0, length[at], (runs // alike, blocks))
            for at, size in enumerate(sizes)
        ]
        starts = np.stack([np.tile(times, (alike, 1)) for times in drawn])
        return cls(flat, np.array(sizes), base, length, starts)

    def all_of_one_size(self, requests: int) -> NDArray[np.int64]:
        """(runs, requests): the service times of batches of the smallest size."""
        within = self.starts[0][:, :, None] + np.arange(BLOCK)
        place = within.reshape(within.shape[0], -1)[:, :requests] % self.length[0]
        service_ns: NDArray[np.int64] = self.flat[self.base[0][:, None] + place]
        return service_ns

    def service(self, size: NDArray[np.int64], run: NDArray[np.int64], used: NDArray[np.int64]) -> NDArray[np.int64]:
        """Service time of the batch that is number `used` of its size in its run. size: index in `sizes`."""
        at, within = np.divmod(used, BLOCK)
        place = (self.starts[size, run, at] + within) % self.length[size]
        service_ns: NDArray[np.int64] = self.flat[self.base[size, run] + place]
        return service_ns


def _simulate_batches(arrivals: NDArray[np.int64], table: _Table, policy: BatchPolicy, workers: int) -> Simulated:
    """The general loop: each step forms the next batch of every run that has requests left."""
    runs, requests = arrivals.shape
    span = int(arrivals[:, -1].max()) + policy.max_delay_ns + 1
    # All runs in one sorted array, each in a stretch of its own: a single search serves them all. The last entry of
    # `closing` is of a batch that never fills.
    shift = np.arange(runs, dtype=np.int64) * span
    flat = (arrivals + shift[:, None]).ravel()
    closing = np.append(arrivals, np.full((runs, policy.max_batch), _FAR), axis=1)
    free = np.zeros((runs, workers), dtype=np.int64)
    head = np.zeros(runs, dtype=np.int64)
    before = np.zeros(runs, dtype=np.int64)
    used = np.zeros((len(table.sizes), runs), dtype=np.int64)
    batches, busy = np.zeros(runs, dtype=np.int64), np.zeros(runs, dtype=np.int64)
    ends = np.empty(runs * requests, dtype=np.int64)
    first_of, end_of, live = [], [], np.arange(runs)
    while live.size:
        at = head[live]
        worker = free[live].argmin(axis=1) if workers > 1 else 0
        closed = np.minimum(arrivals[live, at] + policy.max_delay_ns, closing[live, at + policy.max_batch - 1])
        start = np.maximum(np.maximum(free[live, worker], before[live]), closed)
        arrived = np.searchsorted(flat, np.minimum(start, span - 1) + shift[live], side="right") - live * requests
        taken = np.minimum(arrived - at, policy.max_batch)
        size = np.searchsorted(table.sizes, taken)
        service = table.service(size, live, used[size, live])
        done = start + service
        used[size, live] += 1
        first_of.append(live * requests + at)
        end_of.append(done)
        free[live, worker] = done
        before[live] = start
        head[live] = at + taken
        batches[live] += 1
        busy[live] += service
        live = live[at + taken < requests]
    first, end = np.concatenate(first_of), np.concatenate(end_of)
    order = np.argsort(first)
    lengths = np.diff(np.append(first[order], runs * requests))
    ends[:] = np.repeat(end[order], lengths)
    done = ends.reshape(runs, requests)
    return Simulated(done - arrivals, batches, busy, done.max(axis=1))


def replay_recorded(
    scheduled: Sequence[int], sizes: Sequence[int], service_ns: Sequence[int], policy: BatchPolicy, workers: int
) -> NDArray[np.int64]:
    """Completion of each request in ns if the recorded batches had taken their service times and nothing else any time.

    sizes, service_ns: requests and service time of each batch, in the order of their starts. The measured latency minus
    this is what harness and system added. With batches of one and one worker this is Lindley's recursion.
    """
    free = [0] * workers
    head, before = 0, 0
    ends: list[int] = []
    for size, service in zip(sizes, service_ns, strict=True):
        worker = min(range(workers), key=free.__getitem__)
        closed = max(batch_closes_at(scheduled, head, policy), scheduled[head + size - 1])
        before = max(free[worker], before, closed)
        free[worker] = before + service
        ends += [free[worker]] * size
        head += size
    return np.array(ends, dtype=np.int64)


def _resampled(trace: NDArray[np.int64], seed: tuple[int, ...]) -> NDArray[np.int64]:
    """A circular block bootstrap (Politis and Romano, 1992) of a trace, of the same length."""
    starts = np.random.default_rng(seed).integers(0, trace.size, -(-trace.size // BLOCK))
    return np.asarray(trace[((starts[:, None] + np.arange(BLOCK)) % trace.size).ravel()[: trace.size]])


def queue_completions(scheduled: NDArray[np.int64], service_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The queue of one worker without batching: completion of each request, in the unit and shape of both arguments.

    Queues run along the last axis. C_i = max(A_i, C_(i-1)) + S_i, written as a running maximum of integers: exact.
    Lindley's recursion: D. V. Lindley, The theory of queues with a single server, Mathematical Proceedings of the
    Cambridge Philosophical Society 48(2), 1952: the next request waits max(0, W + S - A).
    """
    served = np.cumsum(service_ns, axis=-1)
    return served + np.maximum.accumulate(scheduled - (served - service_ns), axis=-1)
