"""The memory of a module: parameters by owner, and the tensors of one pass that are alive at once."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.core.schemas import ELEMENT_BYTES, Precision


@dataclass(frozen=True)
class Parameters:
    """Elements of a module's parameters; by_type: by the class of the module that owns them."""

    total: int
    trainable: int
    by_type: Mapping[str, int]


def parameters_of(module: nn.Module) -> Parameters:
    """Count each parameter once, for the first module that owns it."""
    by_type: Counter[str] = Counter()
    seen: set[int] = set()
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                by_type[type(part).__name__] += parameter.numel()
    trainable = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
    return Parameters(sum(by_type.values()), trainable, dict(by_type.most_common()))


def weight_bytes(module: nn.Module) -> dict[Precision, int]:
    """Bytes of parameters and buffers by the precision that their floats are held in."""
    tensors = [*module.parameters(), *module.buffers()]
    floats = sum(tensor.numel() for tensor in tensors if tensor.is_floating_point())
    others = sum(tensor.nbytes for tensor in tensors if not tensor.is_floating_point())
    return {precision: floats * element + others for precision, element in ELEMENT_BYTES.items()}


def live_bytes(module: nn.Module, arguments: Sequence[torch.Tensor], precision: Precision) -> int | None:
    """Most bytes of tensors made by one pass that are alive at the same time, floats in `precision`; None for int8.

    Runs the module once, operator by operator. Weights and inputs are not counted; the memory that an operator uses
    internally is not seen.
    """
    element = ELEMENT_BYTES.get(precision)
    if element is None:
        return None
    watch = _Alive([*module.parameters(), *module.buffers(), *arguments], element)
    with torch.no_grad(), watch:
        module(*arguments)
    return watch.peak


class _Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the storages that operators make, until Python lets go of them."""

    def __init__(self, known: Sequence[torch.Tensor], element_bytes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._live = 0
        self._element_bytes = element_bytes
        self._seen = {tensor.untyped_storage()._cdata for tensor in known}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator and look at its results."""
        answer = func(*args, **(kwargs or {}))
        for made in tree_leaves(answer):
            if isinstance(made, torch.Tensor):
                self._add(made)
        self.peak = max(self.peak, self._live)
        return answer

    def _add(self, made: torch.Tensor) -> None:
        storage = made.untyped_storage()
        key = storage._cdata
        if key in self._seen:
            return
        size = storage.nbytes()
        if made.is_floating_point():
            size = math.ceil(size / made.element_size()) * self._element_bytes
        self._seen.add(key)
        self._live += size
        weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self._live -= size
