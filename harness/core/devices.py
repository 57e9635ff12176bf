"""Whether the device that was asked for exists: asked of the driver itself, before anything else runs."""

from __future__ import annotations

import ctypes

from harness.core.errors import UnavailableError
from harness.core.schemas import Device

_NO_GPU_HINT = "Run with DEVICE=cpu, or on a machine with an NVIDIA GPU (in a container: `--gpus all`)."


def require(device: Device) -> None:
    """Raise UnavailableError when this machine does not have the device."""
    if device == "cuda" and (reason := _cuda_missing()):
        raise UnavailableError(f"DEVICE=cuda was asked for and {reason}.", _NO_GPU_HINT)


def _cuda_missing() -> str | None:
    """Why CUDA cannot be used, None when it can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver (libcuda.so.1) here"
    if code := driver.cuInit(0):
        return f"the NVIDIA driver does not start (cuInit returned {code})"
    count = ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "the NVIDIA driver sees no GPU"
    return None
