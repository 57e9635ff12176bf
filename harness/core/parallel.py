"""Maps a function over many items in forked processes, which share what the function refers to."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

MOST = 4
"""Processes at most: each holds the items that it works on."""

_WORK: list[Callable[[Any], Any]] = []
"""The functions of the maps at work, for the processes that are forked from here."""


def map_forked(work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """The results in the order of the items. Items and results travel pickled.

    In this process where it has one CPU or one item. Raises what `work` raises.
    """
    processes = min(MOST, len(os.sched_getaffinity(0)), len(items))
    if processes < 2:
        yield from map(work, items)
        return
    _WORK.append(work)
    # The collector of the processes leaves alone what they share: looking at it would copy it.
    gc.freeze()
    try:
        with multiprocessing.get_context("fork").Pool(processes, _collect_rarely) as pool:
            yield from pool.imap(_call, items)
    finally:
        gc.unfreeze()
        _WORK.pop()


def _collect_rarely() -> None:
    """Records form no cycles, and an item leaves nothing behind."""
    gc.set_threshold(100_000, 50, 50)


def _call(item: Any) -> Any:
    return _WORK[-1](item)
