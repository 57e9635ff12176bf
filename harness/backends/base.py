"""The interface of every backend. A backend never reads a clock: timing/ times all of them with one loop."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.backends.info import import_target
from harness.core.errors import CaseError
from harness.core.schemas import Case, Device, EngineRecord, ExportRecord, Placement
from harness.timing.cuda_modes import IN_FLIGHT
from harness.zoo.batch_axes import Axes, batch_first

Array = NDArray[np.generic]
Batch = Mapping[str, Array]
"""One batch of inputs by input name."""


@dataclass(frozen=True)
class BackendJob:
    """Everything a backend needs to run one case.

    folder: the model's folder below models/.
    batches: the different input batches, each of case.batch_size samples, that rotate while timing.
    threads: intra-op threads to use, the same for every backend.
    cache: a folder where compiled code may be kept between processes.
    options: of the case's setting (harness.backends.Setting).
    engine: the engine built for the case; None where the backend loads none.
    engine_folder: where the path of its file begins; None: in `folder`.
    process: name of this process among all processes of a run.
    in_flight: passes that one thread may have in flight: on a CPU by issue(), on a GPU by infer() of so many objects.
        0: none.
    """

    case: Case
    export: ExportRecord
    folder: Path
    batches: Sequence[Batch]
    threads: int
    cache: Path
    options: Mapping[str, str | int | bool] = field(default_factory=dict)
    engine: EngineRecord | None = None
    engine_folder: Path | None = None
    process: str = ""
    in_flight: int = 0

    @property
    def slots(self) -> int:
        """Sets of inputs and outputs at the transfer boundary, one per batch in flight; select() takes them in turn.

        Above 1, copies run on streams of their own.
        """
        return IN_FLIGHT if (self.case.boundary, self.case.mode) == ("transfer", "pipelined") else 1


class Backend(ABC):
    """One way to run a model.

    Order of calls: load → compile → (select → infer → synchronize → outputs)… → placement → (refresh → select → infer →
    synchronize → outputs)… → close. At the e2e boundary feed replaces select; in pipelined mode on a CPU submit and
    wait replace infer and synchronize; at the transfer boundary upload and download surround infer.
    """

    compiles = False
    """True when the time of compile() is a separate part of the cold start."""

    shares_outputs = False
    """True where a pass of another object of the process may overwrite the outputs: only the last pass has any."""

    stream: Any = None
    """On a GPU, from load() on: the pycuda Stream that infer(), upload() and download() enqueue on, so that one event
    clock times every backend (harness/timing/cuda_events.py). None on a CPU."""

    copy_streams: tuple[Any, Any] | None = None
    """At the transfer boundary in pipelined mode, from load() on: the streams that upload() and download() enqueue on
    instead. The mode makes each pass wait for its upload and each download for its pass (timing/cuda_modes.py)."""

    def __init__(self, job: BackendJob) -> None:
        self.job = job

    @abstractmethod
    def load(self) -> None:
        """Load artifacts and put every input batch where the device reads it. Outside the clock."""

    def compile(self) -> None:  # noqa: B027 - most backends have nothing to compile
        """Compile for exactly the shapes of this case."""

    def compile_cached(self) -> bool | None:
        """True when compile() would find the work of an earlier process; None where nothing is compiled."""
        return None

    @property
    def inputs(self) -> int:
        """Number of input batches."""
        return len(self.job.batches)

    @property
    def on_gpu(self) -> bool:
        """Whether passes run on a GPU; known after load()."""
        return self.stream is not None

    def alone(self, passes: int) -> int:
        """Prepare up to `passes` passes with no other work between them; returns their number. Of a whole model, any
        number."""
        return passes

    def activate(self) -> None:  # noqa: B027 - most libraries keep no state that a second object would change
        """Make the library's state of this thread belong to this object.

        Called before select() where one process has several backend objects, as a service has one of each batch size.
        """

    @abstractmethod
    def select(self, index: int) -> None:
        """Let the next infer() use input batch `index`. Outside the clock."""

    @abstractmethod
    def infer(self) -> None:
        """Enqueue exactly one forward pass of the selected batch: builds nothing, copies nothing back."""

    def refresh(self, index: int) -> None:  # noqa: B027 - who reads the arrays themselves has nothing to do
        """The arrays of batch `index` of the job have changed in place: update the data that infer() reads of them.

        Outside the clock. Required of a backend that copied them in load(); else a changed input gets the old answer.
        """

    def feed(self, batch: Batch) -> None:
        """Let the next infer() use these arrays, of the shapes and types of the case's batches.

        The e2e boundary's: inside the clock, as part of inference. The arrays stay as they are until the next feed().
        """
        raise CaseError(f"{self.job.case.backend} takes no new inputs while it runs.", "Leave `boundaries: [e2e]` out.")

    def upload(self) -> None:
        """Enqueue the copy of the selected batch from pinned host memory to where infer() reads it."""
        raise CaseError(f"{self.job.case.backend} copies no inputs.", "Leave `boundaries: [transfer]` out.")

    def download(self) -> None:
        """Enqueue the copy of the outputs of the last infer() to pinned host memory."""
        raise CaseError(f"{self.job.case.backend} copies no outputs.", "Leave `boundaries: [transfer]` out.")

    def submit(self) -> None:
        """Start one forward pass of the selected batch and return at once: the pipelined mode's, two in flight."""
        raise CaseError(f"{self.job.case.backend} runs one request at a time.", "Leave `modes: [pipelined]` out.")

    def wait(self) -> None:
        """Wait until the oldest pass in flight is done; outputs() then belong to that pass."""
        raise CaseError(f"{self.job.case.backend} runs one request at a time.", "Leave `modes: [pipelined]` out.")

    def issue(self, index: int, done: Callable[[str | None], None]) -> None:
        """Start one forward pass of input batch `index` and return; up to job.in_flight are in flight.

        The library calls done once, from a thread of its own, when the pass is complete, with the reason where it
        failed. Of a backend whose table entry names its asynchronous function. Not on a GPU, where infer() returns when
        its work is enqueued on the stream of its object.
        """
        raise CaseError(
            f"{self.job.case.backend} does not compute asynchronously.", "Serve with threads: WORKERS=2, no IN_FLIGHT."
        )

    def issued(self) -> list[tuple[int, dict[str, Array]]]:
        """(input batch, copies of its outputs as outputs() returns them) of the latest complete issued passes, at most
        job.in_flight."""
        return []

    def synchronize(self) -> None:  # noqa: B027 - on a CPU infer() returns when the work is done
        """Wait until everything enqueued is done."""

    @abstractmethod
    def outputs(self) -> dict[str, Array]:
        """Copies of the outputs of the last infer() by output name; empty where nothing is computed."""

    @abstractmethod
    def placement(self) -> Placement:
        """The devices and precision that really ran, from the session, graph or module; never from the request."""

    def build_facts(self) -> dict[str, str]:
        """Facts about the library's build that change numbers, for the environment record."""
        return {}

    def on_purpose(self) -> str | None:
        """A description of behaviour that only serves a test of the harness; None for all real work."""
        return None

    def close(self) -> None:  # noqa: B027 - most backends hold nothing that outlives the process
        """Release resources that outlive the process."""


