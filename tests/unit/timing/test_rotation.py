"""Which batches are compared before timing."""

from __future__ import annotations

from harness.timing.rotation import batches_to_check


def test_the_first_round_compares_all_batches_and_later_ones_others_each() -> None:
    assert list(batches_to_check(64, 1)) == list(range(64))
    later = [list(batches_to_check(64, number)) for number in range(2, 10)]
    assert [len(batches) for batches in later] == [8] * 8
    assert sorted(index for batches in later for index in batches) == list(range(64))
    assert len(batches_to_check(20, 2)) == 10
    assert list(batches_to_check(15, 2)) == list(range(15))
