"""A model as its family hands it to the export: a module, the names of its tensors, and its real inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import Answer, Kind, Preparation, Quantisation, TensorSpec, Weights
from harness.zoo import ModelInfo
from harness.zoo.input_files import Arrays

if TYPE_CHECKING:
    from torch import nn

StepTimer = Callable[[str], AbstractContextManager[None]]
"""Adds the seconds of the block that it surrounds to a step's name."""


@dataclass(frozen=True)
class Inputs:
    """Real inputs and where they come from, in words."""

    arrays: Arrays
    source: str


PadTexts = Callable[[Sequence[str], int | None], Inputs]
"""(texts, tokens) → inputs, each text cut or padded on the right to that many tokens; source: whose tokenizer."""


@dataclass(frozen=True)
class Raw:
    """The inputs as a caller has them (texts in UTF-8, or JPEG files), and how to make arrays from them and an answer
    from the outputs."""

    samples: tuple[bytes, ...]
    preparation: Preparation
    answer: Answer


@dataclass(frozen=True)
class Loaded:
    """A model ready to be exported.

    module: fp32, eval; takes tensors in the order of input_names, and the tensors of its answer (reference.py) are in
        that of output_names; None for a user's ONNX file, which is onnx_file.
    make_inputs: (samples, sequence length or None) → that many different inputs.
    make_raw: the same, as a caller has them; None where the model's preprocessing is not known.
    pad_texts: a user's texts → inputs; None for a model without tokenizer or mask, or that answers with the token after
        its last one, which would be padding.
    input_axes: batch axis of each input, where it is not the first; None where all samples share the input.
    input_types: element types of the inputs, where they are known without making any.
    kind: the kind of a sample, where only the loaded model has it.
    own_inputs: whether make_inputs gives the user's own, however few.
    lengths: the only sequence lengths that make_inputs has; empty where it has any.
    free_axes: further axes of inputs whose extent is free, by input and axis; axes of one name go together.
    sequence_inputs: names of the inputs whose axis 1 is the sequence; empty where nothing has a sequence.
    max_sequence: longest sequence the model has positions for.
    fixed_batch: the only batch size that the model takes; None where it is free.
    usual_batch: where it is free as far as declared, the size that it takes if it takes only one; None for models of
        the zoo.
    batch_axes: batch axis of each output, where it is not the first (harness/zoo/reference.py); None where all samples
        share the output.
    quantised: how a user's ONNX file is quantised already; None where it is not.
    converted: element types of the weights of a user's module that were made fp32, as `fp16`.
    nested_outputs: whether the module returns anything but a tensor or a tuple of tensors.
    written_inputs: inputs that the module changes in place; every call gets copies of them.
    heads, hidden_size: of a transformer's attention, as its configuration has them; None for other models.
    attention: PyTorch's implementation of the attention; set_attention chooses it. None where there is no choice.
    """

    module: nn.Module | None
    weight_source: str
    classifier: bool
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    make_inputs: Callable[[int, int | None], Inputs]
    make_raw: Callable[[int, int | None], Raw] | None = None
    pad_texts: PadTexts | None = None
    input_axes: Mapping[str, int | None] = field(default_factory=dict)
    input_types: Mapping[str, np.dtype[np.generic]] = field(default_factory=dict)
    kind: Kind | None = None
    own_inputs: bool = False
    lengths: tuple[int | None, ...] = ()
    free_axes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    sequence_inputs: tuple[str, ...] = ()
    max_sequence: int | None = None
    attention: str | None = None
    set_attention: Callable[[str], None] | None = None
    onnx_file: Path | None = None
    fixed_batch: int | None = None
    usual_batch: int | None = None
    batch_axes: Mapping[str, int | None] = field(default_factory=dict)
    quantised: Quantisation | None = None
    converted: tuple[str, ...] = ()
    nested_outputs: bool = False
    written_inputs: tuple[str, ...] = ()
    heads: int | None = None
    hidden_size: int | None = None

    def with_fixed_batch(self, batch: int | None) -> Loaded:
        """The model for exactly that batch size."""
        return replace(self, fixed_batch=batch)

    def require_module(self) -> nn.Module:
        """The module, where the caller knows that it exists: a family gives a module or an ONNX file."""
        if self.module is None:
            raise TypeError("this model is an ONNX file and has no module")
        return self.module


@dataclass(frozen=True)
class Request:
    """A request to load a model: weights, the seed of `seeded` weights, the folder of downloads, and the model's own
    folder.

    A family writes into `folder` whatever `architecture` needs to rebuild the model without a network.
    """

    info: ModelInfo
    weights: Weights
    seed: int
    cache: Path | None
    folder: Path


class Family(Protocol):
    """The functions of a family module."""

    def load(self, request: Request) -> Loaded:
        """Load or make the weights. Raises HubError, ConfigError or ExportError."""

    def architecture(self, info: ModelInfo, folder: Path) -> nn.Module:
        """The module without its weights, from the files in `folder` alone."""


def tensor_specs(
    seen: list[Arrays],
    names: tuple[str, ...],
    fixed_batch: int | None,
    batch_axes: Mapping[str, int | None],
) -> tuple[TensorSpec, ...]:
    """Names, types and shapes of tensors seen at one or two sequence lengths, first and last of `seen`, batch first.

    Axis 0 is `batch` unless the graph fixes it; an axis whose extent differs between the two is `sequence`. batch_axes:
    where the model has the batch of a tensor, if not first; None where it has none.
    """
    first, last = seen[0], seen[-1]
    batch = fixed_batch or "batch"
    return tuple(_spec(name, first[name], last[name], batch, batch_axes.get(name, 0)) for name in names)


def _spec(
    name: str, first: NDArray[np.generic], last: NDArray[np.generic], batch: int | str, batch_axis: int | None
) -> TensorSpec:
    shape: list[int | str] = [
        size if size == other else "sequence" for size, other in zip(first.shape[1:], last.shape[1:], strict=True)
    ]
    if batch_axis is not None:
        shape.insert(batch_axis, batch)
    return TensorSpec(name=name, dtype=str(first.dtype), shape=tuple(shape), batch_axis=batch_axis)
