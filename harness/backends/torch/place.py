"""The device of a PyTorch backend: all differences between a CPU and a GPU, so that no other code depends on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from harness.backends.base import Array
from harness.core.errors import CaseError

Tensors = tuple[torch.Tensor, ...]
Call = Callable[..., Any]
"""Takes the tensors of one batch; returns a tensor or a tuple of tensors."""


class PlacedInputs(ABC):
    """The batches of a case as the tensors that calls are made with.

    sets: the different groups of tensors that a call may be given; every batch is run on one of them.
    fixed: True where all batches go through the same tensors, whose addresses never change.
    """

    sets: Sequence[Tensors]
    fixed = False

    @abstractmethod
    def select(self, index: int) -> int:
        """Select batch `index` as the next; returns the index of the set that it runs on."""

    @abstractmethod
    def refresh(self, index: int, arrays: Sequence[Array]) -> None:
        """Take new content for batch `index`, into its present memory."""

    @abstractmethod
    def feed(self, arrays: Sequence[Array]) -> Tensors:
        """Take arrays as the next batch; returns the set that it is run on."""

    def upload(self) -> None:
        """Enqueue the copy of the selected batch to its set."""
        raise CaseError("These inputs are already where they are read.", "Leave `boundaries: [transfer]` out.")

    def download(self, results: Tensors) -> Tensors:
        """Enqueue the copy of results to the host; returns the tensors that will then hold them."""
        raise CaseError("These outputs are already where they are read.", "Leave `boundaries: [transfer]` out.")


def rewrite(targets: Tensors, arrays: Sequence[Array]) -> None:
    """Copy arrays into tensors of other types, layouts or devices; those that lie on the arrays' own memory have it."""
    for target, array in zip(targets, arrays, strict=True):
        source = torch.from_numpy(array)
        if target.data_ptr() != source.data_ptr():
            target.copy_(source)


class Place(ABC):
    """A CPU or a GPU.

    stream: the pycuda Stream that calls enqueue on; None on a CPU.
    copy_streams: those that copies enqueue on instead (base.Backend.copy_streams).
    """

    stream: Any = None
    copy_streams: tuple[Any, Any] | None = None

    @abstractmethod
    def module(self, module: nn.Module, dtype: torch.dtype) -> nn.Module:
        """The module with its floats in `dtype`, where it will run."""

    @abstractmethod
    def inputs(self, batches: Sequence[Sequence[Array]], dtype: torch.dtype) -> PlacedInputs:
        """The batches, arrays in the order of forward's parameters, where the module reads them."""

    @abstractmethod
    def settle(self, call: Call, sets: Sequence[Tensors]) -> list[Call]:
        """The callable for each of the sets, after all work that only the first calls do is done."""

    def require_fp8(self) -> None:  # noqa: B027 - a CPU multiplies the same values in fp32; no plan has such a case
        """Raise NotSupportedError where the device does not multiply in fp8."""

    @abstractmethod
    def precision(self, floating: Sequence[str]) -> str:
        """The precision that ran, from the names of the parameters' types and from the present switches."""

    @abstractmethod
    def settings(self, module: nn.Module) -> dict[str, str | int | float | bool]:
        """The settings that decide speed here, read back."""

    @abstractmethod
    def build_facts(self) -> Mapping[str, str]:
        """Facts about this PyTorch's libraries for this device."""

    def activate(self) -> None:  # noqa: B027 - a CPU has no current stream
        """Make the stream of this place the current stream of the thread."""

    def synchronize(self) -> None:  # noqa: B027 - on a CPU a call returns when its work is done
        """Wait until everything enqueued is done."""

    def close(self) -> None:  # noqa: B027 - a CPU has nothing to give back
        """Release resources that outlive the calls."""
