"""Checks of a model's reference, made before any exporter or backend is blamed for an error of the model itself.

A reference must give the same answer twice, numbers that can be compared, one answer for each sample, and the same
answer whatever else is in the batch. Each is checked here with a few samples; the error names the output that fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import nn

from harness.core.errors import ExportError
from harness.core.schemas import Parity
from harness.zoo.loaded import Arrays, Loaded, batch_first
from harness.zoo.onnx.external_data import all_nodes
from harness.zoo.reference import Answer

Compare = Callable[[Arrays, Arrays, bool], Parity]

SAMPLES = 3
"""Size of the batch for these checks. Not 2: many fixed axes have that extent."""

_LIMITS: Mapping[str, float] = {"float16": 2e-2}
_LIMIT = 1e-4
"""Largest relative L2 of two equal answers, in half precision and otherwise: the same limits as for exported files."""
_LIMIT_QUANTISED = 1e-1
"""The limit for a file whose scales are computed while running, over the whole batch."""

_RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)


def diagnosed(name: str, loaded: Loaded, answer: Answer, inputs: Arrays, compare: Compare) -> dict[str, int]:
    """The axis of each output that is the batch. `answer`: the reference, its outputs as the model gives them.

    Raises ExportError where an output cannot be compared, differs from call to call, has no batch axis, or depends on
    the other samples of its batch.
    """
    count = loaded.fixed_batch or SAMPLES
    samples = {key: values[:count] for key, values in inputs.items()}
    first = answer(samples)
    check_comparable(name, first)
    _check_repeats(name, loaded, answer, samples, first, compare)
    if loaded.fixed_batch is not None:
        return {key: _only_axis(name, key, values, count) for key, values in first.items()}
    alone = [answer({key: values[place : place + 1] for key, values in samples.items()}) for place in range(SAMPLES)]
    axes = {key: _batch_axis(name, key, alone[0][key].shape, first[key].shape) for key in first}
    together = batch_first(first, axes)
    for place, sample in enumerate(alone):
        beside = {key: values[place : place + 1] for key, values in together.items()}
        _check_apart(name, loaded, batch_first(sample, axes), beside, compare)
    return axes


def check_comparable(name: str, outputs: Arrays) -> None:
    """Raise ExportError for an output that is not real numbers, holds NaN, or nothing but infinities.

    Some infinities are right: a mask of logits. They are equal where both sides have them (statistics/parity.py).
    """
    for key, values in outputs.items():
        if values.dtype.kind not in "biuf":
            raise ExportError(
                f"Output `{key}` of {name} is of type {values.dtype}: only real numbers can be compared.",
                "Return real numbers: of complex ones the real and the imaginary part, of text its ids.",
            )
        nans = int(np.count_nonzero(np.isnan(values))) if values.dtype.kind == "f" else 0
        if nans:
            raise ExportError(
                f"Output `{key}` of {name} is NaN in {nans:,} of {values.size:,} values of the reference itself: "
                "nothing can be compared with it.",
                "Look for 0/0, inf - inf or the logarithm of a negative number in it, and at the inputs that it gets.",
            )
        if values.size and values.dtype.kind == "f" and not np.isfinite(values).any():
            raise ExportError(
                f"Output `{key}` of {name} holds no finite value: nothing can be compared with it.",
                "Look for a division by zero or an overflow in it, and at the inputs that it gets.",
            )


def _check_repeats(name: str, loaded: Loaded, answer: Answer, samples: Arrays, first: Arrays, compare: Compare) -> None:
    difference = _difference(loaded, answer(samples), first, compare)
    if difference is None:
        return
    seeded = [_seeded(answer, samples) for _ in range(2)]
    # ONNX Runtime has a generator of its own, and a file has no other state.
    draws = loaded.onnx_file is not None or _difference(loaded, seeded[1], seeded[0], compare) is None
    cause = "draws random numbers" if draws else "keeps a state from one call to the next"
    hint = "Draw them outside and give them as an input, or leave them out where it answers (dropout: training=False)."
    if not draws:
        hint = "Give the state as an input and return the new one, or set it back at the beginning of forward."
    raise ExportError(
        f"{name} {cause}: asked twice with the same inputs, {difference}, so that no backend can be compared with it.",
        f"{_culprits(loaded)}{hint}",
    )


def _check_apart(name: str, loaded: Loaded, alone: Arrays, together: Arrays, compare: Compare) -> None:
    """alone, together: the answer to one sample by itself, and in its batch."""
    difference = _difference(loaded, alone, together, compare)
    if difference is None:
        return
    raise ExportError(
        f"The answer of {name} to a sample depends on the rest of its batch, or on its place in it: alone and beside "
        f"{SAMPLES - 1} others {difference}.",
        f"{_culprits(loaded)}Let each sample have its own answer: no statistics over the batch (BatchNorm in training "
        "mode, a mean over axis 0).",
    )


def _difference(loaded: Loaded, outputs: Arrays, reference: Arrays, compare: Compare) -> str | None:
    """The first output that differs, in words; None where none does."""
    for key, values in reference.items():
        if outputs[key].shape != values.shape:
            return f"output `{key}` has shape {outputs[key].shape} and {values.shape}"
        if values.dtype.kind == "f" and np.isnan(values).any():
            return f"output `{key}` is NaN in one of them"
        parity = compare({key: np.atleast_1d(outputs[key])}, {key: np.atleast_1d(values)}, False)
        if parity.relative_l2 is None:
            return f"output `{key}` has {parity.nonfinite} infinities or NaN in other places"
        limit = _LIMITS.get(str(values.dtype), _LIMIT)
        if parity.relative_l2 > (limit if loaded.quantised is None else _LIMIT_QUANTISED):
            return f"output `{key}` differs by {parity.relative_l2:.1e} (relative L2)"
    return None


def _seeded(answer: Answer, samples: Arrays) -> Arrays:
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    return answer(samples)


def _culprits(loaded: Loaded) -> str:
    """A sentence on the parts of the model that are known to cause such answers; empty where there are none."""
    if loaded.onnx_file is not None:
        random_nodes = _random_nodes(loaded.onnx_file)
        return f"In the file: {', '.join(random_nodes)}. " if random_nodes else ""
    module = loaded.require_module()
    training = [f"`{path}` ({type(part).__name__})" for path, part in module.named_modules() if _trains(path, part)]
    return f"In training mode: {', '.join(training[:5])}. " if training else ""


def _trains(path: str, part: nn.Module) -> bool:
    return bool(path) and part.training and not any(part.children())


def _random_nodes(path: Path) -> list[str]:
    nodes = all_nodes(onnx.load(path, load_external_data=False))
    drawing = [node.op_type for node in nodes if node.op_type in _RANDOM]
    training = [
        f"{node.op_type} in training mode"
        for node in nodes
        if (node.op_type == "Dropout" and len(node.input) > 2 and node.input[2])
        or any(entry.name == "training_mode" and entry.i for entry in node.attribute)
    ]
    return sorted({*drawing, *training})


def _batch_axis(name: str, key: str, alone: tuple[int, ...], together: tuple[int, ...]) -> int:
    if len(alone) == len(together):
        axes = [axis for axis, extents in enumerate(zip(alone, together, strict=True)) if extents == (1, SAMPLES)]
        if axes:
            return axes[0]
    raise ExportError(
        f"Output `{key}` of {name} has no batch axis: its shape is {alone} for 1 sample and {together} for {SAMPLES}.",
        f"Return one answer a sample, the first axis the batch, or leave `{key}` out of what it returns.",
    )


def _only_axis(name: str, key: str, values: NDArray[np.generic], count: int) -> int:
    if count in values.shape:
        return values.shape.index(count)
    raise ExportError(
        f"Output `{key}` of {name} has no batch axis: its shape is {values.shape} for its fixed batch of {count}.",
        f"Leave `{key}` out of the file's outputs, or give it one answer a sample.",
    )
