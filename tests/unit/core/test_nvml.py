"""Which GPU is looked at, what NVML reports of it, and what it does not."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pytest

from harness.core.errors import UnavailableError
from harness.core.host import environment, gpu
from harness.core.host.gpu import GpuHandle, first_gpu
from harness.core.schemas import Gpu, Unavailable
from tests.fixtures.nvml import (
    CARD,
    FakeDriver,
    FakeNvml,
    NVMLError,
    NVMLError_NoPermission,
    NVMLError_NotFound,
    NVMLError_NotSupported,
)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: FakeDriver())


def installed(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> FakeNvml:
    library = FakeNvml(**answers)
    monkeypatch.setitem(sys.modules, "pynvml", library)  # type: ignore[arg-type]
    return library


@pytest.mark.usefixtures("driver")
def test_the_gpu_is_the_one_that_cuda_calls_its_first(monkeypatch: pytest.MonkeyPatch) -> None:
    library = installed(monkeypatch)
    assert first_gpu() == GpuHandle(library, "the card")
    assert library.calls == [("Init",), ("DeviceGetHandleByUUID", f"GPU-{CARD}")]


@pytest.mark.usefixtures("driver")
def test_of_a_mig_instance_the_whole_gpu_is_looked_at_and_the_instance_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(uuid: str) -> str:
        if uuid.startswith("GPU-"):
            raise NVMLError_NotFound
        return "the instance"

    library = installed(
        monkeypatch,
        DeviceGetHandleByUUID=handle,
        DeviceGetDeviceHandleFromMigDeviceHandle=lambda part: f"the card of {part}",
        DeviceGetMigMode=[1, 1],
    )
    card = first_gpu()
    assert card == GpuHandle(library, "the card of the instance", f"MIG-{CARD}")
    assert gpu.facts_of(card).mig == f"on, on instance MIG-{CARD}"


@pytest.mark.usefixtures("driver")
def test_a_gpu_that_nvml_does_not_give_is_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, DeviceGetHandleByUUID=NVMLError_NoPermission())
    with pytest.raises(UnavailableError) as caught:
        first_gpu()
    assert "Insufficient Permissions" in caught.value.problem
    installed(monkeypatch, Init=NVMLError("NVML Shared Library Not Found"))
    with pytest.raises(UnavailableError, match="Shared Library Not Found"):
        first_gpu()


@pytest.mark.usefixtures("driver")
def test_nvidia_ml_py_may_not_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # type: ignore[arg-type]
    with pytest.raises(UnavailableError) as caught:
        first_gpu()
    assert caught.value.hint.startswith("pip install nvidia-ml-py")


def test_every_fact_of_the_gpu() -> None:
    assert gpu.facts_of(GpuHandle(FakeNvml(), "the card")) == Gpu(
        name="A GPU",
        uuid=f"GPU-{CARD}",
        sm="9.0",
        memory_bytes=80 << 30,
        driver="580.1",
        cuda="13.1",
        vbios="96.00",
        persistence="on",
        ecc="on",
        mig="off",
        power_limit_w=650.5,
        power_limit_default_w=700.0,
        max_sm_mhz=1_980,
        max_memory_mhz=1_980,
        pcie="gen5 x16",
        bar1_bytes=128 << 30,
    )


def test_a_fact_that_is_not_reported_says_why() -> None:
    library = FakeNvml(
        DeviceGetMigMode=NVMLError_NotSupported(),
        DeviceGetEnforcedPowerLimit=NVMLError_NoPermission(),
        DeviceGetMaxPcieLinkWidth=NVMLError_NotSupported(),
    ).without("DeviceGetBAR1MemoryInfo")
    facts = gpu.facts_of(GpuHandle(library, "the card"))
    assert facts.mig == Unavailable(unavailable="nvmlDeviceGetMigMode: Not Supported")
    assert facts.power_limit_w == Unavailable(unavailable="nvmlDeviceGetEnforcedPowerLimit: Insufficient Permissions")
    assert facts.pcie == Unavailable(unavailable="nvmlDeviceGetMaxPcieLinkWidth: Not Supported")
    assert facts.bar1_bytes == Unavailable(unavailable="this nvidia-ml-py has no nvmlDeviceGetBAR1MemoryInfo")
    assert Gpu.model_validate_json(facts.model_dump_json()) == facts


def test_a_gpu_without_a_name_is_no_gpu() -> None:
    with pytest.raises(UnavailableError, match="nvmlDeviceGetName: Not Supported"):
        gpu.facts_of(GpuHandle(FakeNvml(DeviceGetName=NVMLError_NotSupported()), "the card"))


@pytest.mark.usefixtures("driver")
def test_only_on_cuda_does_the_environment_hold_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    library = installed(monkeypatch)
    assert environment.collect({}).gpu is None
    assert library.calls == []
    result = environment.collect({}, "cuda").gpu
    assert result is not None
    assert result.uuid == f"GPU-{CARD}"


def test_the_real_library_has_everything_that_is_asked_here() -> None:
    real = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed (make bench DEVICE=cuda installs it)")
    assert [name for name in dir(FakeNvml()) if name.lower().startswith("nvml") and not hasattr(real, name)] == []


def test_the_cpus_near_a_gpu_are_the_bits_of_words_of_64() -> None:
    library = FakeNvml(DeviceGetCpuAffinity=[1 << 63 | 1 << 1, 1 << 2])
    assert gpu.near_cpus(GpuHandle(library, "the card"), 96) == (1, 63, 66)
    assert library.calls == [("DeviceGetCpuAffinity", "the card", 2)]
    refused = FakeNvml(DeviceGetCpuAffinity=NVMLError_NotSupported())
    assert isinstance(gpu.near_cpus(GpuHandle(refused, "the card"), 4), Unavailable)
