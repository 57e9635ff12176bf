"""The fp32 reference: outputs of eager PyTorch, or for a user's ONNX file those of unoptimised ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils._pytree import tree_flatten_with_path, tree_leaves

from harness.core.errors import ConfigError, UsageError
from harness.core.extensions import reason
from harness.zoo.loaded import Arrays, Loaded, as_taken, batch_first
from harness.zoo.onnx.reference_run import open_session, run_session


def forward(module: nn.Module, arguments: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The outputs of a module, one after the other. Raises ConfigError where its forward raises."""
    return flat(call(module, arguments))


def call(module: nn.Module, arguments: Sequence[torch.Tensor]) -> Any:
    """The answer of a module, unchanged. Raises ConfigError where its forward raises."""
    try:
        return module(*arguments)
    except (Exception, SystemExit) as error:  # whatever the module's own code raises
        given = ", ".join(
            f"{str(argument.dtype).removeprefix('torch.')}{list(argument.shape)}" for argument in arguments
        )
        raise ConfigError(
            f"The forward of {type(module).__name__} raised {reason(error)} (its inputs: {given}).",
            "Call the module with inputs of these shapes: it must take a batch of any size, in fp32 on the CPU.",
        ) from error


def flat(answer: Any) -> tuple[Any, ...]:
    """The tensors of an answer in the order of torch.export: of a dictionary, a tuple of tuples, or a type that a
    library registered with PyTorch. None is no output."""
    if isinstance(answer, torch.Tensor):
        return (answer,)
    return tuple(leaf for leaf in tree_leaves(answer) if leaf is not None)


def output_names(answer: Any) -> tuple[str, ...]:
    """The names of flat()'s tensors: their keys, or `output_<place>`."""
    paths = [path for path, leaf in tree_flatten_with_path(answer)[0] if leaf is not None]
    if paths == [()]:
        return ("output",)
    words = ["_".join(_word(key) for key in path) for path in paths]
    names = [f"output_{word}" if word[:1].isdigit() else word for word in words]
    return tuple(names) if len(names) > 1 or not isinstance(answer, tuple | list) else ("output",)


def _word(key: Any) -> str:
    return next(str(getattr(key, name)) for name in ("key", "idx", "name") if hasattr(key, name))


def is_plain(answer: Any) -> bool:
    """Whether it is a tensor or a tuple of tensors, which everything takes."""
    parts = answer if isinstance(answer, tuple) else (answer,)
    return all(isinstance(part, torch.Tensor) for part in parts)


class Flat(nn.Module):
    """A module whose answer is a tuple of tensors, for libraries that accept nothing else."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        """The module's answer, flat."""
        return flat(self.module(*inputs))


Answer = Callable[[Arrays], Arrays]
"""Inputs of any batch size, sample axis first → outputs, by name."""

_CHUNK = 8
"""Samples at a time: enough to occupy the cores, little memory."""


def reference_of(loaded: Loaded, threads: int) -> Answer:
    """The function that computes the reference outputs of a loaded model with this many threads, in full fp32, each
    with its batch axis first."""
    if loaded.onnx_file is not None:
        session = open_session(loaded.onnx_file, threads, level="ORT_DISABLE_ALL")
        return lambda arrays: batch_first(run_session(session, as_taken(arrays, loaded.input_axes)), loaded.batch_axes)
    module = loaded.require_module()
    torch.set_num_threads(threads)
    _compute_exactly()
    return lambda arrays: batch_first(_torch_outputs(module, arrays, loaded), loaded.batch_axes)


def _compute_exactly() -> None:
    """Restore the precision that a model's code may have lowered."""
    torch.set_float32_matmul_precision("highest")
    kinds: list[Any] = [getattr(torch.backends.mkldnn, name, None) for name in ("conv", "rnn")]
    for kind in kinds:
        if getattr(kind, "fp32_precision", "none") not in ("none", "ieee"):
            kind.fp32_precision = "ieee"


def in_chunks(answer: Answer, arrays: Arrays, fixed_batch: int | None) -> Arrays:
    """Outputs for all samples, computed a few at a time: as many as a graph with a fixed batch takes.

    Raises UsageError where a fixed batch does not divide the number of samples.
    """
    chunk = fixed_batch or _CHUNK
    samples = len(next(iter(arrays.values())))
    if fixed_batch is not None and samples % fixed_batch:
        raise UsageError(
            f"{samples} inputs cannot be cut into batches of {fixed_batch}, the size that the ONNX file is fixed to.",
            f"Set `parity_samples` to a multiple of {fixed_batch}.",
        )
    parts = [
        answer({name: values[start : start + chunk] for name, values in arrays.items()})
        for start in range(0, samples, chunk)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def relative_l2(values: NDArray[np.generic], reference: NDArray[np.generic]) -> float:
    """‖v − r‖ / ‖r‖ of two arrays of one shape, computed in double precision."""
    computed, other = np.asarray(values, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    return float(np.linalg.norm(computed - other) / np.linalg.norm(other))


def _torch_outputs(module: nn.Module, arrays: Arrays, loaded: Loaded) -> Arrays:
    taken = as_taken(arrays, loaded.input_axes)
    with torch.inference_mode():
        # Copies: a module that changes its inputs in place must not change the inputs of later calls.
        outputs = forward(module, [torch.from_numpy(taken[name].copy()) for name in loaded.input_names])
    return {name: output.numpy() for name, output in zip(loaded.output_names, outputs, strict=True)}
