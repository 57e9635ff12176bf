"""Copies of a case on every device of a host, alone and together, in windows that this process starts.

In each round every device gets a fresh process. All load and warm up; then each works alone in turn, all work together,
twice, and each alone again in the reverse order. A drift over a round cancels in the mirrored order, and no process
works while another is to be alone.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from harness.core.host import limits
from harness.core.layout import Models, Results
from harness.core.protocol import GIVE_UP, GO, OVER, WINDOW_ENDED, CaseJob, WindowRequest
from harness.core.schemas import Case, DeviceSlot, Failed, Measured, Plan, Situation
from harness.planning.block_settings import threads_of
from harness.planning.exports import export_files
from harness.processes.device_slots import pin_to_cpus, slot_variables
from harness.processes.launcher import Worker
from harness.processes.pool import measure_turn

WINDOW_S = 0.2
WARM_S = 0.1

CopiesStep = tuple[Situation, tuple[int, ...]]
"""A situation, and the places of the slots that work in it."""


def window_order(slots: int, seed: str) -> list[CopiesStep]:
    """The windows of one round: each slot alone in random order, all together twice, each alone in reverse order."""
    order = random.Random(seed).sample(range(slots), slots)  # noqa: S311 - an order, not a secret
    alone: list[CopiesStep] = [("alone", (place,)) for place in order]
    both: CopiesStep = ("together", tuple(range(slots)))
    return [*alone, both, both, *reversed(alone)]


@dataclass
class Conductor:
    """Starts the windows of several processes step by step; knows which have arrived, worked or ended.

    pipes: the writing end of each slot's named pipe.
    """

    pipes: Sequence[int]
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _arrived: set[int] = field(default_factory=set)
    _done: dict[int, int] = field(default_factory=dict)
    _ended: set[int] = field(default_factory=set)

    def entered(self, place: int, phase: str) -> None:
        """The process of a slot has entered a phase."""
        with self._changed:
            if phase == "measure":
                self._arrived.add(place)
            elif phase == WINDOW_ENDED:
                self._done[place] = self._done.get(place, 0) + 1
            self._changed.notify_all()

    def ended(self, place: int) -> None:
        """The process of a slot has ended, for whatever reason."""
        with self._changed:
            self._ended.add(place)
            self._changed.notify_all()

    def conduct(self, steps: Sequence[CopiesStep]) -> bool:
        """Start all steps; False where a process ended before its last window, and the others were given up."""
        every = set(range(len(self.pipes)))
        pending = dict.fromkeys(every, 0)
        complete = self._wait(lambda: self._arrived >= every)
        for situation, places in steps:
            if not complete:
                break
            for place in places:
                pending[place] += 1
            for place in places:
                os.write(self.pipes[place], GO[situation])
            complete = self._wait(lambda: all(self._done.get(place, 0) >= pending[place] for place in every))
        for pipe in self.pipes:
            os.write(pipe, OVER if complete else GIVE_UP)
        return complete

    def _wait(self, ready: Callable[[], bool]) -> bool:
        """Wait without using the CPU until `ready()`; False where a process ended first."""
        with self._changed:
            self._changed.wait_for(lambda: ready() or bool(self._ended))
            return ready()


@dataclass(frozen=True)
class _SlotObserver:
    conductor: Conductor
    place: int

    def started(self, pid: int) -> None:
        del pid

    def entered(self, phase: str) -> None:
        self.conductor.entered(self.place, phase)


class CopiesPool:
    """Workers for every slot; a context manager that ends every process it started."""

    def __init__(
        self,
        plan: Plan,
        models: Models,
        results: Results,
        slots: Sequence[DeviceSlot],
        interpreters: Mapping[str, Path],
    ) -> None:
        self._plan, self._models, self._results, self._slots = plan, models, results, slots
        self._interpreters = interpreters
        self._workers: dict[tuple[int, str, int], Worker] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="inferometer-")))
        self._threads = self._stack.enter_context(ThreadPoolExecutor(len(self._slots)))
        self._stack.callback(self._close)
        for place in range(len(self._slots)):
            os.mkfifo(self._fifo(place), 0o600)
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def measure(self, case: Case, number: int) -> list[Measured | Failed]:
        """Measure one case in one round on every slot; returns the records in the order of the slots."""
        steps = window_order(len(self._slots), f"{self._plan.measurement.seed}-{case.case_id}-{number}")
        places = range(len(self._slots))
        # One after the other: a worker that ends early must not take another's half-started process with it.
        workers = [self._threads.submit(self._worker, place, case).result() for place in places]
        with ExitStack() as opened:
            # Opened for both directions, so that neither side waits for the other to open it.
            pipes = [os.open(self._fifo(place), os.O_RDWR) for place in places]
            for pipe in pipes:
                opened.callback(os.close, pipe)
            conductor = Conductor(pipes)
            running = [
                self._threads.submit(self._measure_copy, place, workers[place], case, number, conductor, steps)
                for place in places
            ]
            conductor.conduct(steps)
            return [future.result() for future in running]

    def _measure_copy(
        self, place: int, worker: Worker, case: Case, number: int, conductor: Conductor, steps: Sequence[CopiesStep]
    ) -> Measured | Failed:
        try:
            job = self._job(place, case, number, sum(place in places for _, places in steps))
            pin_to_cpus(self._slots[place])
            return measure_turn(job, worker, self._results.copies_of(place), _SlotObserver(conductor, place))
        finally:
            conductor.ended(place)

    def _job(self, place: int, case: Case, number: int, windows: int) -> CaseJob:
        return CaseJob(
            case=case,
            round=number,
            settings_id=self._plan.settings_id,
            measurement=self._plan.measurement,
            threads=self._thread_count(place, case),
            results=str(self._results.copies_of(place).root),
            models=str(self._models.root),
            export=str(export_files(case.slug, self._results, self._models).record),
            engines=self._plan.engines,
            windows=WindowRequest(fifo=str(self._fifo(place)), count=windows, window_s=WINDOW_S, warm_s=WARM_S),
        )

    def _thread_count(self, place: int, case: Case) -> int:
        cpus = len(self._slots[place].cpus) or None
        return threads_of(case, self._plan.measurement.threads or limits.thread_count(cpus))

    def _worker(self, place: int, case: Case) -> Worker:
        threads = self._thread_count(place, case)
        key = (place, case.backend, threads)
        if key not in self._workers:
            slot = self._slots[place]
            pin_to_cpus(slot)
            log = self._results.copies_of(place).worker_log(f"{case.backend}-{threads}")
            self._workers[key] = Worker(
                case.backend,
                threads,
                log,
                interpreter=self._interpreters.get(case.backend),
                variables=slot_variables(slot),
            )
        self._workers[key].start()
        return self._workers[key]

    def _fifo(self, place: int) -> Path:
        return self._folder / f"{place}.fifo"

    def _close(self) -> None:
        for worker in self._workers.values():
            worker.close()
