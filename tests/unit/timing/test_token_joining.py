"""Continuous batching on a clock that only waits and work move: exact instants of every token, and whose they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.core.schemas import GeneratedBatches
from harness.timing.request_loops import MOST_FAILURES, Dispatches
from harness.timing.token_batching import ContinuousBatches, TokenRequest
from tests.fixtures.loops import MS, in_ms
from tests.fixtures.simulated_clock import KnownJoiner, SimulatedClock, in_place


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedClock:
    return in_place(monkeypatch)


def served(
    clock: SimulatedClock,
    scheduled_ms: list[int],
    new_tokens: list[int],
    slots: int = 2,
    limit_ms: int = 1 << 40,
    **more: Any,
) -> tuple[Dispatches, GeneratedBatches, ContinuousBatches, KnownJoiner]:
    """A join takes 10 ms and a step 1 ms, whatever the number of sequences."""
    decoder = KnownJoiner(clock, slots, 10 * MS, lambda _: MS, **more)
    batches = ContinuousBatches(decoder, slots, [TokenRequest(np.full(8, 7), 0, new) for new in new_tokens])
    result = batches.serve([at * MS for at in scheduled_ms], limit_ms * MS)
    return result, batches.record(result.zero_ns, None), batches, decoder


def test_a_join_delays_the_tokens_of_those_that_run(clock: SimulatedClock) -> None:
    result, tokens, _, decoder = served(clock, [0, 11, 100], [5, 2, 1])
    # The second arrives at 11, joins then, and has its first token at 21: the first waits for it, and its ITL has it.
    assert in_ms(tokens) == [[10, 11, 22, 23, 24], [21, 22], [110]]
    assert [at / MS for at in result.start_ns] == [0, 11, 100]
    assert [at / MS for at in result.done_ns] == [24, 22, 110]
    assert decoder.calls[:4] == ["join 0", "step [0]", "join 1", "step [0, 1]"]
    assert tokens.joined is not None
    assert (tokens.joined.steps, tokens.joined.tokens) == (4, 3 + 1 + 2 + 1 + 1)


def test_an_arrival_during_a_pass_waits_for_its_end_and_is_not_late(clock: SimulatedClock) -> None:
    result, tokens, _, _ = served(clock, [0, 3, 4], [2, 2, 2], slots=3)
    # Both arrive while the first joins; each has a pass of its own before the next step.
    assert in_ms(tokens) == [[10, 31], [20, 31], [30, 31]]
    assert [at / MS for at in result.start_ns] == [0, 10, 20]
    assert result.ready_ns == result.start_ns


def test_sequences_that_overlap_keep_their_tokens_and_a_slot_is_used_again(clock: SimulatedClock) -> None:
    result, tokens, batches, _ = served(clock, [0, 0, 0, 0], [2, 6, 3, 1])
    own = [batch.timed.tokens[0].tolist() for batch in batches.batches if batch.timed]
    assert own == [[101, 102], [201, 202, 203, 204, 205, 206], [301, 302, 303], [401]]
    assert result.worker == (0, 1, 0, 0)  # the third and fourth take the slot that the first left
    assert in_ms(tokens)[2:] == [[31, 32, 33], [43]]
    assert tokens.slots == (1, 1, 1, 1)


def test_a_slot_that_keeps_its_old_content_changes_the_tokens(clock: SimulatedClock) -> None:
    _, _, batches, _ = served(clock, [0, 0, 0], [2, 6, 3], stale=True)
    own = [batch.timed.tokens[0].tolist() for batch in batches.batches if batch.timed]
    assert own[:2] == [[101, 102], [201, 202, 203, 204, 205, 206]]
    assert own[2] != [301, 302, 303]


def test_a_failed_join_loses_one_request_and_a_failed_step_all_that_run(clock: SimulatedClock) -> None:
    result, tokens, _, _ = served(clock, [0, 0, 0], [3, 3, 3], fails=(1,))
    assert (result.failed, result.error) == ((1,), "ValueError: no memory for the cache")
    assert in_ms(tokens) == [[10, 21, 22], [], [20, 21, 22]]
    result, tokens, _, _ = served(clock, [0, 0, 0], [3, 3, 3], fails_at=(0,))
    assert (result.failed, result.error) == ((0, 1), "ValueError: the step failed")
    assert in_ms(tokens) == [[], [], [30, 31, 32]]


def test_a_service_that_keeps_failing_is_ended(clock: SimulatedClock) -> None:
    count = MOST_FAILURES + 5
    result, _, _, _ = served(clock, [0] * count, [3] * count, fails=tuple(range(count)))
    assert len(result.sizes) == len(result.failed) == MOST_FAILURES
    assert not result.timed_out


def test_nothing_joins_after_the_limit_and_running_requests_end(clock: SimulatedClock) -> None:
    result, tokens, _, _ = served(clock, [0, 0, 0], [3, 30, 3], limit_ms=21)
    assert result.timed_out
    assert [len(batch) for batch in tokens.token_ns] == [3, 30]
    result, _, _, _ = served(clock, [0, 50], [2, 2], limit_ms=40)
    assert (result.timed_out, len(result.sizes)) == (True, 1)
