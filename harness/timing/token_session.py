"""The loop that times every decoder, token by token, and one process of a generation case around it: cold start, forced
comparison, warm-up, timed requests, checks of the cache.

The loop has events only, no subtraction. t_0 is read with the prompts on the host, before prefill(); t_k when the ids
of the k-th token of the whole batch are on the host. So TTFT = t_1 - t_0, ITL_k = t_(k+1) - t_k, and the times add up
to t_N - t_0 exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import (
    ColdCosts,
    CpuUse,
    GeneratedRequest,
    GenerationOptions,
    Measurement,
    Memory,
    Placement,
    ReuseCheck,
    Stops,
    TokenParity,
)
from harness.core.schemas.generation_record import ids_digest
from harness.statistics.estimators import median
from harness.statistics.parity import GreedyAnswer, Ids, ParityTally
from harness.timing.clock import now_ns
from harness.timing.process_counters import (
    CpuAllowance,
    CpuWatch,
    StopCounter,
    peak_bytes,
    resident_bytes,
)
from harness.timing.repeat_check import TOKENS_BUDGET_S
from harness.timing.session import disable_garbage_collection


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


def time_request(decoder: Generator, ids: Ids, new_tokens: int) -> TimedRequest:
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


AGREEING = 3
"""Warm-up requests whose median step must agree."""

REUSE_PAIRS = 12
"""Pairs of a repeated and a new prompt: eleven are the fewest whose extremes enclose the median with 99.9%."""


class TokenSource(Generator, Protocol):
    """The part of a decoder that a session needs besides the loop's."""

    compiles: bool

    def load(self) -> None:
        """Load the model."""

    def compile(self) -> None:
        """Compile."""

    def compile_cached(self) -> bool | None:
        """Whether compile() finds earlier work."""

    def logits(self) -> NDArray[np.float32]:
        """Logits of the latest tokens."""

    def force(self, ids: Ids) -> None:
        """Tokens that the next step takes."""

    def cache_bytes(self) -> int:
        """Bytes of keys and values."""

    def placement(self) -> Placement:
        """Device, precision and settings that really ran."""

    def close(self) -> None:
        """Release resources."""


@dataclass(frozen=True)
class TokenMeasurements:
    """All measurements of one process about its case."""

    warmups: tuple[GeneratedRequest, ...]
    requests: tuple[GeneratedRequest, ...]
    steady: bool
    stop: Literal["requests", "time limit"]
    cache_bytes: int
    parity: TokenParity | None
    reuse: ReuseCheck | None
    placement: Placement
    memory: Memory
    cold_ns: ColdCosts
    cpu_use: CpuUse
    stops: Stops | None


def run_token_session(
    decoder: TokenSource,
    prompts: Ids,
    reference: GreedyAnswer | None,
    batch_size: int,
    new_tokens: int,
    options: GenerationOptions,
    settings: Measurement,
    enter: Callable[[str], None],
    seed: int,
) -> TokenMeasurements:
    """Measure one case. prompts: (samples, length), different rows. reference: of the first rows; None where nothing is
    computed. enter: called with the name of each phase when it begins."""
    stops, given = StopCounter(enter), CpuAllowance.now()
    enter = stops.enter
    baseline = resident_bytes()
    batches = PromptBatches(prompts, batch_size)
    # The cold start and the warm-up take the last prompts: the first ones, which have a reference, are new when timed.
    cold = _cold_start(decoder, batches.ids(batches.before(1)), new_tokens, enter)
    tally = None if reference is None else ParityTally(reference.first(new_tokens))
    if tally is not None:
        enter("reference check")
        _force(decoder, batches, tally, new_tokens)
    disable_garbage_collection()
    enter("warm-up")
    watch, began = CpuWatch(given=given), now_ns()
    warmups, steady = _warm_up(decoder, batches, new_tokens, options, settings, watch.time_work)
    enter("measure")
    # CPU time is counted in ticks too coarse for less (Measurement.min_s).
    earliest = began + int(settings.min_s * 1e9)
    timed, stop = _measure(decoder, batches, new_tokens, options, watch.time_work, earliest)
    cpu_use = watch.end()
    peak = peak_bytes()
    cache = decoder.cache_bytes()
    enter("tokens check")
    if tally is not None:
        for request in timed:
            for place, row in enumerate(request.prompts):
                if row < len(tally.reference.tokens):
                    tally.free(row, np.asarray(request.tokens[place], np.int64))
    placement = decoder.placement()
    reuse = None
    if tally is not None:
        enter("repeat check")
        # Last of all: it may change nothing that was measured or read before.
        reuse = _reuse(decoder, batches, timed[0], new_tokens, seed)
    stopped = stops.end()
    decoder.close()
    return TokenMeasurements(
        warmups=tuple(warmups),
        requests=tuple(timed),
        steady=steady,
        stop=stop,
        cache_bytes=cache,
        parity=None if tally is None else tally.result(),
        reuse=reuse,
        placement=placement,
        memory=Memory(peak_rss_bytes=peak, baseline_rss_bytes=baseline),
        cold_ns=cold,
        cpu_use=cpu_use,
        stops=stopped,
    )


@dataclass(frozen=True)
class PromptBatches:
    """Batches of prompts: each takes the next rows, so that a prompt returns as late as possible."""

    prompts: Ids
    batch_size: int

    def rows(self, number: int) -> list[int]:
        """Rows of a batch, counted from 0."""
        return [(number * self.batch_size + place) % len(self.prompts) for place in range(self.batch_size)]

    def before(self, number: int) -> list[int]:
        """Rows of a batch counted from the end, from 1 on."""
        return self.rows(-number)

    def ids(self, rows: list[int]) -> Ids:
        """Their ids, (batch, length)."""
        return np.ascontiguousarray(self.prompts[rows])


