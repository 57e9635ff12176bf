"""Whether the device that was asked for can be used: asked of the driver itself, before anything else runs."""

from __future__ import annotations

from importlib import metadata

from harness.core.cuda_driver import Driver
from harness.core.errors import UnavailableError
from harness.core.schemas import Device

LEAST_CUDA = 12
"""Major version that the pinned set needs at least: its libraries are built for CUDA 12 or 13."""

FIRST_DRIVERS = {12: "525", 13: "580"}
"""Oldest driver by the CUDA major version that it serves (CUDA release notes, minor version compatibility)."""

_RUNTIME = "nvidia-cuda-runtime"
"""Distribution of the CUDA runtime from CUDA 13 on, which libraries bring along; before, its name ended in `-cu12`."""


def require(device: Device) -> None:
    """Raise UnavailableError when this machine does not have the device, or its driver is too old for our libraries."""
    if device != "cuda":
        return
    major, minor = Driver.start().cuda_version()
    needed, by = _needed()
    if major < needed:
        raise UnavailableError(
            f"DEVICE=cuda was asked for and the NVIDIA driver is too old: it serves CUDA {major}.{minor}, {by} CUDA "
            f"{needed}.",
            f"Install driver {FIRST_DRIVERS.get(needed, 'of a newer branch')} or newer, or libraries that were built "
            f"for CUDA {major}.",
        )


def _needed() -> tuple[int, str]:
    """(major version of CUDA, who needs it). Within a major version every runtime runs on every driver."""
    try:
        version = metadata.version(_RUNTIME)
    except metadata.PackageNotFoundError:
        return LEAST_CUDA, "Inferometer needs"
    return max(LEAST_CUDA, int(version.partition(".")[0])), f"{_RUNTIME} {version} needs"
