"""The device of a PyTorch backend: all differences between a CPU and a GPU, so that no other code depends on them.

The CPU is here: tensors on the arrays' own memory, as many threads as every other backend has. The GPU: cuda.py.
"""

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


_CONVERSIONS = {
    torch.float32: nn.Module.float,
    torch.bfloat16: nn.Module.bfloat16,
    torch.float16: nn.Module.half,
}


def in_type(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The module itself, its floats in `dtype`. `.to(dtype)` would drop the imaginary part of complex weights, too."""
    return _CONVERSIONS[dtype](module)


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


class OnCpu(Place):
    """Sets the thread counts of the process; nothing else has to be prepared."""

    def __init__(self, threads: int) -> None:
        use_threads(threads)

    def module(self, module: nn.Module, dtype: torch.dtype) -> nn.Module:
        """The module itself, its floats converted."""
        return in_type(module, dtype)

    def inputs(self, batches: Sequence[Sequence[Array]], dtype: torch.dtype) -> PlacedInputs:
        """Tensors on the batches' own memory: copies would add load time and memory to PyTorch alone."""
        return ResidentOnCpu([tuple(_typed(array, dtype) for array in batch) for batch in batches], dtype)

    def settle(self, call: Call, sets: Sequence[Tensors]) -> list[Call]:
        """The call itself, for every set."""
        return [call] * len(sets)

    def precision(self, floating: Sequence[str]) -> str:
        """Not fp32 where a switch lets oneDNN compute products of fp32 in a lower precision."""
        lower = _lower_products()
        return f"fp32 with {lower} products" if lower and list(floating) == ["fp32"] else "+".join(floating)

    def settings(self, module: nn.Module) -> dict[str, str | int | float | bool]:
        """Threads, and the switches that may change how products are computed."""
        del module
        return {
            "threads": torch.get_num_threads(),
            "interop_threads": torch.get_num_interop_threads(),
            "onednn": bool(torch.backends.mkldnn.enabled),
            "float32_matmul_precision": _lower_products() or "highest",
        }

    def build_facts(self) -> dict[str, str]:
        """Parallel backend and CPU capability of this PyTorch."""
        return host_facts()


_EXACT = ("none", "ieee")


def _lower_products() -> str:
    """Types below fp32 that oneDNN may compute products of fp32 in, as its switches are now; empty where none."""
    oned = torch.backends.mkldnn
    kinds: list[Any] = [getattr(oned, name, None) for name in ("matmul", "conv", "rnn")]
    precisions = {str(kind.fp32_precision) for kind in kinds if hasattr(kind, "fp32_precision")}
    if not precisions:  # before PyTorch 2.9 there is only the switch of matrix products
        older = torch.get_float32_matmul_precision()
        return "" if older == "highest" else f"{older}-precision"
    return "+".join(sorted(precisions - set(_EXACT)))


def use_threads(threads: int) -> None:
    """Let operators on the host use that many threads, and run one operator at a time."""
    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:  # may be set once in a process
        torch.set_num_interop_threads(1)


def host_facts() -> dict[str, str]:
    """Parallel backend and CPU capability of this PyTorch, wherever its tensors lie."""
    wanted = ("ATen parallel backend", "OpenMP", "Math Kernel Library", "Intel(R) MKL-DNN")
    lines = [*torch.__config__.parallel_info().splitlines(), *torch.__config__.show().splitlines()]
    facts = {line.strip(" -") for line in lines if any(word in line for word in wanted)}
    return {"torch": "; ".join(sorted(facts)), "torch_cpu_capability": torch.backends.cpu.get_cpu_capability()}


class ResidentOnCpu(PlacedInputs):
    """Every batch lies in memory; new arrays become tensors without a copy unless their floats are converted."""

    def __init__(self, sets: Sequence[Tensors], dtype: torch.dtype) -> None:
        self.sets = sets
        self._dtype = dtype

    def select(self, index: int) -> int:
        """Every batch has a set of its own."""
        return index

    def refresh(self, index: int, arrays: Sequence[Array]) -> None:
        """Floats below fp32 are copies; all else lies on the arrays."""
        rewrite(self.sets[index], arrays)

    def feed(self, arrays: Sequence[Array]) -> Tensors:
        """Tensors on the arrays' own memory; only below fp32 are floats converted."""
        return tuple(_typed(array, self._dtype) for array in arrays)


def _typed(array: Array, dtype: torch.dtype) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
