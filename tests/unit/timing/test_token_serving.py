"""Static batching of generation on a clock that only waits and work move: exact instants of every token."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.schemas import GeneratedBatches
from harness.serving.batching import BatchPolicy
from harness.timing.request_loops import Dispatches, serve
from harness.timing.token_batching import StaticBatches, TokenRequest
from tests.fixtures.loops import MS, in_ms
from tests.fixtures.simulated_clock import KnownDecoder, SimulatedClock, alone, in_place


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedClock:
    return in_place(monkeypatch)


def requests(*lengths: tuple[int, int]) -> list[TokenRequest]:
    return [TokenRequest(np.full(prompt, 7), 0, new) for prompt, new in lengths]


def served(
    clock: SimulatedClock,
    scheduled_ms: list[int],
    lengths: list[tuple[int, int]],
    max_batch: int = 1,
    fails: tuple[int, ...] = (),
) -> tuple[Dispatches, GeneratedBatches, dict[int, KnownDecoder]]:
    """A prefill takes 10 ms and a step 1 ms, whatever the batch."""
    sizes = (1, 2, 4)[: max_batch.bit_length()]
    decoders = {size: KnownDecoder(clock, size, 10 * MS, lambda _: MS, fails) for size in sizes}
    batches = StaticBatches(decoders, requests(*lengths))
    scheduled = [at * MS for at in scheduled_ms]
    result = serve(scheduled, BatchPolicy(max_batch), [batches.run], alone, 1 << 60)
    return result, batches.record(result.zero_ns, None), decoders


def test_a_known_decoder_gives_known_tokens_under_a_known_schedule(clock: SimulatedClock) -> None:
    result, tokens, _ = served(clock, [0, 5, 100], [(8, 3), (8, 2), (8, 1)])
    # The second request waits for the first; the third finds the decoder idle.
    assert in_ms(tokens) == [[10, 11, 12], [22, 23], [110]]
    assert [at / MS for at in result.start_ns] == [0, 12, 100]
    assert tokens.slots == (1, 1, 1)


def test_a_batch_runs_to_its_longest_output_and_the_next_waits_for_it(clock: SimulatedClock) -> None:
    result, tokens, _ = served(clock, [0, 0, 0, 11], [(8, 2), (8, 4), (8, 1), (8, 2)], max_batch=4)
    assert result.sizes == (3, 1)
    assert in_ms(tokens) == [[10, 11, 12, 13], [23, 24]]
    assert tokens.slots == (4, 1)
    assert tokens.new_tokens == (2, 4, 1, 2)


def test_prompts_are_padded_to_the_longest_of_their_batch_and_only_where_they_differ(clock: SimulatedClock) -> None:
    _, _, decoders = served(clock, [0, 0, 100, 100], [(3, 2), (9, 2), (5, 2), (5, 2)], max_batch=2)
    assert decoders[2].seen == [((2, 9), [3, 9]), ((2, 5), None)]


def test_a_failed_batch_has_no_tokens_and_the_next_one_runs(clock: SimulatedClock) -> None:
    result, tokens, _ = served(clock, [0, 0, 0], [(8, 2), (8, 2), (8, 2)], fails=(1,))
    assert result.failed == (1,)
    assert result.error == "ValueError: no memory for the cache"
    assert in_ms(tokens) == [[10, 11], [], [21, 22]]