def construct(target: str, job: BackendJob) -> Backend:
    """The backend of a table entry's `module:Class`, its outputs with the batch first; imports its libraries."""
    return construct_class(import_target(target), job)


def construct_class(kind: Callable[[BackendJob], Backend], job: BackendJob) -> Backend:
    """As construct, for an imported class."""
    backend = kind(job)
    _give_batch_first(backend, {spec.name: spec.batch_axis for spec in job.export.outputs if spec.batch_axis != 0})
    return backend


def _give_batch_first(backend: Backend, axes: Axes) -> None:
    """Make outputs() of this object give the batch first, as in the stored references; axes: where the model has it."""
    if not axes:
        return
    outputs, issued = backend.outputs, backend.issued

    # Every way of running asks the same object.
    backend.outputs = lambda: batch_first(outputs(), axes)  # type: ignore[method-assign]
    backend.issued = lambda: [(index, batch_first(arrays, axes)) for index, arrays in issued()]  # type: ignore[method-assign]


_WORDS = re.compile(r"out ?of ?memory|failed to allocate|MemoryAllocation|ALLOC_FAILED|bad.alloc", re.IGNORECASE)
"""The messages of torch, CUDA, ONNX Runtime and TensorRT; each has an exception type of its own."""


def is_out_of_memory(text: str) -> bool:
    """True where a library's message reports that memory is full."""
    return _WORDS.search(text) is not None


def out_of_memory(device: Device, batch: int) -> tuple[str, str]:
    """(problem, hint) with the batch to try."""
    where = "GPU memory" if device == "cuda" else "memory"
    smaller = f"Try BATCHES={batch // 2}" if batch > 1 else "Try a smaller model"
    return f"Out of {where} at batch {batch}.", f"{smaller}, or a device with more memory."
