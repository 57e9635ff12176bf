"""NVML through nvidia-ml-py, which is imported only where a case runs on a GPU. Reads, and never sets anything.

Every question has one answer: the value, or `Unavailable` with NVML's own reason.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.core.cuda_driver import Driver
from harness.core.errors import UnavailableError
from harness.core.schemas import Unavailable


@dataclass(frozen=True)
class Card:
    """One card. Where MIG is on, the card that the instance is a part of, since only a whole card has clocks and power.

    instance: UUID of the MIG instance that CUDA works on; None where it works on a whole card.
    """

    library: Any
    handle: Any
    instance: str | None = None

    def ask(self, function: str, *arguments: Any) -> Any | Unavailable:
        """The answer of `nvml<function>(card, *arguments)`."""
        return self._call(f"nvml{function}", self.handle, *arguments)

    def ask_system(self, function: str) -> Any | Unavailable:
        """The answer of `nvmlSystem<function>()`, which is about no card."""
        return self._call(f"nvmlSystem{function}")

    def constant(self, name: str) -> Any:
        """One of nvidia-ml-py's constants."""
        return getattr(self.library, name)

    def _call(self, name: str, *arguments: Any) -> Any | Unavailable:
        function: Callable[..., Any] | None = getattr(self.library, name, None)
        if function is None:
            return Unavailable(unavailable=f"this nvidia-ml-py has no {name}")
        try:
            return function(*arguments)
        except self.library.NVMLError as error:
            return Unavailable(unavailable=f"{name}: {error}")


def first_card() -> Card:
    """The card that CUDA calls device 0 in this process. NVML stays started until the process ends.

    Starts the CUDA driver (harness/core/cuda_driver.py says where that may not be). Raises UnavailableError.
    """
    uuid = Driver.start().first_uuid()
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        raise UnavailableError(
            "nvidia-ml-py is not installed, so there is no record of what the GPU did while it was measured.",
            "pip install nvidia-ml-py, into the interpreter of every backend.",
        ) from None
    try:
        library.nvmlInit()
        try:
            return Card(library, library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
        except library.NVMLError_NotFound:
            part = library.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
            return Card(library, library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part), f"MIG-{uuid}")
    except library.NVMLError as error:
        raise UnavailableError(
            f"NVML does not give access to the GPU {uuid}: {error}.",
            "Ask for it in the container as well (NVIDIA_DRIVER_CAPABILITIES=compute,utility); `nvidia-smi -L` must "
            "list the GPU.",
        ) from error
