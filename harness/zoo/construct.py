"""Rebuild an exported model for the PyTorch backends, from the files of its folder alone.

The case server imports this module before it forks: importing it imports torch and runs nothing. The libraries of a
family (torchvision, transformers) are imported when one of its models is built.
"""

from __future__ import annotations

import importlib
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from harness.core import store
from harness.core.errors import CaseError, reason
from harness.core.schemas import ExportRecord
from harness.zoo import ModelInfo, model_info
from harness.zoo.identity import changed_sources
from harness.zoo.loaded import Family


def build_module(record: ExportRecord, folder: Path) -> nn.Module:
    """The exported model with its weights: fp32, eval, no gradients.

    Its forward takes tensors positionally in the order of record.inputs, and the tensors of its answer (reference.py)
    are in the order of record.outputs. Reads no network. Raises CaseError where the folder does not match the record.
    """
    if record.module is None:
        raise CaseError(f"{record.model} is an ONNX file without a PyTorch module.", "Choose ONNX backends for it.")
    info = model_info(record.model)
    if record.request is not None:
        seed_everything(record.request.seed)
    try:
        module = family_of(info).architecture(info, folder)
        load_weights(module, folder / record.module.path)
    except (OSError, RuntimeError, ValueError, KeyError, SafetensorError) as error:
        raise CaseError(
            f"{record.model} could not be rebuilt from {folder}: {reason(error)}",
            "Export it again: `make export FORCE=1`.",
        ) from error
    changed = changed_sources(record.sources)
    if changed:
        raise CaseError(
            f"{record.model} differs from its export: {', '.join(sorted(changed))} changed since.",
            "Run `make export`: it exports the model as it is now.",
        )
    names = [spec.name for spec in record.inputs]
    return with_own_inputs(frozen_module(module), names, record.written_inputs)


def seed_everything(seed: int) -> None:
    """Seed all that a user's code may draw from: what it draws besides its weights must be equal in each process."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


class OwnInputs(nn.Module):
    """A module that works on its inputs in place, given copies of them at each call."""

    def __init__(self, module: nn.Module, written: tuple[int, ...]) -> None:
        super().__init__()
        self.module = module
        self.written = written

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Copy the inputs that the module writes to, and call it."""
        return self.module(
            *(tensor.clone() if place in self.written else tensor for place, tensor in enumerate(inputs))
        )


def with_own_inputs(module: nn.Module, names: Sequence[str], written: Collection[str]) -> nn.Module:
    """The module itself, or a wrapper that leaves the named inputs unchanged for the next call."""
    if not written:
        return module
    return OwnInputs(module, tuple(place for place, name in enumerate(names) if name in written)).eval()


def save_weights(module: nn.Module, path: Path) -> None:
    """Write a module's weights; equal views of one memory (tied weights) are stored once. Raises OSError."""
    state = module.state_dict()
    kept = {names[0]: state[names[0]] for names in _tied(state)}
    storages = Counter(tensor.untyped_storage().data_ptr() for tensor in kept.values())
    for name, tensor in kept.items():
        # safetensors refuses parts of a larger memory, and other views of the same.
        shared = storages[tensor.untyped_storage().data_ptr()] > 1 or tensor.untyped_storage().nbytes() != tensor.nbytes
        kept[name] = tensor.clone(memory_format=torch.contiguous_format) if shared else tensor.contiguous()
    try:
        save_file(kept, path)
    except SafetensorError as error:  # has the system's number in its text alone
        if (number := re.search(r"\(os error (\d+)\)", str(error))) is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
    store.let_others_read(path)  # safetensors makes it private


def load_weights(module: nn.Module, path: Path) -> None:
    """Read what save_weights() wrote into a module of the same form. Raises RuntimeError where its names differ."""
    stored = load_file(path)
    for tensor in module.state_dict(keep_vars=True).values():
        if tensor.untyped_storage().nbytes() < tensor.nbytes:  # expanded: one number in several places
            tensor.data = tensor.data.clone()
    for names in _tied(module.state_dict()):
        held = next((stored[name] for name in names if name in stored), None)
        if held is not None:
            stored.update(dict.fromkeys(names, held))
    module.load_state_dict(stored)


def _tied(state: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """The names of a state, in groups of one tensor each."""
    groups: dict[object, list[str]] = {}
    for name, tensor in state.items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) if tensor.numel() else name
        groups.setdefault(place, []).append(name)
    return [*groups.values()]


def frozen_module(module: nn.Module) -> nn.Module:
    """The module in fp32 and eval mode, without gradients."""
    for parameter in module.parameters():  # ScriptModule has no requires_grad_() of its own
        parameter.requires_grad_(False)
    return module.float().eval()


_WORDS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64"}


def converted_types(module: nn.Module) -> tuple[str, ...]:
    """The element types of a module's weights that frozen_module makes fp32, as `fp16`; empty where all are fp32."""
    types = {value.dtype for value in (*module.parameters(), *module.buffers()) if value.is_floating_point()}
    return tuple(sorted(_WORDS.get(kind, str(kind).removeprefix("torch.")) for kind in types - {torch.float32}))


def is_torchscript(module: nn.Module) -> bool:
    """Whether the interpreter of TorchScript runs it: a ScriptModule, or one whose weights are all in ScriptModules."""
    if isinstance(module, torch.jit.ScriptModule):
        return True
    weights = {id(weight) for weight in module.parameters()}
    parts = [part for part in module.modules() if isinstance(part, torch.jit.ScriptModule)]
    return bool(weights) and weights <= {id(weight) for part in parts for weight in part.parameters()}


def family_of(info: ModelInfo) -> Family:
    """The family module that loads and rebuilds a model."""
    return cast("Family", importlib.import_module(info.family))


class Uninitialised(TorchFunctionMode):
    """Inside this context the functions of torch.nn.init leave their tensor as it is.

    Initialising takes longer than loading: it would be half of the cold cost of a small model.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Answer torch.nn.init with its own argument; let everything else through."""
        given = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else given["tensor"]
        return func(*args, **given)


_SAMPLES = 8


def seeded_module(
    build: Callable[[], nn.Module], seed: int, inputs: Callable[[int], NDArray[np.generic]]
) -> tuple[nn.Module, str]:
    """The module with random weights from `seed`, and how they were made. `inputs` gives that many samples."""
    torch.manual_seed(seed)
    module = build()
    for part in module.modules():
        if isinstance(part, nn.Linear) and not part.weight.any():
            nn.init.trunc_normal_(part.weight, std=0.02)  # as ViT's own training code initialises its other layers
    if _fit_batch_norms(module, inputs):
        return module.eval(), f"random, seed {seed}, batch norms fitted to {_SAMPLES} photographs"
    return module.eval(), f"random, seed {seed}"


def _fit_batch_norms(module: nn.Module, inputs: Callable[[int], NDArray[np.generic]]) -> bool:
    """Give the batch norms the statistics of real inputs; False where there are none."""
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    if not norms:
        return False
    module.eval()
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        norm.momentum = None  # the statistics of this pass alone, not a running average with the initial values
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums depend on how they are split between threads
    with torch.no_grad():
        module(torch.from_numpy(inputs(_SAMPLES)))
    torch.set_num_threads(threads)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return True
