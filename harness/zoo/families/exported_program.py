"""A saved torch.export program, `pt2:<file>`: PyTorch's graph of a model, with its weights and example inputs."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_leaves

from harness.core.errors import ConfigError, MissingInputError, reason
from harness.core.process_state import variable_set
from harness.zoo import ModelInfo
from harness.zoo.batch_axes import axes_of_graph, sample_first
from harness.zoo.families.arguments import FromTensors
from harness.zoo.families.own_module import load_module
from harness.zoo.input_files import Arrays
from harness.zoo.inputs.own import rotating_samples
from harness.zoo.loaded import Inputs, Loaded, Request
from harness.zoo.quiet import quiet

_COPY = "program.pt2"


class Program(nn.Module):
    """The graph of a program. It has only the mode that it was exported in, and refuses to be set to another mode."""

    def __init__(self, program: nn.Module) -> None:
        super().__init__()
        self.program = program  # by no name that modules of torch.fx have themselves, as `graph`

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The outputs of the program."""
        return self.program(*inputs)

    def train(self, mode: bool = True) -> Program:
        """Nothing but the word."""
        self.training = mode
        return self


def load(request: Request) -> Loaded:
    """The program, copied into the model's folder. Raises MissingInputError or ConfigError."""
    path = Path(request.info.reference)
    if not path.is_file():
        raise MissingInputError(
            f"{request.info.name}: there is no file {path}.",
            "Check the path; a relative path begins at the current folder.",
        )
    program = _read(path)
    examples = _examples(program, request.info.name)
    names = tuple(examples)
    shapes = _shapes(program, names)
    axes = axes_of_graph(shapes)
    batch = next(
        (shape[axes.get(name, 0) or 0] for name, shape in shapes.items() if axes.get(name, 0) is not None), None
    )
    if batch is None:
        raise ConfigError(
            f"No input of {path} has a batch axis: {', '.join(names)}.",
            "Export it with a batch as the first axis of an input.",
        )
    taken: Arrays = {name: example.numpy() for name, example in examples.items()}
    given, shared = sample_first(taken, axes), frozenset(name for name, axis in axes.items() if axis is None)

    def make_inputs(samples: int, sequence: int | None) -> Inputs:
        del sequence
        return rotating_samples(given, samples, "of the program's example inputs", shared)

    made = load_module(request.info, _module(program), tuple(examples.values()), names, make_inputs, axes)
    request.folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, request.folder / _COPY)
    return made.with_fixed_batch(batch if isinstance(batch, int) else None)


def architecture(info: ModelInfo, folder: Path) -> nn.Module:
    """The program of the model's folder; the exported weights, which are the same, are loaded over."""
    del info
    return _module(_read(folder / _COPY))


def _read(path: Path) -> Any:
    try:
        with quiet(), _tensors_only():
            return torch.export.load(path)
    except Exception as error:  # whatever a damaged or foreign file makes its reader raise
        why = _foreign(path) or reason(error)
        raise ConfigError(
            f"{path} cannot be read as a torch.export program by torch {torch.__version__}: {why}",
            "Save it by `torch.export.save(torch.export.export(module, inputs), 'model.pt2')`, with this torch.",
        ) from error


def _foreign(path: Path) -> str | None:
    """What an archive of PyTorch is if it is no program; None where it may be one, or is no archive."""
    names = ZipFile(path).namelist() if is_zipfile(path) else []
    if any("/aotinductor/" in name for name in names):
        return "it is a package of AOTInductor, which holds code for one machine and no graph."
    return "torch.save wrote it, not torch.export.save." if any(name.endswith("/data.pkl") for name in names) else None


def _tensors_only() -> AbstractContextManager[None]:
    """torch.export.load() would read a pickle as code where it holds more than tensors; not with this."""
    return variable_set("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")


def _module(program: Any) -> nn.Module:
    # Guards are checks in Python at each call, and the traces of other backends do not take them.
    module = program.module(check_guards=False)
    leaves, form = tree_flatten(program.example_inputs)
    plain = not program.example_inputs[1] and all(isinstance(leaf, torch.Tensor) for leaf in program.example_inputs[0])
    return Program(module if plain else FromTensors(module, leaves, form))


def _examples(program: Any, model: str) -> dict[str, torch.Tensor]:
    names = [str(name) for name in program.graph_signature.user_inputs]
    leaves = tree_leaves(program.example_inputs)
    if len(leaves) != len(names) or not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        raise ConfigError(
            f"{model} was not saved with one example for each of its inputs: {', '.join(names)}.",
            "Export it with its examples: `torch.export.export(module, (tensor, …))`.",
        )
    return {
        name: leaf.detach().float() if leaf.is_floating_point() else leaf.detach()
        for name, leaf in zip(names, leaves, strict=True)
        if isinstance(leaf, torch.Tensor)
    }


def _shapes(program: Any, names: tuple[str, ...]) -> dict[str, tuple[int | str, ...]]:
    """Extents that the program declares: numbers, or symbols for those that are free."""
    nodes = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    return {
        name: tuple(int(size) if isinstance(size, int) else str(size) for size in nodes[name].shape) for name in names
    }
