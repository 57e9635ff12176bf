"""noop: one infer() is one empty call. Its row is the harness overhead per inference, in the loop of all backends."""

from __future__ import annotations

from typing import Any

from harness.backends.base import Array, Backend, BackendJob
from harness.core.schemas import Placement


class Noop(Backend):
    """Does nothing; excludes everything."""

    def __new__(cls, job: BackendJob) -> Noop:
        """The form for the case's device, chosen here: a check in each call would make CPU rows longer."""
        return super().__new__(NoopOnGpu if job.case.device == "cuda" else cls)

    def load(self) -> None:
        """Load nothing."""

    def select(self, index: int) -> None:
        """Select nothing."""

    def infer(self) -> None:
        """Compute nothing."""

    def outputs(self) -> dict[str, Array]:
        """There are none."""
        return {}

    def placement(self) -> Placement:
        """Runs in the interpreter, in no precision."""
        return Placement(device="cpu", precision="none", provider="CPython", settings={}, dtype_census={})


class NoopOnGpu(Noop):
    """Has a stream, enqueues nothing on it, and waits for it: the cost of the clock's events and of waiting."""

    _cuda: Any

    def load(self) -> None:
        """Take the GPU."""
        from harness.backends.cuda.context import Cuda  # noqa: PLC0415 - pycuda is needed only where there is a GPU

        self._cuda = Cuda()
        self.stream = self._cuda.stream

    def synchronize(self) -> None:
        """Wait for the events that the clock enqueued."""
        self.stream.synchronize()

    def placement(self) -> Placement:
        """Runs nothing there, in no precision."""
        return Placement(device="cuda", precision="none", provider="pycuda", settings={}, dtype_census={})

    def close(self) -> None:
        """Release the GPU."""
        self._cuda.close()
