"""The profiled model: its name for the configuration, and the batch that the caller passed, if any."""

from __future__ import annotations

import copy
import hashlib
import io
import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from harness.core.errors import MissingInputError, UsageError, reason
from harness.core.layout import Models
from harness.core.store import save_bytes
from harness.core.text import unknown_name
from harness.zoo import MODELS, model_info
from harness.zoo.input_files import write_arrays
from harness.zoo.sources import is_model_file, refuse_other_files, require_files, with_prefix

if TYPE_CHECKING:
    import torch
    from torch import nn

    Model = str | os.PathLike[str] | nn.Module
    Values = torch.Tensor | NDArray[np.generic]
    InputData = Values | Sequence[Values] | Mapping[str, Values]
    """Tensors or arrays, in the order or by the names of the model's inputs; the first axis of each is the batch. For a
    module also in lists, tuples and dictionaries, beside values that are no tensors."""

Given = dict[str, NDArray[np.generic]]
"""A batch by the names of forward's parameters, in their order; the first axis of each is the sample."""
DIGITS = 16
"""Digits of the sha256 in the name of a model that the caller passed."""


def is_module(model: object) -> TypeGuard[nn.Module]:
    """Whether this is an nn.Module, without importing torch: a caller with a module has imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def hand_over(module: nn.Module, given: Given, models: Models) -> str:
    """Write the module, moved to the CPU, with its inputs; returns its name, `pickle:<class>-<digits>`.

    Raises UsageError where it cannot be pickled.
    """
    on_gpu = any(tensor.is_cuda for tensor in (*module.parameters(), *module.buffers()))
    try:
        content = cloudpickle.dumps((copy.deepcopy(module).cpu() if on_gpu else module, given))
    except Exception as error:  # any error of the module's own parts
        raise UsageError(
            f"{type(module).__name__} cannot be handed to another process: {type(error).__name__}: {error}",
            "Write a function that builds it, and profile that by name: `module:<python path>:<function>`.",
        ) from error
    label = re.sub(r"\W", "_", type(module).__name__, flags=re.ASCII).lstrip("0123456789")[:40] or "Module"
    name = f"{label}-{hashlib.sha256(content).hexdigest()[:DIGITS]}"
    save_bytes(models.folder(f"pickle-{name}").pickled, content)
    return f"pickle:{name}"


def module_and_arrays(module: nn.Module, data: Any) -> tuple[nn.Module, Given]:
    """The module and its inputs as arrays by name; for inputs in lists or dictionaries, or by keyword, a module around
    it that takes tensors alone.

    Raises ConfigError where forward does not take them, and UsageError as module_arrays() does.
    """
    import torch  # noqa: PLC0415 - only a module needs it
    from torch.utils._pytree import tree_leaves  # noqa: PLC0415

    from harness.zoo.families.arguments import FIXED, from_tensors, parameters_of  # noqa: PLC0415

    known = parameters_of(module)
    leaves = [leaf for leaf in tree_leaves(data) if not isinstance(leaf, FIXED)]
    are_tensors = bool(leaves) and all(isinstance(leaf, torch.Tensor | np.ndarray) for leaf in leaves)
    in_parts = isinstance(data, tuple | list) or (isinstance(data, Mapping) and set(data) <= set(known))
    if not (known and are_tensors and in_parts):
        return module, module_arrays(module, data)
    taking, tensors = from_tensors(type(module).__name__, module, data)
    return taking, _batch(tuple(tensors), tuple(tensors.values()))


def module_arrays(module: nn.Module, data: Any) -> Given:
    """One or several tensors, in the order of forward's parameters or by their names, as arrays; floats in float32.

    Raises UsageError for a name that forward does not have, and for data that are no tensors with a common batch axis.
    """
    from harness.zoo.families.arguments import input_names  # noqa: PLC0415 - imports torch, which only a module needs

    if isinstance(data, Mapping):
        names = input_names(module, len(data))
        for name in data:
            if name not in names:
                problem, hint = unknown_name("input of forward", str(name), names)
                raise UsageError(problem, f"{hint} {_WRAPPED}")
        values = [data[name] for name in names]
    else:
        values = list(data) if isinstance(data, tuple | list) else [data]
        names = input_names(module, len(values))
    return _batch(names, values)


def _batch(names: Sequence[str], values: Sequence[Any]) -> Given:
    arrays = [_array(value) for value in values]
    counts = {name: len(array) for name, array in zip(names, arrays, strict=True) if array.ndim}
    if len(set(counts.values())) != 1:
        sizes = ", ".join(f"`{name}` {count}" for name, count in counts.items())
        raise UsageError(
            f"The inputs have no batch axis in common{f': {sizes}' if sizes else ''}.",
            "Give tensors whose first axis is the batch, equally long; only a scalar is shared by all samples.",
        )
    if not next(iter(counts.values())):
        raise UsageError("The inputs contain no sample.", "Give a batch of at least one.")
    return dict(zip(names, arrays, strict=True))


def named_arrays(data: Any) -> Given:
    """Arrays by the given names, or numbered as numpy.savez does: arr_0, arr_1, …"""
    if isinstance(data, Mapping):
        return {str(name): _array(value) for name, value in data.items()}
    values = list(data) if isinstance(data, tuple | list) else [data]
    return {f"arr_{index}": _array(value) for index, value in enumerate(values)}


def hand_over_inputs(given: Given, models: Models) -> Path:
    """Write a caller's inputs where the stages read them; the name follows from the content."""
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
            value = (value.float() if value.is_floating_point() else value.resolve_conj()).numpy()
        except (TypeError, RuntimeError) as error:  # a sparse tensor, or one on `meta`, which holds no numbers
            raise UsageError(f"An input cannot be read: {reason(error)}", "Give dense tensors of numbers.") from error
    array = np.asarray(value)
    if array.dtype == object:
        raise UsageError(f"An input is a {type(value).__name__}.", "Give tensors, the first axis the batch.")
    return array.astype(np.float32) if np.issubdtype(array.dtype, np.floating) else np.array(array)


