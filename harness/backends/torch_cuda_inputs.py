"""The batches of a case on a GPU: all of them resident, or copied into one set of tensors or into several in turn."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.backends.base import Array
from harness.backends.torch_place import Inputs, Tensors, rewrite
from harness.core.errors import CaseError


class Resident(Inputs):
    """The compute boundary's: every batch lies on the device, and none is copied."""

    def __init__(self, sets: Sequence[Tensors]) -> None:
        self.sets = sets

    def select(self, index: int) -> int:
        """Every batch has a set of its own."""
        return index

    def refresh(self, index: int, arrays: Sequence[Array]) -> None:
        """Copy to the device."""
        rewrite(self.sets[index], arrays)

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

    def refresh(self, index: int, arrays: Sequence[Array]) -> None:
        """Copy to the page-locked memory that upload() reads."""
        rewrite(self._pinned[index], arrays)

    def feed(self, arrays: Sequence[Array]) -> Tensors:
        """Enqueue the copy of arrays as they come; floats are converted on the device."""
        for target, array in zip(self._on_device, arrays, strict=True):
            target.copy_(torch.from_numpy(array), non_blocking=True)
        return self._on_device

    def upload(self) -> None:
        """Enqueue one copy for each input."""
        _enqueue(self._on_device, self._selected)

    def download(self, results: Tensors) -> Tensors:
        """Enqueue one copy for each output, in the type that it has, to page-locked memory that is made once."""
        if not self._answers:
            self._answers = _pinned_like(results)
        _enqueue(self._answers, results)
        return self._answers


class Rotating(Inputs):
    """The transfer boundary's in pipelined mode: a set for each batch in flight, and copies on streams of their own."""

    def __init__(
        self, sets: Sequence[Tensors], pinned: Sequence[Tensors], inward: torch.cuda.Stream, outward: torch.cuda.Stream
    ) -> None:
        """`pinned` as for Fixed; `inward`, `outward`: for copies to the device and from it."""
        self.sets = sets
        self._pinned = pinned
        self._inward, self._outward = inward, outward
        self._selected = pinned[0]
        self._number = 0
        self._answers: list[Tensors] = [()] * len(sets)
        self._results: list[Tensors] = [()] * len(sets)

    def select(self, index: int) -> int:
        """The next upload() takes this batch, to the next set."""
        self._selected = self._pinned[index]
        self._number = (self._number + 1) % len(self.sets)
        return self._number

    def refresh(self, index: int, arrays: Sequence[Array]) -> None:
        """Copy to the page-locked memory that upload() reads."""
        rewrite(self._pinned[index], arrays)

    def feed(self, arrays: Sequence[Array]) -> Tensors:
        """Batches come from page-locked memory alone."""
        raise CaseError(
            "These inputs were put in page-locked memory before.", "Choose `boundaries: [e2e]` to feed new ones."
        )

    def upload(self) -> None:
        """Enqueue one copy for each input."""
        with torch.cuda.stream(self._inward):
            _enqueue(self.sets[self._number], self._selected)

    def download(self, results: Tensors) -> Tensors:
        """Enqueue one copy for each output, to page-locked memory of the set."""
        # PyTorch gives the memory of a dropped tensor to the next pass, which would overwrite what is being copied.
        self._results[self._number] = results
        if not self._answers[self._number]:
            self._answers[self._number] = _pinned_like(results)
        with torch.cuda.stream(self._outward):
            _enqueue(self._answers[self._number], results)
        return self._answers[self._number]


def _pinned_like(tensors: Tensors) -> Tensors:
    return tuple(torch.empty_like(tensor, device="cpu", pin_memory=True) for tensor in tensors)


def _enqueue(targets: Tensors, sources: Tensors) -> None:
    """Copies on the current stream."""
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source, non_blocking=True)
