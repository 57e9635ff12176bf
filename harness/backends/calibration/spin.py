"""spin: one infer() is a busy wait of a known duration. The deviation of its row is the error of the harness."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from harness.backends.base import Array, Backend, BackendJob
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
        one = (1, 1, 1)
        self._launch = partial(kernel.prepared_async_call, one, one, self.stream, self._duration_ns)

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
