"""The GPU of one case: the primary context, one stream, memory on both sides (pycuda), and the buffers of its inputs
and outputs, for backends that take addresses (ONNX Runtime, TensorRT, cuDNN).

Every backend enqueues on this stream, so that one event clock times them all (timing/cuda_events.py): torch takes it as
an ExternalStream, ONNX Runtime as user_compute_stream, TensorRT as the argument of execute_async_v3. Copies that run
beside a pass have a stream for each direction.

At the compute boundary every input batch lies on the device, and outputs are shared by all. Where copies are part of a
sample, there is one set on the device for each batch in flight. Batches are copied into it in turn from pinned memory,
and outputs are copied back to pinned memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pycuda import driver

from harness.backends.base import Array, Backend, BackendJob, Batch

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
        """Its address on the device."""
        return int(self.allocation)

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
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


Tensors = Mapping[str, DeviceArray]


@dataclass(frozen=True)
class InferTensors:
    """The tensors that one infer() reads and writes."""

    inputs: Tensors
    outputs: Tensors


class Buffers:
    """Input sets, outputs, and the copies between them and the host.

    sets: the sets of tensors that infer() may run on, one per batch or one per slot.
    """

    def __init__(self, cuda: Cuda, job: BackendJob, batches: Sequence[Batch], outputs: Tensors) -> None:
        """`batches`: the job's, in the types that the library reads."""
        self._cuda = cuda
        self._boundary = job.case.boundary
        self._chosen = self._number = 0
        if self._boundary == "compute":
            self.sets = [InferTensors(self._on_device(batch), outputs) for batch in batches]
        else:
            slots = [outputs, *(self._like(outputs) for _ in range(1, job.slots))]
            self.sets = [InferTensors(self._on_device(batches[0]), own) for own in slots]
            self._pinned = [{name: cuda.pinned(array) for name, array in batch.items()} for batch in batches]
            self._received = [{name: cuda.pinned_like(array) for name, array in own.items()} for own in slots]

    def select(self, index: int) -> int:
        """Select the next batch; returns the index of the set that it runs on."""
        self._chosen = index
        self._number = index if self._boundary == "compute" else (self._number + 1) % len(self.sets)
        return self._number

    def refresh(self, index: int, batch: Batch) -> None:
        """Take new content for a batch: on the device, or in the pinned memory that upload() reads."""
        if self._boundary == "compute":
            self._cuda.upload(self.sets[index].inputs, batch)
            self._cuda.synchronize()
        else:
            for name, pinned in self._pinned[index].items():
                np.copyto(pinned, batch[name])

    def upload(self) -> None:
        """Enqueue the copies of the selected batch."""
        self._cuda.upload(self.sets[self._number].inputs, self._pinned[self._chosen])

    def feed(self, batch: Batch) -> None:
        """Enqueue the copies of new arrays."""
        self._fed = batch  # the copies are asynchronous: the arrays must outlive them
        self._cuda.upload(self.sets[0].inputs, batch)

    def download(self) -> None:
        """Enqueue the copies of the outputs."""
        self._cuda.download(self._received[self._number], self.sets[self._number].outputs)

    def fetched(self) -> dict[str, Array]:
        """Copies of the outputs by name when everything enqueued is done, fp16 as fp32.

        At the transfer boundary they are the downloaded arrays.
        """
        if self._boundary == "transfer":
            self._cuda.synchronize()
            arrays = {name: array.copy() for name, array in self._received[self._number].items()}
        else:
            arrays = {name: self._cuda.fetch(output) for name, output in self.sets[self._number].outputs.items()}
        return {
            name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in arrays.items()
        }

    def _on_device(self, batch: Batch) -> Tensors:
        return {name: self._cuda.put(array) for name, array in batch.items()}

    def _like(self, tensors: Tensors) -> Tensors:
        return {name: self._cuda.empty(tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


class BufferedBackend(Backend):
    """A backend that reads and writes `Buffers` on the stream of this module. load() sets the attributes."""

    _cuda: Cuda
    _buffers: Buffers

    @abstractmethod
    def _typed(self, batch: Batch) -> Batch:
        """The arrays in the types and layout that the library reads."""

    def refresh(self, index: int) -> None:
        """Copy a batch once more to where infer(), or upload(), reads it."""
        self._buffers.refresh(index, self._typed(self.job.batches[index]))

    def feed(self, batch: Batch) -> None:
        """Enqueue the copies of new arrays to where infer() reads them."""
        self._buffers.feed(self._typed(batch))

    def upload(self) -> None:
        """Enqueue the copies of the selected batch."""
        self._buffers.upload()

    def download(self) -> None:
        """Enqueue the copies of the outputs."""
        self._buffers.download()

    def synchronize(self) -> None:
        """Wait for the stream."""
        self.stream.synchronize()
