"""The GPU as the driver and NVML report it: whether there is a GPU, and its facts that do not change during a run.

The CUDA driver, through ctypes, reports whether there is a GPU, which GPU is CUDA's device 0 and which CUDA version it
supports. NVML, through nvidia-ml-py, which is imported only where a case runs on a GPU, reports the rest. This module
reads and never sets anything. Every query returns the value, or `Unavailable` with NVML's own reason.

NVML counts GPUs by PCI bus and ignores CUDA_VISIBLE_DEVICES; CUDA counts the fastest first, unless CUDA_DEVICE_ORDER
changes that. Only the driver knows which GPU is device 0; the UUID is the only name that both use.

After a process has started the driver, its forked children cannot use CUDA: never call this in the worker's server.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any
from uuid import UUID

from harness.core.errors import UnavailableError
from harness.core.schemas import Device, Gpu, Unavailable

NO_GPU_HINT = "Run with DEVICE=cpu, or on a machine with an NVIDIA GPU (in a container: `--gpus all`)."


@dataclass(frozen=True)
class Driver:
    """The driver's library, initialised."""

    library: Any

    @classmethod
    def start(cls) -> Driver:
        """Load and initialise it. Raises UnavailableError where it is missing, does not start, or sees no GPU."""
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
        """(major, minor) of the newest CUDA version that it supports."""
        number = ctypes.c_int()
        if code := self.library.cuDriverGetVersion(ctypes.byref(number)):
            raise _unavailable(f"the NVIDIA driver does not report its version (cuDriverGetVersion returned {code})")
        return number.value // 1000, number.value % 1000 // 10

    def count(self) -> int:
        """Number of GPUs that this process may use."""
        number = ctypes.c_int()
        if code := self.library.cuDeviceGetCount(ctypes.byref(number)):
            raise _unavailable(f"the NVIDIA driver does not count its GPUs (cuDeviceGetCount returned {code})")
        return number.value

    def first_uuid(self) -> UUID:
        """UUID of CUDA's device 0 in this process: a GPU or a MIG instance of a GPU."""
        device, handle = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if code := self.library.cuDeviceGet(ctypes.byref(device), 0):
            raise _unavailable(f"the NVIDIA driver does not give its first GPU (cuDeviceGet returned {code})")
        # Where MIG is on, version 1 of the call names the whole GPU; drivers before CUDA 11.4 have no version 2.
        ask = getattr(self.library, "cuDeviceGetUuid_v2", None) or self.library.cuDeviceGetUuid
        if code := ask(ctypes.byref(handle), device):
            raise _unavailable(
                f"the NVIDIA driver does not report its first GPU's UUID (cuDeviceGetUuid returned {code})"
            )
        return UUID(bytes=bytes(handle))


def _unavailable(reason: str) -> UnavailableError:
    return UnavailableError(f"DEVICE=cuda was asked for and {reason}.", NO_GPU_HINT)


LEAST_CUDA = 12
"""Lowest CUDA major version for the pinned packages: their libraries are built for CUDA 12 or 13."""

FIRST_DRIVERS = {12: "525", 13: "580"}
"""Oldest driver by the CUDA major version that it supports (CUDA release notes, minor version compatibility)."""

_RUNTIME = "nvidia-cuda-runtime"
"""Distribution of the CUDA runtime from CUDA 13 on, a dependency of libraries; before, its name ended in `-cu12`."""


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
    """(major version of CUDA, software that needs it). Within a major version every runtime runs on every driver."""
    try:
        version = metadata.version(_RUNTIME)
    except metadata.PackageNotFoundError:
        return LEAST_CUDA, "Inferometer needs"
    return max(LEAST_CUDA, int(version.partition(".")[0])), f"{_RUNTIME} {version} needs"


@dataclass(frozen=True)
class GpuHandle:
    """One GPU. Where MIG is on, the whole GPU of the instance, since only a whole GPU has clocks and power.

    instance: UUID of the MIG instance that CUDA uses; None where it uses a whole GPU.
    """

    library: Any
    handle: Any
    instance: str | None = None

    def ask(self, function: str, *arguments: Any) -> Any | Unavailable:
        """The result of `nvml<function>(handle, *arguments)`."""
        return self._call(f"nvml{function}", self.handle, *arguments)

    def ask_system(self, function: str) -> Any | Unavailable:
        """The result of `nvmlSystem<function>()`, which takes no GPU."""
        return self._call(f"nvmlSystem{function}")

    def constant(self, name: str) -> Any:
        """A constant of nvidia-ml-py."""
        return getattr(self.library, name)

    def _call(self, name: str, *arguments: Any) -> Any | Unavailable:
        function: Callable[..., Any] | None = getattr(self.library, name, None)
        if function is None:
            return Unavailable(unavailable=f"this nvidia-ml-py has no {name}")
        try:
            return function(*arguments)
        except self.library.NVMLError as error:
            return Unavailable(unavailable=f"{name}: {error}")


