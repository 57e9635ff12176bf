"""spin: one infer() is a busy wait of a known duration. What the harness reports for it is its own error."""

from __future__ import annotations

from harness.backends.base import Array, Backend
from harness.core.errors import CaseError
from harness.core.schemas import Placement
from harness.measure.clock import now_ns
from harness.zoo.known_duration import duration_ns, is_spin


class Spin(Backend):
    """Waits on the harness's own clock: the one backend that has to read it."""

    def load(self) -> None:
        """Take the duration from the model's name."""
        if not is_spin(self.job.case.model):
            raise CaseError(f"spin does not run {self.job.case.model}.", "Name the work: MODELS=spin:1ms.")
        self._duration_ns = duration_ns(self.job.case.model)

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

    def placement(self) -> Placement:
        """Runs in the interpreter, in no precision."""
        settings: dict[str, str | int | float | bool] = {"duration_ns": self._duration_ns}
        return Placement(device="cpu", precision="none", provider="CPython", settings=settings, dtype_census={})
