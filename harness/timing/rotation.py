"""The batches that rotate in a process: how many there are, which are compared before timing, and how many passes a
process makes beside warm-up and timed part (pure)."""

from __future__ import annotations

import math

from harness.timing.repeat_check import LEAST_PAIRS, NEW_PASSES

MIN_BATCHES = 8
"""Fewer different inputs would let caches and branch predictors learn them: a choice."""

LATER_SHARE = 8
"""Rounds after the first compare one batch in this many before timing …"""

LEAST_CHECKED = 8
"""… but at least this many batches, or all where there are fewer."""


def batch_starts(samples: int, batch_size: int) -> list[int]:
    """First sample of each batch: together they cover all samples, and there are at least MIN_BATCHES.

    Small batches partition the samples. Large batches overlap, each starting an eighth of the samples later; samples
    wrap around at the end.
    """
    partition = math.ceil(samples / batch_size)
    if partition >= MIN_BATCHES:
        return [index * batch_size for index in range(partition)]
    return [index * samples // MIN_BATCHES for index in range(MIN_BATCHES)]


def batches_to_check(batches: int, round_number: int) -> range:
    """Batches that a process compares with the reference before timing.

    All in round 1, and one in LATER_SHARE in each later round, different in each, so that LATER_SHARE rounds cover all.
    Answers during timing are compared as well. For a slow model, comparing 64 answers takes longer than timing it.
    """
    step = 1 if round_number == 1 else max(1, min(LATER_SHARE, batches // LEAST_CHECKED))
    return range((round_number - 1) % step, batches, step)


def passes_beside_timing(batches: int, round_number: int) -> int:
    """Passes of a process of a slow model besides warm-up and timed part: the first one, the reference check, the
    repeat check and new samples. A fast model makes more pairs, for a fixed time (repeat_check.BUDGET_NS)."""
    pairs = 1 + 2 * LEAST_PAIRS
    return 1 + len(batches_to_check(batches, round_number)) + pairs + min(NEW_PASSES, batches)
