"""A device that cannot be used is refused before anything runs, in two lines."""

from __future__ import annotations

import ctypes
from importlib import metadata
from uuid import UUID

import pytest

from harness.core.errors import UnavailableError
from harness.core.host import gpu
from harness.core.host.gpu import Driver
from tests.fixtures.nvml import CARD, FakeDriver


def install(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver, runtime: str | None = None) -> None:
    def version(name: str) -> str:
        if runtime is None:
            raise metadata.PackageNotFoundError(name)
        return runtime

    monkeypatch.setattr(ctypes, "CDLL", lambda _name: driver)
    monkeypatch.setattr(metadata, "version", version)


def test_a_cpu_is_always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeDriver(init=999))
    gpu.require("cpu")


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        (FakeDriver(init=100), "cuInit returned 100"),
        (FakeDriver(count=0), "sees no GPU"),
    ],
)
def test_no_gpu(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver, words: str) -> None:
    install(monkeypatch, driver)
    with pytest.raises(UnavailableError, match=words) as caught:
        gpu.require("cuda")
    assert caught.value.hint.startswith("Run with DEVICE=cpu")


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_name: str) -> None:
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(UnavailableError, match="there is no NVIDIA driver"):
        gpu.require("cuda")


@pytest.mark.parametrize(
    ("serves", "runtime", "refused"),
    [
        (11080, None, "serves CUDA 11.8, Inferometer needs CUDA 12"),
        (12000, None, None),
        (12080, "13.0.96", "serves CUDA 12.8, nvidia-cuda-runtime 13.0.96 needs CUDA 13"),
        (13000, "13.2.1", None),  # within a major version every runtime runs
    ],
)
def test_a_driver_that_is_too_old_names_the_needed_version(
    monkeypatch: pytest.MonkeyPatch, serves: int, runtime: str | None, refused: str | None
) -> None:
    install(monkeypatch, FakeDriver(version=serves), runtime)
    if refused is None:
        gpu.require("cuda")
        return
    with pytest.raises(UnavailableError, match=refused) as caught:
        gpu.require("cuda")
    assert caught.value.hint.startswith("Install driver 5")


def test_the_first_device_has_a_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeDriver())
    assert Driver.start().first_uuid() == CARD


def test_an_older_driver_reports_mig_by_the_older_call(monkeypatch: pytest.MonkeyPatch) -> None:
    other = UUID(int=7)

    class Older(FakeDriver):
        cuDeviceGetUuid = FakeDriver.cuDeviceGetUuid_v2  # noqa: N815 - the driver's own name
        cuDeviceGetUuid_v2 = None  # type: ignore[assignment]  # noqa: N815

    install(monkeypatch, Older(uuid=other))
    assert Driver.start().first_uuid() == other
