"""A user's own module: `module:<python path>:<function>`, a function that returns (nn.Module, example inputs)."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parameter import is_lazy

from harness.core.errors import ConfigError
from harness.core.extensions import reason
from harness.zoo import ModelInfo
from harness.zoo.build import frozen
from harness.zoo.forward import forward
from harness.zoo.loaded import Arrays, Inputs, Loaded, Request

_FORM = "It must return (nn.Module, (tensor, …)): a module and its example inputs, first axis the batch."


_NOT_IN_NUMPY = (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


def load(request: Request) -> Loaded:
    """The user's module. Raises ConfigError where the function is not there or returns something else."""
    torch.manual_seed(request.seed)
    module, examples = _call(request.info)
    names = input_names(module, len(examples))
    return loaded(request.info, module, examples, names, functools.partial(_inputs, names, examples))


def loaded(
    info: ModelInfo,
    module: nn.Module,
    examples: tuple[torch.Tensor, ...],
    names: tuple[str, ...],
    make_inputs: Callable[[int, int | None], Inputs],
) -> Loaded:
    """A module of unknown make, asked once with its examples. Raises ConfigError where it answers no tensors."""
    given = [example.clone() for example in examples]
    with torch.inference_mode():
        outputs = forward(frozen(initialised(module, examples)), given)
    if not all(isinstance(output, torch.Tensor) for output in outputs):
        what = ", ".join(dict.fromkeys(type(one).__name__ for one in outputs if not isinstance(one, torch.Tensor)))
        raise ConfigError(
            f"{info.name} does not answer with tensors but with {what}.", "Return a tensor or a tuple of tensors."
        )
    narrow = next((output.dtype for output in outputs if output.dtype in _NOT_IN_NUMPY), None)
    if narrow is not None:
        word = str(narrow).removeprefix("torch.")
        raise ConfigError(
            f"{info.name} answers in {word}, which NumPy lacks and no ONNX backend hands over.",
            "Return floats: `.float()`. What it computes in is for PRECISIONS to say.",
        )
    return Loaded(
        module=module,
        weight_source=info.weight_source,
        classifier=False,
        input_names=names,
        output_names=tuple(f"output_{index}" for index in range(len(outputs))) if len(outputs) > 1 else ("output",),
        make_inputs=make_inputs,
        written_inputs=tuple(
            name for name, one, other in zip(names, given, examples, strict=True) if not _same(one, other)
        ),
    )


def initialised(module: nn.Module, examples: Sequence[torch.Tensor]) -> nn.Module:
    """The module itself, after one pass where it has lazy layers, whose weights get their shapes from the inputs."""
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        with torch.no_grad():
            forward(module.eval(), [example.clone() for example in examples])
    return module


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.numpy().tobytes() == other.numpy().tobytes()


def architecture(info: ModelInfo, folder: Path) -> nn.Module:
    """The module as the function builds it; its weights are loaded over."""
    del folder
    return initialised(*_call(info))


def _call(info: ModelInfo) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    path, _, name = info.reference.partition(":")
    try:
        module = importlib.import_module(path)
    except ImportError as error:
        raise ConfigError(
            f"{info.name} cannot be imported: {error}.", f"Run from the folder that holds {path}, or install it."
        ) from error
    except (Exception, SystemExit) as error:  # whatever the user's module raises while it is imported
        raise ConfigError(
            f"Importing {path} raised {reason(error)}.", f"Import it yourself: `python -c 'import {path}'`."
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"{info.name}: {path} has no function {name}.", f"Define it there. {_FORM}")
    try:
        made = function()
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise ConfigError(
            f"{info.name} raised {reason(error)}.", f"Call it yourself: `python -c 'import {path}; {path}.{name}()'`."
        ) from error
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise ConfigError(f"{info.name} returned {type(made).__name__}.", _FORM)
    model, examples = made
    examples = (examples,) if isinstance(examples, torch.Tensor) else examples
    if (
        not isinstance(examples, tuple | list)
        or not examples
        or not all(isinstance(example, torch.Tensor) and example.ndim > 0 for example in examples)
    ):
        raise ConfigError(f"{info.name} returned example inputs that are not tensors with a batch axis.", _FORM)
    # The module is made fp32, which double or half inputs do not fit.
    return model, tuple(one.detach().float() if one.is_floating_point() else one.detach() for one in examples)


def input_names(module: nn.Module, count: int) -> tuple[str, ...]:
    """The names of forward's parameters where they can be read, else input_0, input_1, …"""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = [p.name for p in inspect.signature(module.forward).parameters.values() if p.kind in positional]
    return tuple(found[:count]) if len(found) >= count else tuple(f"input_{index}" for index in range(count))


def _inputs(names: tuple[str, ...], examples: tuple[torch.Tensor, ...], samples: int, sequence: int | None) -> Inputs:
    del sequence
    random = np.random.default_rng(7)
    arrays: Arrays = {
        name: np.stack([vary(np.asarray(example[index % len(example)]), random) for index in range(samples)])
        for name, example in zip(names, examples, strict=True)
    }
    return Inputs(arrays, "the function's example inputs: floats with 10% seeded noise, integers shuffled")


def vary(example: NDArray[np.generic], random: np.random.Generator) -> NDArray[np.generic]:
    """A neighbour of one example: floats gain noise of a tenth of their spread; integers only change places.

    A shuffled integer tensor holds no value that the example did not hold, so that ids stay in their range.
    """
    if np.issubdtype(example.dtype, np.floating):
        floats = example.astype(np.float64)
        noise = random.normal(0.0, 0.1 * (float(floats.std()) or 1.0), example.shape)
        return (floats + noise).astype(example.dtype)
    return random.permutation(example.ravel()).reshape(example.shape)
