"""State of one GPU now, read through NVML: clocks, heat, power, memory, processes that compute on it."""

from __future__ import annotations

from typing import Any

from harness.core.host.gpu import GpuHandle
from harness.core.schemas import GpuSample, Unavailable

REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
    "display_clock_setting",
    "board_limit",
    "reliability",
)
"""NVML's reasons for a clock below its maximum, by bit from the lowest on (nvml.h, nvmlClocksEventReason*)."""

_STRANGERS = (
    "NVML does not list the case's process by the id that it has here (usual in a container), so it is unknown "
    "which of those that it lists are others"
)


class GpuProbe:
    """Reads one GPU; `unavailable` holds the reason for what cannot be read.

    It only reads: nothing here wakes a sleeping GPU, changes a setting, or runs on the GPU.
    """

    def __init__(self, gpu: GpuHandle) -> None:
        self._gpu = gpu
        self.unavailable: dict[str, str] = {}

    def memory_used_bytes(self) -> int | None:
        """Memory in use on the whole GPU by all programs, without the part that the driver keeps for itself."""
        memory = self._ask("memory_used_bytes", "DeviceGetMemoryInfo", self._gpu.constant("nvmlMemory_v2"))
        return None if memory is None else int(memory.used)

    def read(self, pid: int) -> GpuSample:
        """One sample; `pid`: the case's process."""
        power = self._ask("power_w", "DeviceGetPowerUsage")
        busy = self._ask("utilisation_percent", "DeviceGetUtilizationRates")
        return GpuSample(
            sm_mhz=self._ask("sm_mhz", "DeviceGetClockInfo", self._gpu.constant("NVML_CLOCK_SM")),
            memory_mhz=self._ask("memory_mhz", "DeviceGetClockInfo", self._gpu.constant("NVML_CLOCK_MEM")),
            temperature_c=self._ask(
                "temperature_c", "DeviceGetTemperature", self._gpu.constant("NVML_TEMPERATURE_GPU")
            ),
            power_w=None if power is None else power / 1000,
            utilisation_percent=None if busy is None else busy.gpu,
            memory_used_bytes=self.memory_used_bytes(),
            reasons=reasons_of(self._ask("reasons", "DeviceGetCurrentClocksEventReasons") or 0),
            other_processes=self._others(pid),
        )

    def _others(self, pid: int) -> int | None:
        listed = self._ask("other_processes", "DeviceGetComputeRunningProcesses")
        if listed is None:
            return None
        pids = {process.pid for process in listed}
        if pid not in pids:
            # A process without a CUDA context is not listed either: later samples may list it.
            self.unavailable.setdefault(_key("other_processes"), _STRANGERS)
            return None
        self.unavailable.pop(_key("other_processes"), None)
        return len(pids) - 1

    def _ask(self, name: str, function: str, *arguments: Any) -> Any | None:
        if isinstance(answer := self._gpu.ask(function, *arguments), Unavailable):
            self.unavailable[_key(name)] = answer.unavailable
            return None
        return answer


def reasons_of(bits: int) -> tuple[str, ...]:
    """The names of the set bits; a bit that is unknown, as from a newer driver, keeps its number."""
    known = [name for position, name in enumerate(REASONS) if bits >> position & 1]
    newer = [f"bit {position}" for position in range(len(REASONS), bits.bit_length()) if bits >> position & 1]
    return (*known, *newer)


def _key(name: str) -> str:
    """Its name among the counters of the whole machine."""
    return f"gpu_{name}"
