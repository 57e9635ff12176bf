"""What a family of models hands to the export: a module, what its tensors are called, and its real inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import Answer, Kind, Preparation, Quantisation, Weights
from harness.zoo import ModelInfo

if TYPE_CHECKING:
    from torch import nn

Arrays = dict[str, NDArray[np.generic]]
"""Arrays of N samples by tensor name; the first axis is the sample."""


@dataclass(frozen=True)
class Inputs:
    """Real inputs and where they come from, in words."""

    arrays: Arrays
    source: str


@dataclass(frozen=True)
class Raw:
    """The same inputs as a caller has them (texts in UTF-8, or JPEG files), how they become arrays, and outputs an
    answer."""

    items: tuple[bytes, ...]
    preparation: Preparation
    answer: Answer


@dataclass(frozen=True)
class Loaded:
    """A model ready to be exported.

    module: fp32, eval; takes tensors in the order of input_names, and the tensors of its answer (zoo/forward.py) are in
        that of output_names; None for a user's ONNX file, which is onnx_file.
    make_inputs: (samples, sequence length or None) → that many different inputs.
    make_raw: the same, as a caller has them; None where the model's preprocessing is not known.
    input_axes: axis of each input that is the batch, where it is not the first; None where all items share the input.
    input_types: element types of the inputs, where they are known without making any.
    kind: what an item is, where only the loaded model says so.
    own_inputs: whether make_inputs gives the user's own, however few.
    lengths: the only sequence lengths that make_inputs has; empty where it has any.
    free_axes: further axes of inputs whose extent is free, by input and axis; those of one name go together.
    sequence_inputs: names of the inputs whose axis 1 is the sequence; empty where nothing has a sequence.
    max_sequence: longest sequence the model has positions for.
    fixed_batch: the only batch size that a user's file takes; None where it is free.
    batch_axes: axis of each output that is the batch, where it is not the first (harness/zoo/diagnosis.py).
    quantised: how a user's ONNX file is quantised already; None where it is not.
    nested_outputs: whether the module answers otherwise than with a tensor or a tuple of tensors.
    written_inputs: those that the module works on in place; every call gets copies of them.
    heads, hidden_size: of a transformer's attention, as its configuration has them; None for other models.
    attention: what PyTorch computes the attention by; set_attention chooses it. None where there is no choice.
    """

    module: nn.Module | None
    weight_source: str
    classifier: bool
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    make_inputs: Callable[[int, int | None], Inputs]
    make_raw: Callable[[int, int | None], Raw] | None = None
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
    batch_axes: Mapping[str, int] = field(default_factory=dict)
    quantised: Quantisation | None = None
    nested_outputs: bool = False
    written_inputs: tuple[str, ...] = ()
    heads: int | None = None
    hidden_size: int | None = None

    def with_fixed_batch(self, batch: int | None) -> Loaded:
        """The same, for exactly that batch size."""
        return replace(self, fixed_batch=batch)

    def require_module(self) -> nn.Module:
        """The module, where the caller knows that there is one: a family gives a module or an ONNX file."""
        if self.module is None:
            raise TypeError("this model is an ONNX file and has no module")
        return self.module


@dataclass(frozen=True)
class Request:
    """What to load: weights, the seed of `seeded` ones, where downloads are kept, and the model's own folder.

    A family writes into `folder` whatever `architecture` needs to rebuild the model without a network.
    """

    info: ModelInfo
    weights: Weights
    seed: int
    cache: Path | None
    folder: Path


class Family(Protocol):
    """What a family module offers."""

    def load(self, request: Request) -> Loaded:
        """Load or make the weights. Raises HubError, ConfigError or ExportError."""

    def architecture(self, info: ModelInfo, folder: Path) -> nn.Module:
        """The module without its weights, from the files in `folder` alone."""
