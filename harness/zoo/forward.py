"""One forward pass of a module for the export, whoever wrote the module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten_with_path, tree_leaves

from harness.core.errors import ConfigError
from harness.core.extensions import reason


def forward(module: nn.Module, arguments: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The outputs of a module, one after the other. Raises ConfigError where its forward raises."""
    return flat(call(module, arguments))


def call(module: nn.Module, arguments: Sequence[torch.Tensor]) -> Any:
    """What a module answers, as it answers. Raises ConfigError where its forward raises."""
    try:
        return module(*arguments)
    except (Exception, SystemExit) as error:  # whatever the module's own code raises
        given = ", ".join(f"{str(one.dtype).removeprefix('torch.')}{list(one.shape)}" for one in arguments)
        raise ConfigError(
            f"The forward of {type(module).__name__} raised {reason(error)} (its inputs: {given}).",
            "Call the module with inputs of these shapes: it must take a batch of any size, in fp32 on the CPU.",
        ) from error


def flat(answer: Any) -> tuple[Any, ...]:
    """The tensors of an answer in the order of torch.export: of a dictionary, a tuple of tuples, what a library
    registered with PyTorch. None is no output."""
    if isinstance(answer, torch.Tensor):
        return (answer,)
    return tuple(leaf for leaf in tree_leaves(answer) if leaf is not None)


def output_names(answer: Any) -> tuple[str, ...]:
    """What the tensors of flat() are called: by their keys, or `output_<place>`."""
    found = [path for path, leaf in tree_flatten_with_path(answer)[0] if leaf is not None]
    if found == [()]:
        return ("output",)
    words = ["_".join(_word(key) for key in path) for path in found]
    names = [f"output_{word}" if word[:1].isdigit() else word for word in words]
    return tuple(names) if len(names) > 1 or not isinstance(answer, tuple | list) else ("output",)


def _word(key: Any) -> str:
    return next(str(getattr(key, name)) for name in ("key", "idx", "name") if hasattr(key, name))


def is_plain(answer: Any) -> bool:
    """Whether it is a tensor or a tuple of tensors, which everything takes."""
    parts = answer if isinstance(answer, tuple) else (answer,)
    return all(isinstance(part, torch.Tensor) for part in parts)


class Flat(nn.Module):
    """A module whose answer is a tuple of tensors, for what takes no other."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        """The module's answer, flat."""
        return flat(self.module(*inputs))
