"""A running service in the table of backends, so that a plan can name it; harness/endpoints/ sends its requests."""

from __future__ import annotations

from harness.backends.base import Array, Backend
from harness.core.errors import CaseError
from harness.core.schemas import Placement


class RunningService(Backend):
    """Cannot run inside this process: its rows would contain a network and a queue, and be ranked with rows that do
    not."""

    def load(self) -> None:
        """Refused."""
        raise _refused()

    def select(self, index: int) -> None:
        """Refused."""
        raise _refused()

    def infer(self) -> None:
        """Refused."""
        raise _refused()

    def outputs(self) -> dict[str, Array]:
        """Refused."""
        raise _refused()

    def placement(self) -> Placement:
        """Refused."""
        raise _refused()


def _refused() -> CaseError:
    return CaseError(
        "A running service is no backend of this process.",
        "Load it: make load ENDPOINT=<address> MODELS=<name> RATES=<a second> BOUND='p99<50ms'.",
    )
