"""Arguments of any form as tensors by name: in dictionaries and tuples, by keyword, or beside values that are none."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_flatten_with_path, tree_unflatten

from harness.core.errors import ConfigError

FIXED = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


class FromTensors(nn.Module):
    """A module whose forward takes tensors alone, which it puts into their places among fixed values."""

    def __init__(self, module: nn.Module, leaves: list[Any], form: TreeSpec) -> None:
        super().__init__()
        self.module = module
        self.is_tensor = tuple(isinstance(leaf, torch.Tensor) for leaf in leaves)
        self.fixed = tuple(None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
        self._form = form

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The module's answer."""
        tensors = iter(inputs)
        places = zip(self.is_tensor, self.fixed, strict=True)
        arguments, keywords = tree_unflatten([next(tensors) if own else value for own, value in places], self._form)
        return self.module(*arguments, **keywords)


def from_tensors(name: str, module: nn.Module, examples: Any) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The module itself, or a FromTensors around it, and the example tensors in the order of its arguments.

    examples: a tensor, a tuple of arguments, or arguments by the names of forward's parameters. Arrays count as
    tensors. Names are those of parameters; where one holds several tensors, with their places: `state_0`, `batch_ids`.

    Raises ConfigError where forward does not take them, and for an argument that can be neither given nor kept.
    """
    given = examples if isinstance(examples, tuple | list | Mapping) else (examples,)
    if not isinstance(given, Mapping) and all(isinstance(value, torch.Tensor) for value in given):
        if parameters_of(module):
            _bound(name, module, given)
        return module, dict(zip(input_names(module, len(given)), given, strict=True))
    bound = _bound(name, module, given)
    leaves, form = tree_flatten((bound.args, bound.kwargs))
    leaves = [torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
    names = _names(bound, module)
    for path, leaf in zip(names, leaves, strict=True):
        if not isinstance(leaf, (torch.Tensor, *FIXED)):
            raise ConfigError(
                f"Input `{path}` of {name} is a {type(leaf).__name__}, and no tensor.",
                "Give tensors, alone or in tuples and dictionaries; numbers and text are the same in every call.",
            )
    tensors = {path: leaf for path, leaf in zip(names, leaves, strict=True) if isinstance(leaf, torch.Tensor)}
    plain = not bound.kwargs and all(isinstance(value, (torch.Tensor, np.ndarray)) for value in bound.args)
    return (module if plain else FromTensors(module, leaves, form)), tensors


def input_names(module: nn.Module, count: int) -> tuple[str, ...]:
    """The names of forward's parameters where they can be read, else input_0, input_1, …"""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters_of(module).values() if p.kind in positional]
    return tuple(names[:count]) if len(names) >= count else tuple(f"input_{index}" for index in range(count))


def parameters_of(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    """The parameters of forward; empty where they cannot be read, as for a module that torch.jit.trace made."""
    try:
        return inspect.signature(module.forward).parameters
    except ValueError:
        return {}


def _bound(name: str, module: nn.Module, given: Any) -> inspect.BoundArguments:
    signature = inspect.signature(module.forward)
    try:
        return signature.bind(**given) if isinstance(given, Mapping) else signature.bind(*given)
    except TypeError as error:
        named = isinstance(given, Mapping)
        what = f"by the names {', '.join(map(str, given))}" if named else f"{len(given)} by place"
        hint = "Give a tuple with an entry for each parameter; for one that takes a list: `([tensor, …],)`."
        if any(parameter.kind == inspect.Parameter.KEYWORD_ONLY for parameter in signature.parameters.values()):
            hint = "Give a dictionary by the names of forward's parameters: it takes some by keyword only."
        if named:
            hint = "Use the names of forward's parameters."
        takes = ", ".join(signature.parameters) or "none"
        raise ConfigError(f"{name} has inputs {what}; its forward takes {takes} ({error}).", hint) from error


def _names(bound: inspect.BoundArguments, module: nn.Module) -> list[str]:
    """A name for each leaf of (args, kwargs), which are in the order of the parameters."""
    kinds = {name: parameter.kind for name, parameter in inspect.signature(module.forward).parameters.items()}
    values: list[tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        values += value.items() if kinds[name] == inspect.Parameter.VAR_KEYWORD else [(name, value)]
    paths = [(name, *map(key_text, path)) for name, value in values for path, _ in tree_flatten_with_path(value)[0]]
    names = ["_".join(path) for path in paths]
    return names if len(set(names)) == len(names) else [f"input_{index}" for index in range(len(names))]


def key_text(key: Any) -> str:
    """The key, place or attribute of a step of a path of PyTorch's tree_flatten_with_path."""
    return next(str(getattr(key, name)) for name in ("key", "idx", "name") if hasattr(key, name))
