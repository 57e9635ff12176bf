"""A user's own module: `module:<python path>:<function>`, a function that returns (nn.Module, example inputs)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence, Sized
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from harness.core.errors import ConfigError, reason
from harness.core.process_state import stay_here, variable_set
from harness.zoo import ModelInfo
from harness.zoo.batch_axes import Axes, axes_of_examples, sample_count, sample_first
from harness.zoo.construct import converted_types, frozen_module, seed_everything
from harness.zoo.families.arguments import from_tensors
from harness.zoo.input_files import Arrays
from harness.zoo.inputs.own import rotating_samples
from harness.zoo.loaded import Inputs, Loaded, Request
from harness.zoo.reference import (
    call_module,
    flat_tensors,
    is_plain_answer,
    module_outputs,
    output_names,
)

_FORM = "It must return (nn.Module, (tensor, …)): a module and its example inputs, first axis the batch."


_DISABLES = "TORCHDYNAMO_DISABLE"
"""PyTorch's own variable, which torch.compile reads whenever it is called."""

_NOT_IN_NUMPY = (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


def load(request: Request) -> Loaded:
    """The user's module, with examples in order or by the names of forward's parameters. Raises ConfigError where the
    function is not there or returns something else."""
    seed_everything(request.seed)
    module, examples = _call(request.info)
    taken: Arrays = {name: example.numpy() for name, example in examples.items()}
    axes = axes_of_examples({name: values.shape for name, values in taken.items()})
    given, shared = sample_first(taken, axes), frozenset(name for name, axis in axes.items() if axis is None)

    def make_inputs(samples: int, sequence: int | None) -> Inputs:
        del sequence
        return rotating_samples(given, samples, "of the function's example inputs", shared)

    return load_module(request.info, module, tuple(examples.values()), tuple(examples), make_inputs, axes)


def load_module(
    info: ModelInfo,
    module: nn.Module,
    examples: tuple[torch.Tensor, ...],
    names: tuple[str, ...],
    make_inputs: Callable[[int, int | None], Inputs],
    input_axes: Axes | None = None,
) -> Loaded:
    """An unknown module, called once with its examples. Raises ConfigError where it returns no tensors."""
    axes = input_axes or {}
    given = [example.clone() for example in examples]
    before = _compilations()
    stored = _storable(info, initialised_module(module, examples))
    converted = converted_types(stored)
    with torch.inference_mode():
        answer = call_module(frozen_module(stored), given)
    if _compilations() > before:
        raise ConfigError(
            f"{info.name} compiles itself when it is called.",
            "Leave torch.compile out of forward: the backend torch-compile compiles the whole module.",
        )
    outputs = flat_tensors(answer)
    if not outputs or not all(isinstance(output, torch.Tensor) for output in outputs):
        kinds = (
            ", ".join(
                dict.fromkeys(type(output).__name__ for output in outputs if not isinstance(output, torch.Tensor))
            )
            or "nothing"
        )
        raise ConfigError(
            f"{info.name} does not answer with tensors but with {kinds}.",
            "Return a tensor, or tuples and dictionaries of tensors.",
        )
    narrow = next((output.dtype for output in outputs if output.dtype in _NOT_IN_NUMPY), None)
    if narrow is not None:
        word = str(narrow).removeprefix("torch.")
        raise ConfigError(
            f"{info.name} answers in {word}, which NumPy lacks and no ONNX backend hands over.",
            "Return floats: `.float()`. PRECISIONS chooses the precision of the computation.",
        )
    return Loaded(
        module=module,
        weight_source=info.weight_source,
        classifier=False,
        input_names=names,
        output_names=output_names(answer, {*names, *module.state_dict()}),
        converted=converted,
        nested_outputs=not is_plain_answer(answer),
        make_inputs=make_inputs,
        input_axes=axes,
        usual_batch=sample_count({name: example.numpy() for name, example in zip(names, examples, strict=True)}, axes),
        input_types={name: example.numpy().dtype for name, example in zip(names, examples, strict=True)},
        written_inputs=tuple(
            name for name, value, other in zip(names, given, examples, strict=True) if not _same(value, other)
        ),
    )


def _storable(info: ModelInfo, module: nn.Module) -> nn.Module:
    """The module itself. Raises ConfigError for weights that are no dense tensors: each process reads them again."""
    for name, value in module.state_dict().items():
        if isinstance(value, torch.Tensor) and value.is_meta:
            raise ConfigError(
                f"{info.name} has no values for `{name}`: it is on the meta device.",
                "Build it without the meta device, or give it its weights: `load_state_dict(…, assign=True)`.",
            )
        dense = isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_quantized
        if not dense or is_traceable_wrapper_subclass(value):
            kind = f"a tensor of {value.layout}, {value.dtype}" if isinstance(value, torch.Tensor) else "no tensor"
            raise ConfigError(
                f"{info.name} keeps `{name}` as {kind.replace('torch.', '')}: no dense weights, which fp32 means.",
                "Return it before it is quantised (PRECISIONS=int8 does that), or `.to_dense()` of a sparse tensor.",
            )
    return module


def initialised_module(module: nn.Module, examples: Sequence[torch.Tensor]) -> nn.Module:
    """The module itself, after one pass where it has lazy layers, whose weights get their shapes from the inputs."""
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        with torch.no_grad():
            module_outputs(module.eval(), [example.clone() for example in examples])
    return module


def without_compiling() -> AbstractContextManager[None]:
    """Around the import and the building of a user's code: torch.compile returns what it is given, as a decorator, too.

    The backend decides whether to compile: under another name compiled functions would have wrong labels.
    """
    return variable_set(_DISABLES, "1")


def _compilations() -> int:
    """Graphs that this process gave to a compiler; those of torch.cond and the like, which run as they are, not."""
    utils = sys.modules.get("torch._dynamo.utils")  # importing it takes a second
    return int(utils.counters["aot_autograd"]["total"]) if utils else 0


def uncompiled_module(module: nn.Module) -> nn.Module:
    """The module without torch.compile's wrappers around it or its parts, which it got before it was given to us.

    Modules of torch.export, which have one mode alone, accept to be set to eval.
    """
    whole = _unwrapped(module)
    for part in [*whole.modules()]:
        if isinstance(part, GraphModule):
            for refusing in ("train", "eval"):
                vars(part).pop(refusing, None)
        if getattr(part, "_compiled_call_impl", None) is not None:
            part._compiled_call_impl = None
        for name, child in part.named_children():
            if _unwrapped(child) is not child:
                setattr(part, name, _unwrapped(child))
    return whole


def _unwrapped(module: nn.Module) -> nn.Module:
    # By its attribute: importing torch._dynamo for its class takes seconds.
    inner = getattr(module, "_orig_mod", None)
    return _unwrapped(inner) if isinstance(inner, nn.Module) else module


def _same(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return tensor.shape == other.shape and tensor.numpy().tobytes() == other.numpy().tobytes()


def architecture(info: ModelInfo, folder: Path) -> nn.Module:
    """The module as the function builds it; its weights are loaded over."""
    del folder
    module, examples = _call(info)
    return initialised_module(module, [*examples.values()])


def _call(info: ModelInfo) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    with stay_here(), without_compiling():
        made = _made(info)
    if isinstance(made[1], Sized) and not len(made[1]):
        raise ConfigError(f"{info.name} returned no example inputs.", _FORM)
    model, examples = from_tensors(info.name, on_cpu(uncompiled_module(made[0])), made[1])
    for given, example in examples.items():
        if example.layout != torch.strided or example.is_nested or example.is_meta or example.is_quantized:
            kind = "nested" if example.is_nested else "meta" if example.is_meta else f"{example.layout} {example.dtype}"
            raise ConfigError(
                f"Input `{given}` of {info.name} is a {kind.replace('torch.', '')} tensor, which NumPy cannot hold.",
                "Give dense tensors on the CPU, with values: `.to_dense()`; of texts of several lengths padded ones.",
            )
    if not any(example.ndim and example.numel() for example in examples.values()):
        raise ConfigError(f"No example input of {info.name} has a batch axis with samples.", _FORM)
    return model, {name: _plain(example) for name, example in examples.items()}


def _plain(example: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor, on the CPU. The module is made fp32, which double or half inputs do not fit."""
    values = example.detach().cpu().resolve_conj()
    return values.float() if values.is_floating_point() else values


def on_cpu(module: nn.Module) -> nn.Module:
    """The module, moved from its device; weights on the meta device, which have no values, stay there."""
    tensors = (*module.parameters(), *module.buffers())
    return module.cpu() if any(tensor.device.type not in ("cpu", "meta") for tensor in tensors) else module


def _made(info: ModelInfo) -> tuple[nn.Module, Any]:
    """What the user's function returns."""
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
        kinds = ", ".join(type(part).__name__ for part in made) if isinstance(made, tuple) else ""
        what = f"({kinds})" if kinds else type(made).__name__
        raise ConfigError(f"{info.name} returned {what}.", _FORM)
    return made
