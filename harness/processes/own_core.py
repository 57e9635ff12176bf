"""A CPU of its own for the thread that launches, from the warm-up to the end of a measurement."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from harness.core.errors import CaseError
from harness.core.host import limits
from harness.core.protocol import Enter
from harness.core.schemas import Placement

TASKS = Path("/proc/self/task")
BEGINS = "warm-up"
"""The phase at whose begin the libraries have their threads: a later one would share the CPU of its starter."""


class OwnCore:
    """Binds the calling thread to the last of its CPUs, and all other threads of the process to the others.

    wanted: where False, nothing is bound. enter: called with the name of each phase.
    """

    def __init__(self, wanted: bool, enter: Enter) -> None:
        self._wanted, self._enter = wanted, enter
        self._before: tuple[int, ...] = ()

    def enter(self, phase: str) -> None:
        """A phase begins. Raises CaseError where the process has one CPU alone."""
        self._enter(phase)
        if self._wanted and phase == BEGINS:
            cpus = limits.affinity()
            if len(cpus) < 2 or not hasattr(os, "sched_setaffinity"):
                raise CaseError(
                    "The launching thread gets no CPU of its own: this process may use one alone.",
                    "Choose a setting without `own-core`, or give the process more CPUs.",
                )
            self._before = cpus
            bind_threads(cpus[-1:], cpus[:-1])

    def end(self, placement: Placement) -> Placement:
        """Unbind all threads; the placement with the number of CPUs that the thread was bound to, as read back."""
        if not self._before:
            return placement
        bound = len(limits.affinity())
        bind_threads(self._before, self._before)
        return placement.model_copy(update={"settings": {**placement.settings, "launching_cpus": bound}})


def bind_threads(own: Sequence[int], others: Sequence[int]) -> None:
    """Let this thread run on the CPUs `own`, every other thread of the process on `others`."""
    me = threading.get_native_id()
    for thread in [int(task.name) for task in TASKS.iterdir()]:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(thread, own if thread == me else others)
