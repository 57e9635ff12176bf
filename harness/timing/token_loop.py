"""The loop that times every decoder, token by token: events only, no subtraction.

t_0 is read with the prompts on the host, before prefill(); t_k when the ids of the k-th token of the whole batch are on
the host. So TTFT = t_1 - t_0, ITL_k = t_(k+1) - t_k, and the times add up to t_N - t_0 exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import GeneratedRequest
from harness.core.schemas.generation_record import ids_digest
from harness.timing.clock import now_ns

Ids = NDArray[np.int64]


class Generator(Protocol):
    """The part of a decoder that the loop needs (harness.backends.decoder.Decoder has it)."""

    def prefill(self, ids: Ids) -> None:
        """Enqueue the pass over the prompts."""

    def step(self) -> None:
        """Enqueue one decode step."""

    def tokens(self) -> Ids:
        """Wait for the latest tokens and return them."""


@dataclass(frozen=True)
class TimedRequest:
    """start_ns, token_ns: the instants. tokens: (batch, N)."""

    start_ns: int
    token_ns: tuple[int, ...]
    tokens: Ids

    def record(self, rows: Sequence[int], ids: Ids) -> GeneratedRequest:
        """Its record; rows: of the prompt set."""
        return GeneratedRequest(
            prompts=tuple(rows),
            prompts_sha256=ids_digest(ids.tolist()),
            start_ns=self.start_ns,
            token_ns=self.token_ns,
            tokens=tuple(tuple(row) for row in self.tokens.tolist()),
        )


def timed_request(decoder: Generator, ids: Ids, new_tokens: int) -> TimedRequest:
    """One request. ids: (batch, prompt length). Nothing but the decoder's calls, the clock and a copy of the ids."""
    read, prefill, step, tokens = now_ns, decoder.prefill, decoder.step, decoder.tokens
    kept = np.empty((new_tokens, len(ids)), np.int64)
    instants = [0] * new_tokens
    start = read()
    prefill(ids)
    latest = tokens()
    instants[0] = read()
    # A decoder may give the same array each time.
    kept[0] = latest
    for k in range(1, new_tokens):
        step()
        latest = tokens()
        instants[k] = read()
        kept[k] = latest
    return TimedRequest(start, tuple(instants), np.ascontiguousarray(kept.T))


def ttft_ns(decoder: Generator, ids: Ids) -> int:
    """Time to the first token of a request that ends there."""
    start = now_ns()
    decoder.prefill(ids)
    decoder.tokens()
    return now_ns() - start
