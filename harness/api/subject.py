"""What is profiled: a model's name for the configuration, and the batch that the caller handed over, if any."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.api.handover import Given, arrays_by_name, arrays_of, hand_over, hand_over_inputs, is_module
from harness.core.errors import MissingInputError, UsageError
from harness.core.layout import Models
from harness.zoo import MODELS, model_info
from harness.zoo.sources import is_model_file, require_files, with_prefix

if TYPE_CHECKING:
    import torch
    from torch import nn

    Model = str | os.PathLike[str] | nn.Module
    Values = torch.Tensor | NDArray[np.generic]
    InputData = Values | Sequence[Values] | Mapping[str, Values]
    """Tensors or arrays in the order, or by the names, of the model's inputs; the first axis of each is the batch."""

LEAST_ITEMS, MOST_ITEMS = 8, 256
"""Different inputs of a plan: measurement.parity_samples takes at least 8; more than 256 of a caller's are not read."""
_SEED = 20261127


@dataclass(frozen=True)
class Subject:
    """label: for people and folders. name: for the configuration. items: how many of the inputs are different ones that
    a caller gave; None where the model has inputs of its own. inputs: files of those of a model that has a name."""

    label: str
    name: str
    batch_size: int | None = None
    items: int | None = None
    inputs: tuple[str, ...] = ()


def subject_of(
    model: Model, input_data: InputData | None, input_shape: Sequence[int] | None, models: Models
) -> Subject:
    """Name a model, or write a module and its inputs below the models folder.

    Raises ConfigError for an unknown name, MissingInputError for a path where nothing is, and UsageError for inputs
    that cannot be, a module without any, and what is no model.
    """
    if not is_module(model) and not isinstance(model, str | os.PathLike):
        raise UsageError(
            f"{model!r} is no model.", "Give a name, a path, or an instance of nn.Module: `Net()` and not `Net`."
        )
    if not is_module(model):
        if input_shape is not None:
            raise UsageError(
                f"{model} has inputs of its own; input_shape is for an nn.Module.",
                "Leave it out, or give input_data: arrays by the model's input names, the first axis the item.",
            )
        name = _name(model)
        label = model_info(name).slug
        return Subject(label, name) if input_data is None else _with_data(label, name, input_data, models)
    if input_data is None and input_shape is None:
        raise UsageError(
            f"Cannot infer input shapes for {type(model).__name__}.",
            "Pass input_data, a batch of real inputs, or input_shape, for example (1, 3, 224, 224).",
        )
    given = arrays_of(model, _numbers(input_shape or ()) if input_data is None else input_data)
    count = next(len(values) for values in given.values() if values.ndim)
    batch_size = count if input_data is not None or not input_shape else input_shape[0]
    given = _at_most(given)
    return Subject(
        type(model).__name__,
        hand_over(model, given, models),
        batch_size,
        max(LEAST_ITEMS, min(count, MOST_ITEMS)),
    )


def _with_data(label: str, name: str, input_data: InputData, models: Models) -> Subject:
    """A model that has a name, with the caller's items in a file below the models folder."""
    given = _at_most(arrays_by_name(input_data))
    counts = [len(values) for values in given.values() if values.ndim]
    if not counts or not counts[0]:
        raise UsageError("The inputs contain no sample.", "Give a batch of at least one, the first axis the item.")
    return Subject(
        label, name, counts[0], max(LEAST_ITEMS, min(counts[0], MOST_ITEMS)), (str(hand_over_inputs(given, models)),)
    )


def _at_most(given: Given) -> Given:
    """The first items; a scalar, which all share, as it is."""
    return {name: values[:MOST_ITEMS] if values.ndim else values for name, values in given.items()}


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
    if path.suffix in (".pt", ".pth", ".bin", ".pkl"):
        raise UsageError(
            f"{model} is a pickle, which is not loaded unseen.",
            "Build the module, load its weights (torch.load with weights_only=True) and give the module.",
        )
    if isinstance(model, os.PathLike) or (os.sep in model and ":" not in model):
        raise MissingInputError(
            f"{path} is no folder, no ONNX file and no saved program.",
            "Give the path of a folder saved by save_pretrained, of a `.onnx` or a `.pt2` file, or `hf:<hub id>`.",
        )
    return str(model)


def _numbers(shape: Sequence[int]) -> NDArray[np.float32]:
    """Seeded normal numbers, eight items at least: (items, …), float32."""
    if not isinstance(shape, Sequence) or not shape or any(not isinstance(one, int) or one < 1 for one in shape):
        raise UsageError(f"input_shape {shape!r} is no shape.", "The batch first, for example (1, 3, 224, 224).")
    values = np.random.default_rng(_SEED).standard_normal((max(LEAST_ITEMS, shape[0]), *shape[1:]))
    return values.astype(np.float32)
