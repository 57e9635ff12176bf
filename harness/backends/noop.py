"""noop: one infer() is one empty call. Its row is the harness's own cost per inference, on the same loop as all."""

from __future__ import annotations

from harness.backends.base import Array, Backend
from harness.core.schemas import Placement


class Noop(Backend):
    """Does nothing; excludes everything."""

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
