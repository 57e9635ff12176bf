"""The choice of the mode that measures a case, by its device, boundary and mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harness.core import schemas
from harness.core.errors import CaseError
from harness.core.schemas import Boundary, Case
from harness.timing.cuda_modes import (
    DeviceOffline,
    DeviceOverlapped,
    DevicePipelined,
    DeviceSync,
    DeviceTransfer,
    OnStream,
)
from harness.timing.modes import MODES, Mode

Make = Callable[[OnStream, int], Mode]

DEVICE_MODES: Mapping[tuple[Boundary, schemas.Mode], Make] = {
    ("compute", "sync"): DeviceSync,
    ("compute", "pipelined"): DevicePipelined,
    ("compute", "offline"): DeviceOffline,
    ("transfer", "sync"): DeviceTransfer,
    ("transfer", "pipelined"): DeviceOverlapped,
}
"""Modes on a GPU."""


def mode_for(case: Case, backend: OnStream, batches: int) -> Mode:
    """The mode of a case whose samples start from arrays: every boundary except e2e (end_to_end.py).

    `batches`: number of different input batches. The backend need not be loaded yet. CaseError for a combination that
    is not measured.
    """
    if case.device == "cpu":
        return MODES[case.mode](backend, batches)
    try:
        make = DEVICE_MODES[case.boundary, case.mode]
    except KeyError:
        raise CaseError(
            f"The {case.boundary} boundary is not measured in {case.mode} mode on a GPU.",
            "Leave the combination out of the configuration and run `make plan` again.",
        ) from None
    return make(backend, batches)
