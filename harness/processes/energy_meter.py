"""The energy counter of a GPU, read at the start and end of a case's timed phase."""

from __future__ import annotations

import time
from dataclasses import dataclass

from harness.aggregation.energy_pass import EnergySpent, Meter
from harness.aggregation.usage import TIMED_PHASE
from harness.core.errors import UnavailableError
from harness.core.host.gpu import GpuHandle
from harness.core.schemas import Unavailable
from harness.timing.clock import now_ns


def read(gpu: GpuHandle) -> Meter:
    """The counter now. Raises UnavailableError where the GPU has none."""
    energy_mj = gpu.ask("DeviceGetTotalEnergyConsumption")
    if isinstance(energy_mj, Unavailable):
        raise UnavailableError(
            f"The GPU does not count its energy ({energy_mj.unavailable}).",
            "Energy is measured on GPUs from Volta on, and on whole GPUs only.",
        )
    return Meter(int(energy_mj), now_ns())


def idle(gpu: GpuHandle, seconds: float) -> EnergySpent:
    """Energy of the GPU while no process computes on it. Raises UnavailableError where a process does."""
    busy = gpu.ask("DeviceGetComputeRunningProcesses")
    if not isinstance(busy, Unavailable) and busy:
        raise UnavailableError(
            f"The GPU is in use (processes: {len(busy)}), so its idle power is unknown.",
            "Stop what computes there (`nvidia-smi` lists it), then run the same command again.",
        )
    first = read(gpu)
    time.sleep(seconds)
    return EnergySpent.between(first, read(gpu))


@dataclass
class PhaseMeter:
    """Observes a case's phases and reads the counter at the start and end of the timed phase."""

    gpu: GpuHandle
    first: Meter | None = None
    last: Meter | None = None

    def started(self, pid: int) -> None:
        """The process has begun; nothing is read yet."""

    def entered(self, phase: str) -> None:
        """The process has entered a phase, and so ended the phase before it."""
        if phase == TIMED_PHASE:
            self.first = read(self.gpu)
        elif self.first is not None and self.last is None:
            self.last = read(self.gpu)

    def spent(self) -> EnergySpent | None:
        """Energy of the GPU in the timed phase; None where the case did not complete it."""
        return None if self.first is None or self.last is None else EnergySpent.between(self.first, self.last)