_WRAPPED = (
    "A forward that takes a dictionary or a list needs a module around it: "
    "`forward(self, x, y): return self.net({'x': x, 'y': y})`."
)

MIN_SAMPLES, MAX_SAMPLES = 8, 256
"""Different inputs of a plan: measurement.parity_samples is at least 8; at most 256 of a caller's inputs are read."""
_SEED = 20261127


@dataclass(frozen=True)
class Subject:
    """A model to profile. label: for people and folders. name: for the configuration. samples: number of different
    inputs from the caller; None where the model has its own inputs. inputs: files of a caller's inputs for a named
    model."""

    label: str
    name: str
    batch_size: int | None = None
    samples: int | None = None
    inputs: tuple[str, ...] = ()


def subject_of(
    model: Model, input_data: InputData | None, input_shape: Sequence[int] | None, models: Models
) -> Subject:
    """Name a model, or write a module and its inputs below the models folder.

    Raises ConfigError for an unknown name, MissingInputError for a path that does not exist, and UsageError for invalid
    inputs, a module without inputs, and an object that is no model.
    """
    if not is_module(model) and not isinstance(model, str | os.PathLike):
        raise UsageError(
            f"{textwrap.shorten(repr(model), 80, placeholder=' …')} is no model.",
            "It holds weights alone: give the module that loaded them (`module.load_state_dict(…)`)."
            if isinstance(model, Mapping)
            else "Give a name, a path, or an instance of nn.Module: `Net()` and not `Net`.",
        )
    if not is_module(model):
        if input_shape is not None:
            raise UsageError(
                f"{model} has inputs of its own; input_shape is for an nn.Module.",
                "Leave it out, or give input_data: arrays by the model's input names, the first axis the sample.",
            )
        name = _name(model)
        label = model_info(name).slug
        return Subject(label, name) if input_data is None else _subject_with_data(label, name, input_data, models)
    if input_data is None and input_shape is None:
        raise UsageError(
            f"Cannot infer input shapes for {type(model).__name__}.",
            "Pass input_data, a batch of real inputs, or input_shape, for example (1, 3, 224, 224).",
        )
    taking, given = module_and_arrays(model, _numbers(input_shape or ()) if input_data is None else input_data)
    count = next(len(values) for values in given.values() if values.ndim)
    batch_size = count if input_data is not None or not input_shape else input_shape[0]
    given = _first_samples(given)
    return Subject(
        type(model).__name__,
        hand_over(taking, given, models),
        batch_size,
        max(MIN_SAMPLES, min(count, MAX_SAMPLES)),
    )


def _subject_with_data(label: str, name: str, input_data: InputData, models: Models) -> Subject:
    """A named model, with the caller's samples in a file below the models folder."""
    given = _first_samples(named_arrays(input_data))
    counts = [len(values) for values in given.values() if values.ndim]
    if not counts or not counts[0]:
        raise UsageError("The inputs contain no sample.", "Give a batch of at least one, the first axis the sample.")
    return Subject(
        label, name, counts[0], max(MIN_SAMPLES, min(counts[0], MAX_SAMPLES)), (str(hand_over_inputs(given, models)),)
    )


def _first_samples(given: Given) -> Given:
    """The first samples, up to the limit; a scalar, which all samples share, is unchanged."""
    return {name: values[:MAX_SAMPLES] if values.ndim else values for name, values in given.items()}


def _name(model: Any) -> str:
    """A model of the table, or a path: an ONNX file, a saved program, or a folder saved by save_pretrained."""
    path = Path(model)
    if str(model) in MODELS:
        return str(model)
    if is_model_file(path):
        name = with_prefix(str(model))
        require_files(name)
        return name
    if path.is_dir() and str(model):
        return f"hf:{path.resolve()}"
    refuse_other_files(path)
    if isinstance(model, os.PathLike) or (os.sep in model and ":" not in model):
        raise MissingInputError(
            f"{path} is no folder, no ONNX file and no saved program.",
            "Give the path of a folder saved by save_pretrained, of a `.onnx` or a `.pt2` file, or `hf:<hub id>`.",
        )
    return str(model)


def _numbers(shape: Sequence[int]) -> NDArray[np.float32]:
    """Seeded normal numbers, at least eight samples: (samples, …), float32."""
    if (
        not isinstance(shape, Sequence)
        or not shape
        or any(not isinstance(length, int) or length < 1 for length in shape)
    ):
        raise UsageError(f"input_shape {shape!r} is no shape.", "The batch first, for example (1, 3, 224, 224).")
    values = np.random.default_rng(_SEED).standard_normal((max(MIN_SAMPLES, shape[0]), *shape[1:]))
    return values.astype(np.float32)
