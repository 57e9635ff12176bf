"""One look at a card: values in their units, reasons by name, and why something is not known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.host.gpu import GpuHandle
from harness.core.schemas import GpuSample
from harness.monitoring.gpu_probe import GpuProbe, reasons_of
from tests.fixtures.nvml import FakeNvml, NVMLError_NoPermission, NVMLError_NotSupported

PID = 77


def probe(**answers: Any) -> GpuProbe:
    return GpuProbe(GpuHandle(FakeNvml(**answers), "the card"))


def test_everything_that_a_gpu_reports() -> None:
    result = probe(
        DeviceGetClockInfo=lambda _card, kind: {1: 1_755, 2: 2_619}[kind],
        DeviceGetCurrentClocksEventReasons=0x4,
    )
    assert result.read(PID) == GpuSample(
        sm_mhz=1_755,
        memory_mhz=2_619,
        temperature_c=61,
        power_w=412.3,
        utilisation_percent=97,
        memory_used_bytes=5 << 30,
        reasons=("sw_power_cap",),
        other_processes=0,
    )
    assert result.unavailable == {}


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x0, ()),
        (0x1, ("gpu_idle",)),
        (0x8 | 0x40, ("hw_slowdown", "hw_thermal")),
        (0x20 | 0x80, ("sw_thermal", "hw_power_brake")),
        (0x100 | 0x8000, ("display_clock_setting", "bit 15")),
    ],
)
def test_reasons_by_the_bits_of_nvml(bits: int, names: tuple[str, ...]) -> None:
    assert reasons_of(bits) == names


def test_an_unreported_value_is_unknown_and_has_its_reason() -> None:
    library = FakeNvml(
        DeviceGetPowerUsage=NVMLError_NotSupported(),
        DeviceGetUtilizationRates=NVMLError_NotSupported(),  # MIG
        DeviceGetMemoryInfo=NVMLError_NoPermission(),
        DeviceGetComputeRunningProcesses=NVMLError_NoPermission(),
    ).without("DeviceGetCurrentClocksEventReasons")
    result = GpuProbe(GpuHandle(library, "the card"))
    look = result.read(PID)
    assert (look.power_w, look.utilisation_percent, look.memory_used_bytes, look.other_processes) == (None,) * 4
    assert (look.sm_mhz, look.temperature_c, look.reasons) == (1_755, 61, ())
    assert result.unavailable == {
        "gpu_power_w": "nvmlDeviceGetPowerUsage: Not Supported",
        "gpu_utilisation_percent": "nvmlDeviceGetUtilizationRates: Not Supported",
        "gpu_memory_used_bytes": "nvmlDeviceGetMemoryInfo: Insufficient Permissions",
        "gpu_other_processes": "nvmlDeviceGetComputeRunningProcesses: Insufficient Permissions",
        "gpu_reasons": "this nvidia-ml-py has no nvmlDeviceGetCurrentClocksEventReasons",
    }


def test_other_processes_are_counted_only_beside_the_case_itself() -> None:
    listed = [SimpleNamespace(pid=pid) for pid in (12, 13)]
    result = probe(DeviceGetComputeRunningProcesses=lambda _card: listed)
    assert result.read(PID).other_processes is None
    assert "it is unknown which" in result.unavailable["gpu_other_processes"]
    listed.append(SimpleNamespace(pid=PID))
    assert result.read(PID).other_processes == 2
    assert result.unavailable == {}


def test_in_a_container_that_lists_no_process_others_are_unknown() -> None:
    result = probe(DeviceGetComputeRunningProcesses=[])
    assert result.read(PID).other_processes is None
    assert "gpu_other_processes" in result.unavailable
