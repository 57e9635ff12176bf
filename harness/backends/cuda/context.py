"""The GPU of one case: the primary context, one stream, and memory on both sides (pycuda).

Every backend enqueues on this stream, so that one event clock times them all (timing/cuda_events.py): torch takes it
as an ExternalStream, ONNX Runtime as user_compute_stream, TensorRT as the argument of execute_async_v3. Copies that run
beside a pass have a stream for each direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pycuda import driver

from harness.backends.base import Array

_NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: work on the legacy default stream, which no backend should use, does not wait for ours."""


@dataclass(frozen=True)
class DeviceArray:
    """Memory on the device with the shape and type of the array that it holds."""

    allocation: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def address(self) -> int:
        """Where it lies, as CUDA counts."""
        return int(self.allocation)

    @property
    def nbytes(self) -> int:
        """Its size."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class Cuda:
    """The first visible GPU. Made after the fork: a CUDA context does not survive a fork.

    copy_streams: to the device and from it, where copies have streams of their own; else None.
    """

    def __init__(self, copies_apart: bool = False) -> None:
        driver.init()
        # The CUDA runtime, and so every library, uses the primary context.
        self._context = driver.Device(0).retain_primary_context()
        self._context.push()
        self.stream = driver.Stream(_NON_BLOCKING)
        self.copy_streams = (driver.Stream(_NON_BLOCKING), driver.Stream(_NON_BLOCKING)) if copies_apart else None
        self._inward, self._outward = self.copy_streams or (self.stream, self.stream)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        """Uninitialised memory. pycuda's MemoryError where the GPU has no more."""
        size = max(1, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        return DeviceArray(driver.mem_alloc(size), shape, dtype)

    def put(self, array: Array) -> DeviceArray:
        """A copy of an array on the device, complete on return."""
        target = self.empty(array.shape, array.dtype)
        driver.memcpy_htod(target.allocation, np.ascontiguousarray(array))
        return target

    def pinned(self, array: Array) -> Array:
        """A copy of an array in page-locked host memory, from where the device fetches at full speed."""
        target: Array = driver.pagelocked_empty(array.shape, array.dtype)
        target[...] = array
        return target

    def pinned_like(self, source: DeviceArray) -> Array:
        """Page-locked host memory for the content of a device array."""
        target: Array = driver.pagelocked_empty(source.shape, source.dtype)
        return target

    def upload(self, pairs: Mapping[str, DeviceArray], arrays: Mapping[str, Array]) -> None:
        """Enqueue copies to the device, by name."""
        for name, target in pairs.items():
            driver.memcpy_htod_async(target.allocation, arrays[name], self._inward)

    def download(self, arrays: Mapping[str, Array], sources: Mapping[str, DeviceArray]) -> None:
        """Enqueue copies to the host, by name."""
        for name, source in sources.items():
            driver.memcpy_dtoh_async(arrays[name], source.allocation, self._outward)

    def fetch(self, source: DeviceArray) -> Array:
        """A copy of a device array on the host, when everything enqueued before is done."""
        self.stream.synchronize()
        target = np.empty(source.shape, source.dtype)
        driver.memcpy_dtoh(target, source.allocation)
        return target

    def synchronize(self) -> None:
        """Wait until everything enqueued is done."""
        for stream in (self.stream, *(self.copy_streams or ())):
            stream.synchronize()

    def close(self) -> None:
        """Release the context: if it stays pushed, it aborts the interpreter at its end."""
        self.synchronize()
        self._context.pop()
