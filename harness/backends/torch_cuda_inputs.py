"""The batches of a case on a GPU: all of them resident, or one set of tensors that each is copied into."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.backends.base import Array
from harness.backends.torch_place import Inputs, Tensors
from harness.core.errors import CaseError


class Resident(Inputs):
    """The compute boundary's: every batch lies on the device, and none is copied."""

    def __init__(self, sets: Sequence[Tensors]) -> None:
        self.sets = sets

    def select(self, index: int) -> int:
        """Every batch has a set of its own."""
        return index

    def feed(self, arrays: Sequence[Array]) -> Tensors:
        """Resident batches are all there are."""
        raise CaseError("These inputs were put on the device before.", "Choose `boundaries: [e2e]` to feed new ones.")


class Fixed(Inputs):
    """The transfer and e2e boundaries': one set on the device, and batches in host memory that are copied into it."""

    fixed = True

    def __init__(self, on_device: Tensors, pinned: Sequence[Tensors]) -> None:
        """`pinned` lie in page-locked memory in the types and layout of `on_device`, so that a copy is only a copy."""
        self.sets = [on_device]
        self._on_device = on_device
        self._pinned = pinned
        self._selected = pinned[0] if pinned else ()
        self._answers: Tensors = ()

    def select(self, index: int) -> int:
        """The next upload() takes this batch."""
        self._selected = self._pinned[index]
        return 0

    def feed(self, arrays: Sequence[Array]) -> Tensors:
        """Enqueue the copy of arrays as they come; floats are converted on the device."""
        for target, array in zip(self._on_device, arrays, strict=True):
            target.copy_(torch.from_numpy(array), non_blocking=True)
        return self._on_device

    def upload(self) -> None:
        """Enqueue one copy for each input."""
        for target, source in zip(self._on_device, self._selected, strict=True):
            target.copy_(source, non_blocking=True)

    def download(self, results: Tensors) -> Tensors:
        """Enqueue one copy for each output, in the type that it has, to page-locked memory that is made once."""
        if not self._answers:
            self._answers = tuple(torch.empty_like(value, device="cpu", pin_memory=True) for value in results)
        for target, value in zip(self._answers, results, strict=True):
            target.copy_(value, non_blocking=True)
        return self._answers