def first_gpu() -> GpuHandle:
    """The GPU that is CUDA's device 0 in this process. NVML stays initialised until the process ends.

    Starts the CUDA driver (this module's docstring says where that is not allowed). Raises UnavailableError.
    """
    uuid = Driver.start().first_uuid()
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        raise UnavailableError(
            "nvidia-ml-py is not installed, so there is no record of the GPU while it was measured.",
            "pip install nvidia-ml-py, into the interpreter of every backend.",
        ) from None
    try:
        library.nvmlInit()
        try:
            return GpuHandle(library, library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
        except library.NVMLError_NotFound:
            part = library.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
            return GpuHandle(library, library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part), f"MIG-{uuid}")
    except library.NVMLError as error:
        raise UnavailableError(
            f"NVML does not give access to the GPU {uuid}: {error}.",
            "Ask for it in the container as well (NVIDIA_DRIVER_CAPABILITIES=compute,utility); `nvidia-smi -L` must "
            "list the GPU.",
        ) from error


def facts() -> Gpu:
    """Facts of the GPU that is CUDA's device 0 here. Raises UnavailableError where NVML cannot identify it."""
    return facts_of(first_gpu())


def facts_of(handle: GpuHandle) -> Gpu:
    """Facts of one GPU, without its current clocks and PCIe speed: both fall while the GPU is idle."""
    return Gpu(
        name=_required(handle.ask("DeviceGetName")),
        uuid=_required(handle.ask("DeviceGetUUID")),
        sm=_dotted(_required(handle.ask("DeviceGetCudaComputeCapability"))),
        memory_bytes=_required(handle.ask("DeviceGetMemoryInfo")).total,
        driver=_required(handle.ask_system("GetDriverVersion")),
        cuda=_cuda(_required(handle.ask_system("GetCudaDriverVersion_v2"))),
        vbios=handle.ask("DeviceGetVbiosVersion"),
        persistence=_converted(handle.ask("DeviceGetPersistenceMode"), _on_off_text),
        ecc=_converted(handle.ask("DeviceGetEccMode"), _current),
        mig=_converted(handle.ask("DeviceGetMigMode"), lambda mode: _mig(_current(mode), handle.instance)),
        power_limit_w=_converted(handle.ask("DeviceGetEnforcedPowerLimit"), _watts),
        power_limit_default_w=_converted(handle.ask("DeviceGetPowerManagementDefaultLimit"), _watts),
        max_sm_mhz=handle.ask("DeviceGetMaxClockInfo", handle.constant("NVML_CLOCK_SM")),
        max_memory_mhz=handle.ask("DeviceGetMaxClockInfo", handle.constant("NVML_CLOCK_MEM")),
        pcie=_pcie(handle.ask("DeviceGetMaxPcieLinkGeneration"), handle.ask("DeviceGetMaxPcieLinkWidth")),
        bar1_bytes=_converted(handle.ask("DeviceGetBAR1MemoryInfo"), lambda memory: int(memory.bar1Total)),
    )


CPU_WORD_BITS = 64
"""Bits of one word of NVML's sets of CPUs, an unsigned long of a 64-bit system."""


def near_cpus(handle: GpuHandle, logical_cpus: int) -> tuple[int, ...] | Unavailable:
    """The CPUs near a GPU, as NVML reports them (nvmlDeviceGetCpuAffinity). logical_cpus: of this machine."""
    words = handle.ask("DeviceGetCpuAffinity", -(-logical_cpus // CPU_WORD_BITS))
    if isinstance(words, Unavailable):
        return words
    return tuple(
        place * CPU_WORD_BITS + bit
        for place, word in enumerate(words)
        for bit in range(CPU_WORD_BITS)
        if int(word) >> bit & 1
    )


def _required(answer: Any | Unavailable) -> Any:
    """A required value: every GPU reports it, and without it a number has no known GPU."""
    if isinstance(answer, Unavailable):
        raise UnavailableError(
            f"NVML does not describe the GPU ({answer.unavailable}).",
            "`nvidia-smi -q` shows what it reports here; restart or update the driver.",
        )
    return answer


def _converted(answer: Any | Unavailable, convert: Callable[[Any], Any]) -> Any:
    return answer if isinstance(answer, Unavailable) else convert(answer)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _on_off_text(state: int) -> str:
    return "on" if state else "off"


def _current(modes: list[int]) -> str:
    """The current mode of [current, pending]: the pending mode needs a reset."""
    return _on_off_text(modes[0])


def _mig(state: str, instance: str | None) -> str:
    return state if instance is None else f"{state}, on instance {instance}"


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _pcie(generation: int | Unavailable, width: int | Unavailable) -> str | Unavailable:
    """The best PCIe link that this GPU and this system support together."""
    if isinstance(generation, Unavailable):
        return generation
    return width if isinstance(width, Unavailable) else f"gen{generation} x{width}"
