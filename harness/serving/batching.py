"""The policy of dynamic batching: which requests form the next batch, and from when on it may start (pure).

The timed loop and the simulation call the same two functions. The whole schedule is known before the run, so the
instant at which a batch closes is known as soon as its first request is.

Several workers share one position in the schedule, as leader and followers: a free worker takes the lock, waits until
the batch closes, takes its requests, moves the position, frees the lock and computes. So a batch starts when a worker
is free, the previous batch has started, and the batch is closed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.errors import UsageError


@dataclass(frozen=True)
class BatchPolicy:
    """Largest number of requests of a batch, and how long its first request waits for more, in ns.

    UsageError for a batch below 1 or a negative delay.
    """

    max_batch: int = 1
    max_delay_ns: int = 0

    def __post_init__(self) -> None:
        if self.max_batch < 1:
            raise UsageError(f"A batch of {self.max_batch} is empty.", "Ask for MAX_BATCH=1 or more.")
        if self.max_delay_ns < 0:
            raise UsageError("A batch cannot wait for a negative time.", "Ask for MAX_DELAY=0ms or more.")


def batch_closes_at(scheduled: Sequence[int], head: int, policy: BatchPolicy) -> int:
    """Earliest instant at which the batch whose first request is `head` may start, if a worker is free.

    That is when max_batch requests have arrived, or after the delay of the first. scheduled: sorted instants; head:
    an index in it.
    """
    last = head + policy.max_batch - 1
    expired = scheduled[head] + policy.max_delay_ns
    return min(expired, scheduled[last]) if last < len(scheduled) else expired


def batch_end(scheduled: Sequence[int], head: int, now_ns: int, policy: BatchPolicy) -> int:
    """Index after the last request of the batch that starts now: all that have arrived, up to max_batch."""
    return bisect_right(scheduled, now_ns, head, min(head + policy.max_batch, len(scheduled)))


def prepared_sizes(max_batch: int) -> tuple[int, ...]:
    """Batch sizes that a backend prepares: powers of two below max_batch, and max_batch."""
    return (*(1 << power for power in range((max_batch - 1).bit_length())), max_batch)


def prepared_for(sizes: Sequence[int], requests: int) -> int:
    """The smallest prepared size that holds so many requests; the batch is padded to it. sizes: ascending."""
    return sizes[bisect_left(sizes, requests)]
