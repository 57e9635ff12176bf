"""How far the answers to different samples are apart: in the output in which a wrong sample is hardest to see."""

from __future__ import annotations

import numpy as np
import pytest

from harness.statistics.parity import compare
from harness.zoo.reference import exchanged_answers

FAR = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)
NEAR = 3e5 + FAR
SAME = np.ones((8, 3), np.float32)


def distance(**outputs: np.ndarray) -> float | None:
    parity = exchanged_answers(dict(outputs), False, None, compare)
    return None if parity is None else parity.furthest


def test_the_output_with_the_nearest_answers_counts() -> None:
    near = distance(near=NEAR)
    assert near == pytest.approx(1e-5, rel=1)
    assert distance(far=FAR, near=NEAR) == distance(near=NEAR, far=FAR) == near
    assert (distance(far=FAR) or 0) > 1


def test_an_output_that_is_the_same_for_all_samples_counts_only_alone() -> None:
    assert distance(far=FAR, same=SAME) == distance(far=FAR)
    assert distance(same=SAME) == 0
    assert distance(one=FAR[:1]) is None


def test_an_output_with_infinities_in_other_places_hides_no_other() -> None:
    holes = np.where(np.eye(8, 4, dtype=bool), -np.inf, FAR)
    assert distance(holes=holes, near=NEAR) == distance(near=NEAR)
    assert distance(holes=holes) is None
