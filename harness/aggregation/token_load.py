"""Times of tokens under load, of decoders here and of the streams of a running service, from their raw records (pure).

TTFT counts from the scheduled instant (closed loop: from the start). A request of N tokens has N - 1 times between
tokens. Where a request failed, all of them are infinite. A chunk of a stream is a step: its time is not divided by the
number of its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import GeneratedBatches, LatencyBound, LoadCase, Replication
from harness.core.schemas.load_record import ClientTimes

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TokenSamples:
    """Token times of one replication, in ns. ttft: of each scheduled request. gaps: its times between tokens, or
    between the steps of its stream; empty for one token. done: its last token since the start, +inf where it failed;
    asked: its tokens.

    computed: tokens that the batches or passes made, with padding and empty slots; 0 for a service.
    """

    ttft: Floats
    gaps: Sequence[Floats]
    done: Floats
    asked: NDArray[np.int64]
    computed: int = 0

    @property
    def all_gaps(self) -> Floats:
        """Those of all requests, one after the other."""
        return np.concatenate(self.gaps) if self.gaps else np.empty(0)


def token_samples(load: LoadCase, record: Replication, failed: NDArray[np.bool_]) -> TokenSamples | None:
    """None for a record without tokens. failed: of each scheduled request, unserved ones included."""
    if record.generated is not None:
        return _batch_samples(record, record.generated, failed)
    if record.client is not None and load.new_tokens is not None:
        return _stream_samples(load, record, record.client, failed)
    return None


def _batch_samples(record: Replication, generated: GeneratedBatches, failed: NDArray[np.bool_]) -> TokenSamples:
    asked = np.array(generated.new_tokens, np.int64)
    ttft, done = np.full(asked.size, np.inf), np.full(asked.size, np.inf)
    gaps = [np.full(new - 1, np.inf) for new in generated.new_tokens]
    request = computed = 0
    for size, slots, token_ns in zip(record.sizes, generated.slots, generated.token_ns, strict=True):
        instants = np.array(token_ns, np.float64)
        computed += slots * len(token_ns)
        for place in range(request, request + size):
            if not failed[place]:
                own = instants[: asked[place]]
                ttft[place], done[place] = own[0] - record.scheduled_ns[place], own[-1]
                gaps[place] = np.diff(own)
        request += size
    return TokenSamples(ttft, gaps, done, asked, generated.joined.tokens if generated.joined else computed)


def _stream_samples(
    load: LoadCase, record: Replication, client: ClientTimes, failed: NDArray[np.bool_]
) -> TokenSamples:
    count = len(record.start_ns)
    asked = np.array(record.new_tokens or (load.new_tokens or 1,) * count, np.int64)
    from_ns = np.array(record.scheduled_ns or record.start_ns, np.float64)
    first = np.array(client.first_ns, np.float64)
    lost = failed[:count] | (first < 0)
    done = np.where(lost, np.inf, np.array(record.done_ns, np.float64))
    gaps = []
    for place in range(count):
        if lost[place] or client.steps is None:
            gaps.append(np.full(asked[place] - 1, np.inf))
        else:
            own = client.steps.at_ns[client.steps.offsets[place] : client.steps.offsets[place + 1]]
            gaps.append(np.diff(np.array(own, np.float64)))
    return TokenSamples(np.where(lost, np.inf, first - from_ns), gaps, done, asked)


def exceeds_bound(bound: LatencyBound, latency: Floats, tokens: TokenSamples | None) -> NDArray[np.bool_]:
    """Whether each bounded value is over the limit: a latency or TTFT a request, or every ITL."""
    if bound.of == "latency" or tokens is None:
        return np.asarray(latency > bound.limit_ns)
    return np.asarray((tokens.ttft if bound.of == "ttft" else tokens.all_gaps) > bound.limit_ns)


def within_bounds(bounds: Sequence[LatencyBound], latency: Floats, tokens: TokenSamples | None) -> NDArray[np.bool_]:
    """Whether each scheduled request is within every bound: its latency, its TTFT, and all of its own ITLs but the
    share that the bound allows (p99: one in a hundred). A request of one token has no ITL to be over."""
    good = np.isfinite(latency)
    for bound in bounds:
        if bound.of == "itl" and tokens is not None:
            share = [float(np.mean(own > bound.limit_ns)) if own.size else 0.0 for own in tokens.gaps]
            good &= np.array(share) <= bound.allowed
        else:
            good &= ~exceeds_bound(bound, latency, tokens)
    return good
