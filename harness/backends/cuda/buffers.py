"""Buffers of a case's inputs and outputs on a GPU, for backends that take addresses (ONNX Runtime, TensorRT).

At the compute boundary every input batch lies on the device, and outputs are shared by all. Where copies are part of a
sample, there is one set on the device for each batch in flight. Batches are copied into it in turn from pinned memory,
and outputs are copied back to pinned memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.backends.base import Array, BackendJob, Batch
from harness.backends.cuda.context import Cuda, DeviceArray

Tensors = Mapping[str, DeviceArray]


@dataclass(frozen=True)
class Tied:
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
            self.sets = [Tied(self._on_device(batch), outputs) for batch in batches]
        else:
            slots = [outputs, *(self._like(outputs) for _ in range(1, job.slots))]
            self.sets = [Tied(self._on_device(batches[0]), own) for own in slots]
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
