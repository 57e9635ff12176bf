"""A caller's module into the processes of the stages: a file below models/ that zoo/pickled_module.py reads back.

The very class goes over, also one that was defined in a notebook: cloudpickle takes classes of `__main__` along.
Reading such a file runs code. Only this module writes one, and its name in a configuration carries its sha256.
"""

from __future__ import annotations

import copy
import hashlib
import io
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.core.extensions import reason
from harness.core.layout import Models
from harness.core.names import unknown_name
from harness.core.store import save_bytes
from harness.zoo.stored import write_arrays

if TYPE_CHECKING:
    from torch import nn

Given = dict[str, NDArray[np.generic]]
"""A batch by the names of forward's parameters, in their order; the first axis of each is the item."""
DIGITS = 16
"""Of the sha256, in the name of a model that was handed over."""


def is_module(model: object) -> TypeGuard[nn.Module]:
    """Whether this is an nn.Module, asked without importing torch: who made one has."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def hand_over(module: nn.Module, given: Given, models: Models) -> str:
    """Write the module, on the CPU, with its inputs; returns its name, `pickle:<class>-<digits>`.

    Raises UsageError where it does not pickle.
    """
    on_gpu = any(tensor.is_cuda for tensor in (*module.parameters(), *module.buffers()))
    try:
        content = cloudpickle.dumps((copy.deepcopy(module).cpu() if on_gpu else module, given))
    except Exception as error:  # whatever the module's own parts raise
        raise UsageError(
            f"{type(module).__name__} cannot be handed to another process: {type(error).__name__}: {error}",
            "Write a function that builds it, and profile that by name: `module:<python path>:<function>`.",
        ) from error
    label = re.sub(r"\W", "_", type(module).__name__, flags=re.ASCII).lstrip("0123456789")[:40] or "Module"
    name = f"{label}-{hashlib.sha256(content).hexdigest()[:DIGITS]}"
    save_bytes(models.folder(f"pickle-{name}").pickled, content)
    return f"pickle:{name}"


def arrays_of(module: nn.Module, data: Any) -> Given:
    """A tensor, several in the order of forward's parameters or by their names, as arrays; floats in float32.

    Raises UsageError for a name that forward does not have, and for what is no tensor with a common batch axis.
    """
    from harness.zoo.own_module import WRAPPED, input_names  # noqa: PLC0415 - imports torch, which only a module needs

    if isinstance(data, Mapping):
        names = input_names(module, len(data))
        for name in data:
            if name not in names:
                problem, hint = unknown_name("input of forward", str(name), names)
                raise UsageError(problem, f"{hint} {WRAPPED}")
        values = [data[name] for name in names]
    else:
        values = list(data) if isinstance(data, tuple | list) else [data]
        names = input_names(module, len(values))
    arrays = [_array(value) for value in values]
    counts = {name: len(array) for name, array in zip(names, arrays, strict=True) if array.ndim}
    if len(set(counts.values())) != 1:
        said = ", ".join(f"`{name}` {count}" for name, count in counts.items())
        raise UsageError(
            f"The inputs have no batch axis in common{f': {said}' if said else ''}.",
            "Give tensors whose first axis is the batch, equally long; only a scalar is shared by all items.",
        )
    if not next(iter(counts.values())):
        raise UsageError("The inputs contain no sample.", "Give a batch of at least one.")
    return dict(zip(names, arrays, strict=True))


def arrays_by_name(data: Any) -> Given:
    """Arrays by the names that are given, or by their order as numpy.savez names them: arr_0, arr_1, …"""
    if isinstance(data, Mapping):
        return {str(name): _array(value) for name, value in data.items()}
    values = list(data) if isinstance(data, tuple | list) else [data]
    return {f"arr_{index}": _array(value) for index, value in enumerate(values)}


def hand_over_inputs(given: Given, models: Models) -> Path:
    """Write a caller's inputs where the stages find them; the name follows from what they hold."""
    content = io.BytesIO()
    write_arrays(content, given)
    digits = hashlib.sha256(content.getvalue()).hexdigest()[:DIGITS]
    path = models.root / f"inputs-{digits}.npz"
    save_bytes(path, content.getvalue())
    return path.resolve()


def _array(value: Any) -> NDArray[np.generic]:
    if hasattr(value, "detach"):
        try:
            value = value.detach().cpu()
            value = (value.float() if value.is_floating_point() else value).numpy()
        except (TypeError, RuntimeError) as error:  # a sparse tensor, or one on `meta`, which holds no numbers
            raise UsageError(f"An input cannot be read: {reason(error)}", "Give dense tensors of numbers.") from error
    array = np.asarray(value)
    if array.dtype == object:
        raise UsageError(f"An input is a {type(value).__name__}.", "Give tensors, the first axis the batch.")
    return array.astype(np.float32) if np.issubdtype(array.dtype, np.floating) else np.array(array)
