"""Measures the limits of a CPU: each thread is a process that multiplies on its own, and their rates are added.

A product shared by several threads ends when its last thread ends. On a machine that is not quite idle some thread
always waits: beside busy processes a limit measured in this way was many times too low. The best call of a single
thread needs its core for only a fraction of a millisecond. The sum is also a true limit: no shared product is faster.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import NamedTuple

from harness.backends import BUILT_IN
from harness.core.errors import UnavailableError
from harness.core.host import limits
from harness.core.schemas import CpuLimits, Precision
from harness.processes.launcher import process_environment
from harness.timing.clock import shortest_ns

WAYS: Mapping[Precision, Mapping[str, str]] = {
    "fp32": {
        "NumPy": "NumPy",
        "torch.mm fp32": "PyTorch",
        "torch.conv2d": "PyTorch",
        "ONNX Runtime MatMul": "ONNX Runtime",
        "OpenVINO MatMul f32": "OpenVINO",
    },
    "bf16": {"torch.mm bf16": "PyTorch", "OpenVINO MatMul bf16": "OpenVINO"},
    "fp16": {"torch.mm fp16": "PyTorch"},
    "int8": {"torch._int_mm": "PyTorch", "ONNX Runtime MatMulInteger": "ONNX Runtime"},
}
"""By precision: name of a product (harness/backends/cpu_peak_work.py) → its library."""

COPY_BYTES = 192 << 20
"""Bytes that all threads together read, and also write. Twice this is more than the last-level cache of most CPUs;
where it is not, the limit is too high, which voids no row."""

SPAN_NS = 30_000_000
"""Time for the calls of one product at one size."""

PASSES = 2
"""Times that each product is measured, with all others in between: a disturbance of one pass is over in the next.
Copies are measured once: allocating new memory takes longer than copying."""

_PATIENCE_S = 300.0
"""A library that has not answered by then hangs. A limit without a library that is only slow here would be too low.
Imports do not count: a process starts when the fork server has imported the libraries."""


class Task(NamedTuple):
    """The task of a process: the product of that name, or a copy of `copy_bytes` where the name is empty."""

    product: str
    copy_bytes: int = 0


class TaskRefused(NamedTuple):
    """Why a task cannot run here. absent: its library is not installed."""

    why: str
    absent: bool = False


Rates = Callable[[Task, int], Sequence[float] | TaskRefused]
"""(task, number of processes that run it at the same time) → the best FLOP/s or bytes/s of each."""


class MeasuredRoof(NamedTuple):
    """limits: by threads, in the given order; unmeasured: why a precision has no limit; without: absent libraries."""

    limits: tuple[CpuLimits, ...]
    unmeasured: dict[Precision, str]
    without: tuple[str, ...]


def measure_limits(threads: Iterable[int], precisions: Iterable[Precision], rates: Rates | None = None) -> MeasuredRoof:
    """The limits of this CPU with each of these numbers of threads, in each precision.

    More threads than CPUs that this process may use reach only the limit of those CPUs. rates: replaces the measurement
    in tests.
    """
    survey = _Survey(rates or measure_rates)
    numbers, kinds = list(threads), list(precisions)
    for _ in range(PASSES):
        for number, kind in product(numbers, kinds):
            for name in WAYS.get(kind, {}):
                survey.ask(number, kind, Task(name))
    for number in numbers:
        survey.ask(number, None, Task("", COPY_BYTES))
    return MeasuredRoof(
        limits=tuple(survey.limits(number) for number in numbers),
        unmeasured={kind: survey.why_not(kind) for kind in kinds if not survey.has(numbers, kind)},
        without=survey.without(),
    )


class _Survey:
    """The best rates so far, and the refused tasks. Precision None means copies."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._cpus = len(limits.affinity())
        self._best: dict[tuple[int, Precision | None], tuple[float, str]] = {}
        self._refused: dict[tuple[Precision | None, str], TaskRefused] = {}

    def ask(self, threads: int, precision: Precision | None, task: Task) -> None:
        """Run the task on so many threads, unless it was refused before, and keep the best rate."""
        if (precision, task.product) in self._refused:
            return
        processes = min(threads, self._cpus)
        answer = self._rates(task._replace(copy_bytes=task.copy_bytes // processes), processes)
        if isinstance(answer, TaskRefused):
            self._refused[precision, task.product] = answer
            return
        before = self._best.get((threads, precision), (0.0, ""))
        self._best[threads, precision] = max(before, (sum(answer), task.product))

    def limits(self, threads: int) -> CpuLimits:
        own = {kind: rate for (number, kind), rate in self._best.items() if number == threads}
        copies = own.pop(None, None)
        products = {kind: rate for kind, rate in own.items() if kind is not None}
        return CpuLimits(
            threads=threads,
            flops={kind: rate for kind, (rate, _) in products.items()},
            by={kind: name for kind, (_, name) in products.items()},
            copy_bytes_per_s=copies and copies[0],
        )

    def has(self, numbers: Iterable[int], precision: Precision) -> bool:
        return all((number, precision) in self._best for number in numbers)

    def why_not(self, precision: Precision) -> str:
        reasons = [f"{name}: {refused.why}" for (kind, name), refused in self._refused.items() if kind == precision]
        return "; ".join(reasons) or f"no product in {precision} is known for a CPU"

    def without(self) -> tuple[str, ...]:
        absent = [WAYS[kind][name] for (kind, name), refused in self._refused.items() if kind and refused.absent]
        return tuple(dict.fromkeys(absent))


def measure_rates(task: Task, processes: int) -> list[float] | TaskRefused:
    """Rates, measured in processes forked from a server that has imported every library once."""
    with _started(task, processes) as connections:
        answers = [_answer(connection) for connection in connections]  # all are ready before the first begins
        for connection in connections:
            _start(connection)
        answers += [_answer(connection) for connection in connections]
    refused = [answer for answer in answers if isinstance(answer, TaskRefused)]
    return refused[0] if refused else [answer for answer in answers[processes:] if isinstance(answer, float)]


@contextmanager
def _started(task: Task, processes: int) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("forkserver")
    # The fork server reads these; it starts with the first process.
    for info in BUILT_IN.values():
        os.environ.update(info.environment)
    os.environ.update(process_environment(threads=1, own=True))
    context.set_forkserver_preload(["harness.processes.cpu_peaks", "harness.backends.cpu_peak_work"])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: else Ctrl-C shows a traceback of the imports
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)
    started: list[tuple[ForkServerProcess, Connection]] = []
    try:
        for _ in range(processes):
            parent_end, child_end = context.Pipe()
            process = context.Process(target=_serve, args=(child_end, task), daemon=True)
            process.start()
            child_end.close()
            started.append((process, parent_end))
        yield [connection for _, connection in started]
    finally:
        for process, connection in started:
            connection.close()
            process.kill()
            process.join()


def _answer(connection: Connection) -> float | TaskRefused:
    try:
        if not connection.poll(_PATIENCE_S):
            return TaskRefused(f"no answer within {_PATIENCE_S:g} s")
        answer: float | TaskRefused = connection.recv()
    except (EOFError, OSError):
        return TaskRefused("its process crashed")
    return answer


def _start(connection: Connection) -> None:
    try:
        connection.send(None)
    except OSError:
        return  # it has crashed, which _answer reports


def _serve(connection: Connection, task: Task) -> None:
    """The code of each process: get ready, wait for the start message, send the best rate."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the stage, and the closed connection ends this process
    try:
        works = _works(task)
        for _, work in works:
            work()  # libraries compile and allocate in the first call
        connection.send(0.0)
        connection.recv()
        connection.send(max(amount * 1e9 / shortest_ns(work, SPAN_NS) for amount, work in works))
    except (EOFError, OSError):
        return
    except UnavailableError as error:
        connection.send(TaskRefused(error.problem, absent=True))
    except Exception as error:  # whatever a library raises where it cannot run the product
        first = str(error).strip().partition("\n")[0]
        connection.send(TaskRefused(f"{type(error).__name__}: {first[:200]}"))


def _works(task: Task) -> list[tuple[int, Callable[[], object]]]:
    """(FLOP or bytes, call) for each size of the task."""
    from harness.backends import cpu_peak_work  # noqa: PLC0415 - every inference library, in this process alone

    if not task.product:
        return [(2 * cpu_peak_work.PIECE_BYTES, cpu_peak_work.copy(task.copy_bytes))]
    return [(2 * size**3, cpu_peak_work.product(task.product, size)) for size in cpu_peak_work.SIZES]
