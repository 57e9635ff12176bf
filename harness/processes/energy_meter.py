"""The energy counter of a GPU, read around the timed phase of a case and around each replication of a load."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field

from harness.aggregation.energy_per_inference import EnergySpent, Meter
from harness.aggregation.usage import TIMED_PHASE
from harness.core import store
from harness.core.errors import InferometerError, UnavailableError
from harness.core.host.gpu import GpuHandle, facts_of
from harness.core.layout import LoadFiles
from harness.core.protocol import LoadJob
from harness.core.schemas import LoadCase, LoadEnergy, PointEnergy, Unavailable
from harness.core.timestamps import utc_now
from harness.serving.load_case import parse_phase, replication_digest
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


def idle_energy(gpu: GpuHandle, seconds: float) -> EnergySpent:
    """Energy of the GPU while no process computes on it. Raises UnavailableError where a process does."""
    busy = gpu.ask("DeviceGetComputeRunningProcesses")
    if not isinstance(busy, Unavailable) and busy:
        raise UnavailableError(
            f"The GPU is in use (processes: {len(busy)}), so its idle power is unknown.",
            "Stop the other programs on the GPU (`nvidia-smi` lists them), then run the same command again.",
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


@dataclass
class ReplicationMeter:
    """Follows the phases of one load case. points: what was spent so far, by the name of the point."""

    handle: GpuHandle
    idle: EnergySpent
    points: dict[str, PointEnergy] = field(default_factory=dict)
    _running: tuple[str, int, Meter] | None = None

    def entered(self, phase: str) -> None:
        """The process has entered a phase, and so ended the phase before it."""
        replication = parse_phase(phase)
        if self._running is None and replication is None:
            return
        now = read(self.handle)
        if self._running is not None:
            name, number, first = self._running
            spent = EnergySpent.between(first, now)
            add_to_point(self.points, name, spent.energy_j, spent.window_ns, (number,))
        self._running = None if replication is None else (*replication, now)

    def save(self, job: LoadJob, files: LoadFiles) -> None:
        """Save what was spent, with what an earlier process of the same case spent on other replications."""
        points = dict(self.points)
        digest = replication_digest(job.load)
        with suppress(InferometerError):
            before = store.load(files.energy, LoadEnergy, "make load")
            if (before.settings_id, before.load_sha256) == (job.settings_id, digest):
                for name, spent in before.points.items():
                    if not set(spent.numbers) & set(points[name].numbers if name in points else ()):
                        add_to_point(points, name, spent.energy_j, spent.window_ns, spent.numbers)
        if not points:
            return
        gpu = facts_of(self.handle)
        record = LoadEnergy(
            load_id=job.load.load_id,
            settings_id=job.settings_id,
            load_sha256=digest,
            artifacts_id="",
            started_at=utc_now(),
            environment_id=None,
            gpu=gpu.name,
            uuid=gpu.uuid,
            idle_w=self.idle.watts,
            points=points,
        )
        store.save(files.energy, record)


def meter_for(load: LoadCase, handle: GpuHandle | None, idle: EnergySpent | None) -> ReplicationMeter | None:
    """A meter for a load case; None without a counter, and for a running service, whose GPU may be another one."""
    if handle is None or idle is None or load.endpoint is not None:
        return None
    return ReplicationMeter(handle, idle)


def add_to_point(
    points: dict[str, PointEnergy], name: str, energy_j: float, window_ns: int, numbers: tuple[int, ...]
) -> None:
    """Add replications to a point."""
    before = points.get(name, PointEnergy(energy_j=0.0, window_ns=0, numbers=()))
    points[name] = PointEnergy(
        energy_j=before.energy_j + energy_j,
        window_ns=before.window_ns + window_ns,
        numbers=tuple(sorted({*before.numbers, *numbers})),
    )
