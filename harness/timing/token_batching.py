"""Batching of generation: static, where the next requests run as one batch until the longest output is complete; and
continuous, where requests join between two steps and leave with their last token.

Static: prompts of a batch are padded to its longest, and the batch to the next prepared size. A request has its k-th
token when the batch has made it, and is done with its own last token; its slot stays taken to the end of the batch.

Continuous: one thread goes through the schedule of request_loops.py. Requests that have arrived join in their order
while a slot is free, each by a pass of its own over its prompt, which gives its first token; then one step gives every
running request a token. So a join delays the next token of all others, and their ITL has it in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import reason
from harness.core.schemas import GeneratedBatches, JoinedPasses, TokenParity
from harness.serving.batching import prepared_for
from harness.statistics.parity import Ids
from harness.timing.clock import now_ns
from harness.timing.request_loops import LEAD_NS, MOST_FAILURES, Dispatches, wait_until
from harness.timing.token_session import Generator, TimedRequest, time_request


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
            timed = generate_batch(self._decoders[slots], taken, slots)
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


def generate_batch(decoder: PaddedGenerator, requests: Sequence[TokenRequest], slots: int) -> TimedRequest:
    """One batch; slots without a request repeat the first one."""
    ids, lengths = left_padded([request.prompt for request in requests], slots)
    equal = bool((lengths == lengths[0]).all())
    longest = max(request.new_tokens for request in requests)
    return time_request(decoder if equal else _Padded(decoder, lengths), ids, longest)


def left_padded(prompts: Sequence[Ids], slots: int) -> tuple[Ids, NDArray[np.int64]]:
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


class JoiningGenerator(Protocol):
    """The part of a decoder that the loop needs (harness.backends.decoder.JoiningDecoder has it)."""

    def join(self, slot: int, ids: Ids) -> None:
        """Empty the slot, and enqueue the pass over a prompt."""

    def step(self) -> None:
        """Enqueue one token for every sequence."""

    def tokens(self) -> Ids:
        """Wait for the latest pass; the latest token of each slot."""

    def leave(self, slot: int) -> None:
        """Empty the slot."""

    def width(self) -> int:
        """Sequences that the next step computes."""


@dataclass
class _Sequence:
    """A request since it joined; instants of the process's clock. ready_ns: it had arrived, and no pass was running."""

    request: TokenRequest
    slot: int
    ready_ns: int
    start_ns: int
    done_ns: int = 0
    token_ns: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    error: str | None = None

    def got(self, token: int, at_ns: int) -> bool:
        """Note a token; whether it is the last one."""
        self.token_ns.append(at_ns)
        self.tokens.append(token)
        self.done_ns = at_ns
        return len(self.tokens) == self.request.new_tokens


class ContinuousBatches:
    """Serves requests in their order, at most `slots` at a time."""

    def __init__(self, decoder: JoiningGenerator, slots: int, requests: Sequence[TokenRequest]) -> None:
        self._decoder = decoder
        self._requests = requests
        self._free = list(range(slots))
        self._running: dict[int, _Sequence] = {}
        self._joined: list[_Sequence] = []
        self._steps = self._computed = 0
        self._failures = 0
        self._pass_end_ns = 0

    def serve(self, scheduled: Sequence[int], limit_ns: int) -> Dispatches:
        """Serve a schedule (sorted, ns since its zero) to its end, or until none may join any more at limit_ns.

        An exception of a pass fails its requests: that which joins, or all that a step serves. The next ones run.
        """
        for slot in self._free:
            self._decoder.leave(slot)
        zero = now_ns() + LEAD_NS
        due, end = [zero + at for at in scheduled], zero + limit_ns
        timed_out = False
        while not timed_out:
            head = len(self._joined)
            waiting = head < len(due) and self._failures < MOST_FAILURES
            if not self._running:
                if not waiting:
                    break
                timed_out = max(due[head], now_ns()) > end
                if not timed_out:
                    wait_until(due[head])
            if waiting and self._free and due[head] <= (now := now_ns()):
                timed_out = timed_out or now > end
                if not timed_out:
                    self._join(self._requests[head], due[head])
            elif self._running:
                self._step()
        while self._running:
            self._step()
        return self._dispatches(zero, timed_out)

    @property
    def batches(self) -> list[ServedBatch]:
        """Each request that joined, as a batch of its own."""
        return [ServedBatch((sequence.request,), 1, _timed(sequence)) for sequence in self._joined]

    def record(self, zero_ns: int, parity: TokenParity | None) -> GeneratedBatches:
        """Lengths and instants of a replication. zero_ns: of its schedule; parity: of its tokens."""
        passes = JoinedPasses(steps=self._steps, tokens=self._computed)
        return batches_record(self._requests, self.batches, zero_ns, parity, passes)

    def _join(self, request: TokenRequest, due_ns: int) -> None:
        """The pass over one prompt, which gives its first token."""
        slot = heappop(self._free)
        start = now_ns()
        joining = _Sequence(request, slot, min(start, max(due_ns, self._pass_end_ns)), start)
        self._joined.append(joining)
        self._running[slot] = joining
        try:
            self._decoder.join(slot, request.prompt)
            tokens = self._decoder.tokens()
        except Exception as caught:
            self._fail([joining], reason(caught))
        else:
            self._computed += 1
            self._note([joining], tokens)

    def _step(self) -> None:
        """One token for every running request."""
        running = list(self._running.values())
        width = self._decoder.width()
        try:
            self._decoder.step()
            tokens = self._decoder.tokens()
        except Exception as caught:
            self._fail(running, reason(caught))
        else:
            self._steps += 1
            self._computed += width
            self._note(running, tokens)

    def _note(self, sequences: Sequence[_Sequence], tokens: Ids) -> None:
        at = self._pass_end_ns = now_ns()
        self._failures = 0
        for sequence in sequences:
            if sequence.got(int(tokens[sequence.slot]), at):
                self._leave(sequence)

    def _fail(self, sequences: Sequence[_Sequence], error: str) -> None:
        at = self._pass_end_ns = now_ns()
        self._failures += 1
        for sequence in sequences:
            sequence.done_ns, sequence.error = at, error
            self._leave(sequence)

    def _leave(self, sequence: _Sequence) -> None:
        del self._running[sequence.slot]
        self._decoder.leave(sequence.slot)
        heappush(self._free, sequence.slot)

    def _dispatches(self, zero: int, timed_out: bool) -> Dispatches:
        served = self._joined
        errors = [sequence.error for sequence in served if sequence.error is not None]
        return Dispatches(
            sizes=(1,) * len(served),
            ready_ns=tuple(sequence.ready_ns - zero for sequence in served),
            start_ns=tuple(sequence.start_ns - zero for sequence in served),
            done_ns=tuple(sequence.done_ns - zero for sequence in served),
            worker=tuple(sequence.slot for sequence in served),
            failed=tuple(place for place, sequence in enumerate(served) if sequence.error is not None),
            error=errors[0] if errors else None,
            timed_out=timed_out,
            zero_ns=zero,
        )


def _timed(sequence: _Sequence) -> TimedRequest | None:
    """Its tokens; None where it failed."""
    if sequence.error is not None:
        return None
    return TimedRequest(sequence.start_ns, tuple(sequence.token_ns), np.array([sequence.tokens], np.int64))
