"""spin: one infer() is a busy wait of a known duration. The deviation of its row is the error of the harness.

As a decoder, static or continuous, it has a known TTFT and ITL; their deviation is the error of the token loop.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.backends.base import Array, Backend, BackendJob
from harness.backends.decoder import JoiningDecoder
from harness.core.errors import CaseError
from harness.core.schemas import Placement
from harness.timing.clock import now_ns
from harness.zoo.families import known_duration

KERNEL = Path(__file__).with_name("spin.ptx")
"""Made from spin.cu, which has the command. The driver compiles it for its GPU; no compiler is needed to measure."""


class Spin(Backend):
    """Waits on the harness's own clock: the only backend that has to read it."""

    def __new__(cls, job: BackendJob) -> Spin:
        """The form for the case's device, chosen here: a check in each call would make CPU rows longer."""
        return super().__new__(SpinOnGpu if job.case.device == "cuda" else cls)

    def load(self) -> None:
        """Take the duration from the model's name, and this process's speed where processes differ."""
        name = self.job.case.model
        if not known_duration.is_spin(name):
            raise CaseError(f"spin does not run {name}.", "Name the work: MODELS=spin:1ms.")
        self._duration_ns = round(known_duration.duration_ns(name) * known_duration.factor(name, self.job.process))

    def select(self, index: int) -> None:
        """There is nothing to choose."""

    def infer(self) -> None:
        """Wait, without giving the CPU away."""
        end = now_ns() + self._duration_ns
        while now_ns() < end:
            pass

    def outputs(self) -> dict[str, Array]:
        """There are none."""
        return {}

    def on_purpose(self) -> str | None:
        """Processes that differ, where the model's name asks for that."""
        kind = known_duration.kind_of(self.job.case.model)
        return None if kind == known_duration.STEADY else known_duration.KINDS[kind]

    def placement(self) -> Placement:
        """Runs in the interpreter, in no precision."""
        settings: dict[str, str | int | float | bool] = {"duration_ns": self._duration_ns}
        return Placement(device="cpu", precision="none", provider="CPython", settings=settings, dtype_census={})


class SpinOnGpu(Spin):
    """One kernel of one thread that waits on the GPU's own counter."""

    _cuda: Any

    def load(self) -> None:
        """Take the duration, the GPU and the kernel; CaseError where the driver refuses the kernel."""
        super().load()
        from pycuda import driver  # noqa: PLC0415 - pycuda is needed only where there is a GPU

        from harness.backends.cuda.context import Cuda  # noqa: PLC0415 - likewise

        self._cuda = Cuda()
        self.stream = self._cuda.stream
        try:
            self._module = driver.module_from_file(str(KERNEL))
        except driver.Error as error:
            problem = f"The GPU's driver does not take {KERNEL.name}: {error}."
            raise CaseError(problem, f"Compile it again as the first lines of {KERNEL.stem}.cu say.") from error
        kernel = self._module.get_function("spin").prepare("Q")
        size = (1, 1, 1)
        self._launch = partial(kernel.prepared_async_call, size, size, self.stream, self._duration_ns)

    def infer(self) -> None:
        """Enqueue the kernel."""
        self._launch()

    def synchronize(self) -> None:
        """Wait until it is done."""
        self.stream.synchronize()

    def placement(self) -> Placement:
        """Runs in one thread of the GPU, in no precision."""
        return super().placement().model_copy(update={"device": "cuda", "provider": "pycuda"})

    def close(self) -> None:
        """Release the GPU."""
        self._cuda.close()


PREFILL = 10
"""A prefill, or the pass of a prompt that joins, waits this many times as long as a step."""


class SpinDecoder(JoiningDecoder):
    """A step waits for the duration in the model's name, a prefill for PREFILL of them; tokens() does the waiting."""

    def load(self) -> None:
        """Take the duration from the model's name."""
        if not known_duration.is_spin(self.job.model):
            raise CaseError(f"spin does not run {self.job.model}.", "Name the work: MODELS=spin:1ms.")
        self._step_ns = round(known_duration.duration_ns(self.job.model))
        self._end_ns = 0
        self._taken: set[int] = set()
        self._ids = np.zeros(self.job.batch_size, np.int64)

    def prefill(self, ids: NDArray[np.int64]) -> None:
        """Begin a prefill."""
        self._end_ns = now_ns() + PREFILL * self._step_ns

    def prefill_padded(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """A prefill takes the same time for every prompt."""
        self.prefill(ids)

    def join(self, slot: int, ids: NDArray[np.int64]) -> None:
        """Begin the pass of one prompt."""
        self._taken.add(slot)
        self._end_ns = now_ns() + PREFILL * self._step_ns

    def leave(self, slot: int) -> None:
        """Nothing is computed for an empty slot."""
        self._taken.discard(slot)

    def width(self) -> int:
        """The slots that are taken."""
        return len(self._taken)

    def step(self) -> None:
        """Begin a step."""
        self._end_ns = now_ns() + self._step_ns

    def tokens(self) -> NDArray[np.int64]:
        """Wait for its end, without giving the CPU away."""
        while now_ns() < self._end_ns:
            pass
        return self._ids

    def logits(self) -> NDArray[np.float32]:
        """There are none."""
        return np.zeros((self.job.batch_size, self.job.shape.vocabulary), np.float32)

    def force(self, ids: NDArray[np.int64]) -> None:
        """Nothing depends on tokens."""

    def cache_bytes(self) -> int:
        """There is no cache."""
        return 0

    def placement(self) -> Placement:
        """Runs in the interpreter, in no precision."""
        settings: dict[str, str | int | float | bool] = {
            "step_ns": self._step_ns,
            "prefill_ns": PREFILL * self._step_ns,
        }
        return Placement(device="cpu", precision="none", provider="CPython", settings=settings, dtype_census={})
