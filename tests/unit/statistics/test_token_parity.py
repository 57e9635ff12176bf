"""When a different token is explained, and when it is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from harness.statistics.parity import GreedyAnswer, ParityTally, worst_token_parity


def answer(margin: float) -> GreedyAnswer:
    """Two sequences of three steps over four tokens: token 1 leads token 2 by the margin."""
    logits = np.tile(np.array([0, 3, 3 - margin, 0], np.float32), (2, 3, 1))
    return GreedyAnswer(np.ones((2, 3), np.int64), np.full((2, 3), margin, np.float32), logits)


def forced(tally: ParityTally, off: float) -> None:
    for sequence in range(2):
        for step in range(3):
            tally.force(sequence, step, tally.reference.logits[sequence, step] + np.float32([0, -off, off, 0]))


def test_equal_tokens_and_logits() -> None:
    tally = ParityTally(answer(0.5))
    forced(tally, 0)
    tally.free(0, np.ones(3, np.int64))
    found = tally.result()
    assert (found.max_abs, found.relative_l2, found.free_equal, found.unexplained) == (0, 0, 1, 0)
    assert found.cosine == pytest.approx(1)


@pytest.mark.parametrize(("margin", "off", "unexplained"), [(0.1, 0.06, 0), (0.5, 0.06, 1)])
def test_a_flip_is_explained_only_where_the_numbers_differ_by_as_much(
    margin: float, off: float, unexplained: int
) -> None:
    tally = ParityTally(answer(margin))
    forced(tally, off)
    tally.free(1, np.array([1, 2, 0]))
    found = tally.result()
    assert (found.first_difference, found.unexplained) == (2, unexplained)
    assert found.first_margin == pytest.approx(margin)
    assert found.first_moved == pytest.approx(2 * off, rel=1e-5)


def test_right_logits_beside_a_wrong_token_are_wrong() -> None:
    tally = ParityTally(answer(0.5))
    forced(tally, 0)
    tally.forced_token(0, 1, 3)
    assert tally.result().unexplained == 1


@pytest.mark.parametrize(("token", "unexplained"), [(1, 0), (2, 0), (3, 1)])
def test_a_forced_token_must_be_the_best_by_the_decoders_own_logits(token: int, unexplained: int) -> None:
    tally = ParityTally(answer(0.1))
    # The numbers differ by more than the margin: token 2 leads by the decoder's own logits.
    forced(tally, 0.06)
    tally.forced_token(0, 1, token)
    assert tally.result().unexplained == unexplained


@pytest.mark.parametrize(("token", "unexplained"), [(2, 0), (3, 1), (9, 1)])
def test_a_free_token_is_explained_by_its_own_gap_and_not_by_that_of_the_second_best(
    token: int, unexplained: int
) -> None:
    tally = ParityTally(answer(0.1))
    forced(tally, 0.06)
    tally.free(0, np.array([1, token, 1]))
    assert tally.result().unexplained == unexplained


def test_a_logit_that_is_not_finite_leaves_no_distance() -> None:
    tally = ParityTally(answer(0.5))
    tally.force(0, 0, np.array([np.nan, 0, 0, np.inf], np.float32))
    found = tally.result()
    assert (found.nonfinite, found.max_abs, found.relative_l2, found.cosine) == (2, None, None, None)


def test_the_worst_of_processes_has_the_earliest_difference() -> None:
    parts = []
    for tokens in ([1, 1, 1], [1, 2, 1], [1, 1, 2]):
        tally = ParityTally(answer(0.5))
        forced(tally, 0.01)
        tally.free(0, np.array(tokens))
        parts.append(tally.result())
    found = worst_token_parity(parts)
    assert found is not None
    assert (found.first_difference, found.free_sequences, found.free_equal, found.unexplained) == (2, 3, 1, 2)
    assert worst_token_parity([]) is None
