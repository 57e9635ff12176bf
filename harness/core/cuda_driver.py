"""What the CUDA driver itself tells: whether there is a GPU, which one CUDA calls device 0, what it serves (ctypes).

NVML counts cards by PCI bus and knows nothing of CUDA_VISIBLE_DEVICES; CUDA counts the fastest first, unless
CUDA_DEVICE_ORDER says otherwise. Only the driver knows which card device 0 is; its UUID is the one name that both use.

A process that started the driver cannot give CUDA to children that it forks: never call this in the worker's server.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from harness.core.errors import UnavailableError

NO_GPU_HINT = "Run with DEVICE=cpu, or on a machine with an NVIDIA GPU (in a container: `--gpus all`)."


@dataclass(frozen=True)
class Driver:
    """The driver's library, started."""

    library: Any

    @classmethod
    def start(cls) -> Driver:
        """Load and initialise it. Raises UnavailableError where there is none, it does not start, or sees no GPU."""
        try:
            library = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise _unavailable("there is no NVIDIA driver (libcuda.so.1) here") from None
        if code := library.cuInit(0):
            raise _unavailable(f"the NVIDIA driver does not start (cuInit returned {code})")
        count = ctypes.c_int()
        if library.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
            raise _unavailable("the NVIDIA driver sees no GPU")
        return cls(library)

    def cuda_version(self) -> tuple[int, int]:
        """(major, minor) of the newest CUDA that it serves."""
        number = ctypes.c_int()
        if code := self.library.cuDriverGetVersion(ctypes.byref(number)):
            raise _unavailable(f"the NVIDIA driver does not report its version (cuDriverGetVersion returned {code})")
        return number.value // 1000, number.value % 1000 // 10

    def first_uuid(self) -> UUID:
        """Of the card, or of the MIG instance of a card, that CUDA calls device 0 in this process."""
        device, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if code := self.library.cuDeviceGet(ctypes.byref(device), 0):
            raise _unavailable(f"the NVIDIA driver does not give its first GPU (cuDeviceGet returned {code})")
        # The first version of the call names the whole card where MIG is on; drivers before CUDA 11.4 have no second.
        ask = getattr(self.library, "cuDeviceGetUuid_v2", None) or self.library.cuDeviceGetUuid
        if code := ask(ctypes.byref(found), device):
            raise _unavailable(
                f"the NVIDIA driver does not report its first GPU's UUID (cuDeviceGetUuid returned {code})"
            )
        return UUID(bytes=bytes(found))


def _unavailable(reason: str) -> UnavailableError:
    return UnavailableError(f"DEVICE=cuda was asked for and {reason}.", NO_GPU_HINT)
