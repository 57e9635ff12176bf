"""PyTorch on a CPU: tensors on the arrays' own memory, as many threads as every other backend has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from harness.backends.base import Array
from harness.backends.torch.place import (
    Call,
    Place,
    PlacedInputs,
    Tensors,
    rewrite,
)


class OnCpu(Place):
    """Sets the thread counts of the process; nothing else has to be prepared."""

    def __init__(self, threads: int) -> None:
        use_threads(threads)

    def module(self, module: nn.Module, dtype: torch.dtype) -> nn.Module:
        """The module itself, its floats converted."""
        return module.to(dtype)

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
    found = {str(kind.fp32_precision) for kind in kinds if hasattr(kind, "fp32_precision")}
    if not found:  # before PyTorch 2.9 there is only the switch of matrix products
        older = torch.get_float32_matmul_precision()
        return "" if older == "highest" else f"{older}-precision"
    return "+".join(sorted(found - set(_EXACT)))


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
