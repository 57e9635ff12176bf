"""A user's own ONNX file: `onnx:<file>`. Inputs are made from what the graph asks for."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import ConfigError, MissingInputError
from harness.zoo import images
from harness.zoo.hub import minilm_tokenizer
from harness.zoo.loaded import Arrays, Inputs, Loaded, Request
from harness.zoo.onnx_external import check_external_data
from harness.zoo.onnx_run import open_session
from harness.zoo.text import SOURCE as TEXT_SOURCE
from harness.zoo.text import token_ids

_TEXT = ("input_ids", "attention_mask", "token_type_ids")
_DEFAULT_SEQUENCE = 128
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


def load(request: Request) -> Loaded:
    """The user's file.

    Raises MissingInputError where it is not there, ExportError where it does not load or keeps weights elsewhere.
    """
    path = Path(request.info.reference)
    if not path.is_file():
        raise MissingInputError(
            f"{request.info.name}: there is no file {path}.", "Check the path; it is taken as given."
        )
    check_external_data(path)
    session = open_session(path, threads=1, level="ORT_DISABLE_ALL")
    asked = session.get_inputs()
    if not asked or any(not entry.shape for entry in asked):
        raise ConfigError(f"{path} has an input without a batch axis.", "Export it with the batch as axis 0.")
    return Loaded(
        module=None,
        weight_source=f"{request.info.weight_source}; reference by ONNX Runtime on the CPU without optimisations",
        classifier=False,
        input_names=tuple(entry.name for entry in asked),
        output_names=tuple(entry.name for entry in session.get_outputs()),
        make_inputs=functools.partial(_inputs, asked),
        sequence_inputs=tuple(entry.name for entry in asked if _is_text(entry)),
        onnx_file=path,
        fixed_batch=_fixed_batch(asked),
    )


def _fixed_batch(asked: Any) -> int | None:
    extents = {entry.shape[0] for entry in asked if isinstance(entry.shape[0], int)}
    return max(extents) if extents else None


def _is_text(entry: Any) -> bool:
    return entry.name in _TEXT and entry.type in _INTEGERS and len(entry.shape) == 2


def _inputs(asked: Any, samples: int, sequence_length: int | None) -> Inputs:
    arrays: Arrays = {}
    sources: list[str] = []
    for entry in asked:
        arrays[entry.name], source = _input(entry, samples, sequence_length)
        sources.append(f"{entry.name}: {source}")
    return Inputs(arrays, "; ".join(sources))


def _input(entry: Any, samples: int, sequence_length: int | None) -> tuple[NDArray[np.generic], str]:
    """One input of the graph, and where it comes from."""
    if _is_text(entry):
        fixed = entry.shape[1] if isinstance(entry.shape[1], int) else None
        return _text(entry, samples, fixed or sequence_length or _DEFAULT_SEQUENCE)
    if entry.type not in _TYPES:
        raise ConfigError(
            f"Input {entry.name} is {entry.type}: no real values can be made up for it.",
            "Wrap the model in a function with example inputs: `module:<python path>:<function>`.",
        )
    shape = _sample_shape(entry)
    if len(shape) == 3 and shape[0] == 3 and shape[1] == shape[2]:
        prepare = images.preprocessing(images.IMAGENET_MEAN, images.IMAGENET_STD, size=shape[1])
        pixels = images.photographs(samples, prepare).astype(_TYPES[entry.type])
        return pixels, f"{images.SOURCE}, ImageNet normalisation"
    numbers = np.random.default_rng(7).standard_normal((samples, *shape))
    return numbers.astype(_TYPES[entry.type]), "seeded normal numbers"


def _text(entry: Any, samples: int, length: int) -> tuple[NDArray[np.generic], str]:
    kind = _INTEGERS[entry.type]
    if entry.name == "input_ids":
        tokenizer = minilm_tokenizer("an ONNX file comes without its own")
        return token_ids(tokenizer.encode, samples, length).astype(kind), f"{TEXT_SOURCE}; {tokenizer.source}"
    value = 1 if entry.name == "attention_mask" else 0
    return np.full((samples, length), value, dtype=kind), f"all {value}"


def _sample_shape(entry: Any) -> tuple[int, ...]:
    """Extents of one sample. A free axis of an image is 224; any other free axis cannot be guessed."""
    extents = entry.shape[1:]
    if len(extents) == 3 and extents[0] == 3:
        return (3, *(extent if isinstance(extent, int) else 224 for extent in extents[1:]))
    if not all(isinstance(extent, int) for extent in extents):
        raise ConfigError(
            f"Input {entry.name} has free axes besides the batch: {entry.shape}.",
            "Export it with fixed extents there, or wrap it: `module:<python path>:<function>`.",
        )
    return tuple(extents)
