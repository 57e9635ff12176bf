"""Where a case's inputs and outputs lie on a GPU, for backends that are told addresses (ONNX Runtime, TensorRT).

At the compute boundary every input batch lies on the device. Where copies are part of a sample there is one set on the
device, which every batch is copied into from pinned memory, and pinned memory for what is copied back. Outputs are
shared by all batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.backends.base import Array, Batch
from harness.backends.cuda import Cuda, DeviceArray
from harness.core.schemas import Boundary

Tensors = Mapping[str, DeviceArray]


class Buffers:
    """Input sets, outputs, and the copies between them and the host.

    sets: what infer() may read, one a batch or the one that is copied into.
    """

    def __init__(self, cuda: Cuda, batches: Sequence[Batch], outputs: Tensors, boundary: Boundary) -> None:
        """`batches` in the types that the library reads."""
        self._cuda = cuda
        self.outputs = outputs
        if boundary == "compute":
            self.sets: list[Tensors] = [self._on_device(batch) for batch in batches]
        else:
            self.sets = [self._on_device(batches[0])]
            self._pinned = [{name: cuda.pinned(array) for name, array in batch.items()} for batch in batches]
            self._received = {name: cuda.pinned_like(output) for name, output in outputs.items()}

    def upload(self, index: int) -> None:
        """Enqueue the copies of one batch."""
        self._cuda.upload(self.sets[0], self._pinned[index])

    def feed(self, batch: Batch) -> None:
        """Enqueue the copies of new arrays."""
        self._fed = batch  # the copies are asynchronous: the arrays must outlive them
        self._cuda.upload(self.sets[0], batch)

    def download(self) -> None:
        """Enqueue the copies of the outputs."""
        self._cuda.download(self._received, self.outputs)

    def fetched(self) -> dict[str, Array]:
        """Copies of the outputs by name when everything enqueued is done, fp16 as fp32."""
        found = {name: self._cuda.fetch(output) for name, output in self.outputs.items()}
        return {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in found.items()}

    def _on_device(self, batch: Batch) -> Tensors:
        return {name: self._cuda.put(array) for name, array in batch.items()}
