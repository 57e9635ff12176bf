"""The threads of a service's workers. A library's objects may belong to the thread that made them, as CUDA contexts
and CUDA graphs do, so each worker loads and runs its own objects on one thread for as long as the process lives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

SWITCH_S = 1e-4
"""With several workers, how soon the interpreter moves from one thread to another. Its usual 5 ms is as long as a
request: a worker that waits for its instant would hold up one whose library has just returned."""


class WorkerThreads:
    """`count` threads; with one worker the calling thread alone."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pools = [ThreadPoolExecutor(1, f"worker-{number}") for number in range(count)] if count > 1 else []
        if self._pools:
            sys.setswitchinterval(SWITCH_S)

    def all_at_once(self, bodies: Sequence[Callable[[], None]]) -> None:
        """Run a body on each of the first threads at the same time; raises what one of them raised."""
        self.gather(bodies)

    def gather(self, bodies: Sequence[Callable[[], T]]) -> list[T]:
        """The same, with their results."""
        if not self._pools:
            return [body() for body in bodies]
        started = [pool.submit(body) for pool, body in zip(self._pools, bodies, strict=False)]
        return [future.result() for future in started]

    def in_turn(self, bodies: Sequence[Callable[[], T]]) -> list[T]:
        """Run the bodies one after the other, each on the thread of its worker."""
        if not self._pools:
            return [body() for body in bodies]
        return [pool.submit(body).result() for pool, body in zip(self._pools, bodies, strict=False)]
