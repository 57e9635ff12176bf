"""Maps a function over many items in forked processes, which share what the function refers to; turns the collector of
cycles off for work on many records."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.pool import AsyncResult
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

MOST = 8
"""Processes at most: each holds the items that it works on, 2 GiB in all at 100,000 cases (docs/speed.md)."""

AHEAD = 2
"""Results of each process that may wait for the caller: without a bound they were the memory of a large run."""

_WORK: list[Callable[[Any], Any]] = []
"""The functions of the maps at work, for the processes that are forked from here."""


def map_forked(work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """The results in the order of the items. Items and results travel pickled, and few wait for the caller.

    In this process where it has one CPU or one item. Raises what `work` raises.
    """
    processes = min(MOST, len(os.sched_getaffinity(0)), len(items))
    if processes < 2:
        yield from map(work, items)
        return
    _WORK.append(work)
    try:
        with without_garbage_collection(), multiprocessing.get_context("fork").Pool(processes) as pool:
            waiting: deque[AsyncResult[R]] = deque()
            for item in items:
                waiting.append(pool.apply_async(_call, (item,)))
                if len(waiting) > AHEAD * processes:
                    yield waiting.popleft().get()
            while waiting:
                yield waiting.popleft().get()
    finally:
        _WORK.pop()


def _call(item: Any) -> Any:
    return _WORK[-1](item)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Without the collector of cycles, here and in processes that are forked meanwhile. Records form no cycles, and it
    would look at all of them again and again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