def _cold_start(decoder: TokenSource, ids: Ids, new_tokens: int, enter: Callable[[str], None]) -> ColdCosts:
    enter("load")
    start = now_ns()
    decoder.load()
    loaded = now_ns()
    cached, compile_ns = None, None
    if decoder.compiles:
        enter("compile")
        cached = decoder.compile_cached()
        compile_start = now_ns()
        decoder.compile()
        compile_ns = now_ns() - compile_start
    enter("first request")
    first = time_request(decoder, ids, new_tokens)
    return ColdCosts(
        load=loaded - start,
        compile=compile_ns,
        compile_cached=cached,
        first_inference=first.token_ns[-1] - first.start_ns,
    )


def _force(decoder: TokenSource, batches: PromptBatches, tally: ParityTally, new_tokens: int) -> None:
    """Compare the logits of every step for the prompts that have stored logits, batch by batch.

    A batch also has prompts without stored logits: those go on with their own tokens.
    """
    stored, wanted = len(tally.reference.logits), tally.reference.tokens
    for number in range(-(-stored // batches.batch_size)):
        rows = batches.rows(number)
        judged = [(place, row) for place, row in enumerate(rows) if row < stored and number * batches.batch_size <= row]
        decoder.prefill(batches.ids(rows))
        for step in range(new_tokens):
            if step:
                decoder.step()
            chosen = np.array(decoder.tokens(), np.int64)
            logits = decoder.logits()
            for place, row in judged:
                tally.force(row, step, logits[place])
                tally.forced_token(row, step, int(chosen[place]))
                chosen[place] = wanted[row, step]
            if step + 1 < new_tokens:
                decoder.force(chosen)


def _warm_up(
    decoder: Generator,
    batches: PromptBatches,
    new_tokens: int,
    options: GenerationOptions,
    settings: Measurement,
    after: Callable[[], object],
) -> tuple[list[GeneratedRequest], bool]:
    """Full requests, at least options.warmups, until the last three agree on their median time, or the limit."""
    requests: list[GeneratedRequest] = []
    medians: list[float] = []
    started = now_ns()
    while True:
        rows = batches.before(2 + len(requests))
        ids = batches.ids(rows)
        request = time_request(decoder, ids, new_tokens)
        requests.append(request.record(rows, ids))
        medians.append(_typical_ns(request))
        after()
        latest = medians[-AGREEING:]
        agree = len(latest) == AGREEING and max(latest) - min(latest) <= settings.steady_tolerance * min(latest)
        enough, elapsed_s = len(requests) >= options.warmups, (now_ns() - started) / 1e9
        if enough and ((agree and elapsed_s >= settings.warmup_min_s) or elapsed_s >= settings.warmup_max_s):
            return requests, agree


def _typical_ns(request: TimedRequest) -> float:
    """The median step; of a one-token output its TTFT."""
    steps = np.diff(np.asarray(request.token_ns, np.int64))
    return median(steps) if steps.size else float(request.token_ns[0] - request.start_ns)


def _measure(
    decoder: Generator,
    batches: PromptBatches,
    new_tokens: int,
    options: GenerationOptions,
    after: Callable[[], object],
    earliest: int,
) -> tuple[list[GeneratedRequest], Literal["requests", "time limit"]]:
    """Requests until there are enough of them and `earliest` is reached, or the time limit."""
    requests: list[GeneratedRequest] = []
    started = now_ns()
    for rows in _rotation(batches):
        ids = batches.ids(rows)
        request = time_request(decoder, ids, new_tokens)
        # Between requests, outside of every timed span.
        requests.append(request.record(rows, ids))
        after()
        if len(requests) >= options.requests and now_ns() >= earliest:
            return requests, "requests"
        if len(requests) >= 2 and (now_ns() - started) / 1e9 >= options.max_s:
            return requests, "time limit"
    raise AssertionError("the rotation does not end")


def _rotation(batches: PromptBatches) -> Iterator[list[int]]:
    number = 0
    while True:
        yield batches.rows(number)
        number += 1


def _reuse(
    decoder: Generator, batches: PromptBatches, first: GeneratedRequest, new_tokens: int, seed: int
) -> ReuseCheck:
    """The first timed prompts again, after all others; then pairs of prompts that were just there and new ones.

    New prompts have the tokens of stored ones in random order: they were never seen, and cost the same work.
    """
    ids = batches.ids(list(first.prompts))
    again = time_request(decoder, ids, new_tokens).tokens
    unequal = int(np.count_nonzero((again != np.asarray(first.tokens)).any(axis=1)))
    chance = np.random.default_rng([seed, new_tokens])
    repeated, fresh = [], []
    deadline = now_ns() + int(TOKENS_BUDGET_S * 1e9)
    for _ in range(REUSE_PAIRS):
        new = chance.permuted(ids, axis=1)
        # In random order, so that neither is always the second.
        if chance.random() < 0.5:
            ttft_ns(decoder, ids)
            repeated.append(ttft_ns(decoder, ids))
            fresh.append(ttft_ns(decoder, new))
        else:
            fresh.append(ttft_ns(decoder, new))
            ttft_ns(decoder, ids)
            repeated.append(ttft_ns(decoder, ids))
        if now_ns() >= deadline:
            break
    return ReuseCheck(compared=len(again), unequal=unequal, repeated_ns=tuple(repeated), fresh_ns=tuple(fresh))
