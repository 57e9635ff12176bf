"""The GPU of a case for the environment record: what does not change while a run goes on, as NVML tells it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.core.errors import UnavailableError
from harness.core.nvml import Card, first_card
from harness.core.schemas import Gpu, Unavailable


def facts() -> Gpu:
    """Of the card that CUDA calls device 0 here. Raises UnavailableError where NVML does not even name it."""
    return facts_of(first_card())


def facts_of(card: Card) -> Gpu:
    """Of one card. Current clocks and the current PCIe speed are left out: both sink while the card is idle."""
    return Gpu(
        name=_owed(card.ask("DeviceGetName")),
        uuid=_owed(card.ask("DeviceGetUUID")),
        sm=_dotted(_owed(card.ask("DeviceGetCudaComputeCapability"))),
        memory_bytes=_owed(card.ask("DeviceGetMemoryInfo")).total,
        driver=_owed(card.ask_system("GetDriverVersion")),
        cuda=_cuda(_owed(card.ask_system("GetCudaDriverVersion_v2"))),
        vbios=card.ask("DeviceGetVbiosVersion"),
        persistence=_given(card.ask("DeviceGetPersistenceMode"), _on_off),
        ecc=_given(card.ask("DeviceGetEccMode"), _current),
        mig=_given(card.ask("DeviceGetMigMode"), lambda mode: _mig(_current(mode), card.instance)),
        power_limit_w=_given(card.ask("DeviceGetEnforcedPowerLimit"), _watts),
        power_limit_default_w=_given(card.ask("DeviceGetPowerManagementDefaultLimit"), _watts),
        max_sm_mhz=card.ask("DeviceGetMaxClockInfo", card.constant("NVML_CLOCK_SM")),
        max_memory_mhz=card.ask("DeviceGetMaxClockInfo", card.constant("NVML_CLOCK_MEM")),
        pcie=_pcie(card.ask("DeviceGetMaxPcieLinkGeneration"), card.ask("DeviceGetMaxPcieLinkWidth")),
        bar1_bytes=_given(card.ask("DeviceGetBAR1MemoryInfo"), lambda memory: int(memory.bar1Total)),
    )


def _owed(answer: Any | Unavailable) -> Any:
    """What every card tells: without it a number could not be said to be of any GPU."""
    if isinstance(answer, Unavailable):
        raise UnavailableError(
            f"NVML does not describe the GPU ({answer.unavailable}).",
            "`nvidia-smi -q` shows what it reports here; restart or update the driver.",
        )
    return answer


def _given(answer: Any | Unavailable, convert: Callable[[Any], Any]) -> Any:
    return answer if isinstance(answer, Unavailable) else convert(answer)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _on_off(state: int) -> str:
    return "on" if state else "off"


def _current(modes: list[int]) -> str:
    """Of [current, pending]: the other one waits for a reset."""
    return _on_off(modes[0])


def _mig(state: str, instance: str | None) -> str:
    return state if instance is None else f"{state}, on instance {instance}"


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _pcie(generation: int | Unavailable, width: int | Unavailable) -> str | Unavailable:
    """The best link that this card and this system can have together."""
    if isinstance(generation, Unavailable):
        return generation
    return width if isinstance(width, Unavailable) else f"gen{generation} x{width}"
