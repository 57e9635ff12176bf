"""Static batching of generation: the next requests run as one batch until the longest output is complete.

Prompts of a batch are padded to its longest, and the batch to the next prepared size. A request has its k-th token when
the batch has made it, and is done with its own last token; its slot stays taken to the end of the batch. Requests that
join a running batch: token_joining.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import GeneratedBatches, JoinedPasses, TokenParity
from harness.serving.batching import prepared_for
from harness.timing.token_loop import Generator, Ids, TimedRequest, timed_request


class PaddedGenerator(Generator, Protocol):
    """The part of a decoder that static batching needs."""

    def prefill_padded(self, ids: Ids, lengths: Ids) -> None:
        """Enqueue the pass over prompts of several lengths."""


@dataclass(frozen=True)
class TokenRequest:
    """prompt: its ids, (length,). row: of the prompt set of that length. new_tokens: of its output."""

    prompt: Ids
    row: int
    new_tokens: int


@dataclass(frozen=True)
class ServedBatch:
    """The batch of some requests. slots: sequences of its decoder. timed: None where it failed."""

    requests: Sequence[TokenRequest]
    slots: int
    timed: TimedRequest | None


@dataclass(frozen=True)
class _Padded:
    """A decoder whose prompts have these lengths, as the loop calls it."""

    decoder: PaddedGenerator
    lengths: Ids

    def prefill(self, ids: Ids) -> None:
        self.decoder.prefill_padded(ids, self.lengths)

    def step(self) -> None:
        self.decoder.step()

    def tokens(self) -> Ids:
        return self.decoder.tokens()


class StaticBatches:
    """Serves requests in their order. decoders: by prepared size; batches: those that ran or failed."""

    def __init__(self, decoders: Mapping[int, PaddedGenerator], requests: Sequence[TokenRequest]) -> None:
        self._decoders = decoders
        self._sizes = sorted(decoders)
        self._requests = requests
        self._head = 0
        self.batches: list[ServedBatch] = []

    def run(self, count: int) -> None:
        """The next `count` requests, to the end of the longest output."""
        taken = self._requests[self._head : self._head + count]
        self._head += count
        slots = prepared_for(self._sizes, count)
        timed = None
        try:
            timed = generate(self._decoders[slots], taken, slots)
        finally:
            self.batches.append(ServedBatch(taken, slots, timed))

    def record(self, zero_ns: int, parity: TokenParity | None) -> GeneratedBatches:
        """Lengths and instants of a replication. zero_ns: of its schedule; parity: of its tokens."""
        return batches_record(self._requests, self.batches, zero_ns, parity)


def batches_record(
    requests: Sequence[TokenRequest],
    batches: Sequence[ServedBatch],
    zero_ns: int,
    parity: TokenParity | None,
    joined: JoinedPasses | None = None,
) -> GeneratedBatches:
    """Lengths of all requests of a replication, and the instants of those that were served. joined: of continuous
    batching."""
    return GeneratedBatches(
        prompt_tokens=tuple(len(request.prompt) for request in requests),
        new_tokens=tuple(request.new_tokens for request in requests),
        slots=tuple(batch.slots for batch in batches),
        token_ns=tuple(
            () if batch.timed is None else tuple(at - zero_ns for at in batch.timed.token_ns) for batch in batches
        ),
        parity=parity,
        joined=joined,
    )


def generate(decoder: PaddedGenerator, requests: Sequence[TokenRequest], slots: int) -> TimedRequest:
    """One batch; slots without a request repeat the first one."""
    ids, lengths = padded([request.prompt for request in requests], slots)
    equal = bool((lengths == lengths[0]).all())
    longest = max(request.new_tokens for request in requests)
    return timed_request(decoder if equal else _Padded(decoder, lengths), ids, longest)


def padded(prompts: Sequence[Ids], slots: int) -> tuple[Ids, NDArray[np.int64]]:
    """(slots, longest) ids with each prompt at the end of its row, and the lengths, (slots,).

    >>> padded([np.array([5, 6]), np.array([7])], 3)[0].tolist()
    [[5, 6], [0, 7], [5, 6]]
    """
    filled = [*prompts, *[prompts[0]] * (slots - len(prompts))]
    lengths = np.array([len(prompt) for prompt in filled], np.int64)
    ids = np.zeros((slots, int(lengths.max())), np.int64)
    for row, prompt in zip(ids, filled, strict=True):
        row[len(row) - len(prompt) :] = prompt
    return ids, lengths
