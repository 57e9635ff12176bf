"""A user's own ONNX file: `onnx:<file>`. Inputs are made from what the graph asks for."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from harness.core.errors import ConfigError, MissingInputError
from harness.zoo import images
from harness.zoo.hub import minilm_tokenizer
from harness.zoo.loaded import Arrays, Inputs, Loaded, Request
from harness.zoo.onnx_external import check_external_data
from harness.zoo.onnx_run import open_session
from harness.zoo.quantised_file import quantisation_of
from harness.zoo.text import SOURCE as TEXT_SOURCE
from harness.zoo.text import token_ids

_TEXT = ("input_ids", "attention_mask", "token_type_ids")
_DEFAULT_SEQUENCE = 128
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_WHOLE = {
    **{f"tensor({name})": np.dtype(name) for name in ("int64", "int32", "int16", "int8")},
    **{f"tensor({name})": np.dtype(name) for name in ("uint64", "uint32", "uint16", "uint8", "bool")},
}
_RANGES = {"tensor(uint8)": (0, 255), "tensor(int8)": (-128, 127), "tensor(bool)": (0, 1)}
"""Bytes are pixels or quantised numbers; of other integers that look up no table, the digits."""
_FEW = 8
"""Elements a sample below which random digits would give the same sample twice."""
_FORMS = frozenset(("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))


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
        bare = ", ".join(f"`{entry.name}`" for entry in asked if not entry.shape)
        raise ConfigError(
            f"{path} has {f'inputs without a batch axis: {bare}' if bare else 'no inputs'}.",
            "Export it with the batch as axis 0 of each input.",
        )
    return Loaded(
        module=None,
        weight_source=f"{request.info.weight_source}; reference by ONNX Runtime on the CPU without optimisations",
        classifier=False,
        input_names=tuple(entry.name for entry in asked),
        output_names=tuple(entry.name for entry in session.get_outputs()),
        make_inputs=functools.partial(_inputs, asked, _table_rows(path)),
        sequence_inputs=tuple(entry.name for entry in asked if _is_text(entry)),
        onnx_file=path,
        fixed_batch=_fixed_batch(asked),
        quantised=quantisation_of(path),
    )


def _fixed_batch(asked: Any) -> int | None:
    extents = {entry.shape[0] for entry in asked if isinstance(entry.shape[0], int)}
    return max(extents) if extents else None


def _is_text(entry: Any) -> bool:
    return entry.name in _TEXT and entry.type in _INTEGERS and len(entry.shape) == 2


def _inputs(asked: Any, rows: Mapping[str, int], samples: int, sequence_length: int | None) -> Inputs:
    arrays: Arrays = {}
    sources: list[str] = []
    for entry in asked:
        arrays[entry.name], source = _input(entry, rows.get(entry.name), samples, sequence_length)
        sources.append(f"{entry.name}: {source}")
    return Inputs(arrays, "; ".join(sources))


def _input(entry: Any, rows: int | None, samples: int, sequence_length: int | None) -> tuple[NDArray[np.generic], str]:
    """One input of the graph, and where it comes from. rows: of the table that it looks up, where it does."""
    if _is_text(entry):
        fixed = entry.shape[1] if isinstance(entry.shape[1], int) else None
        return _text(entry, samples, fixed or sequence_length or _DEFAULT_SEQUENCE)
    shape, guessed = _sample_shape(entry)
    random = np.random.default_rng(7)
    if entry.type in _WHOLE:
        kind = _WHOLE[entry.type]
        least, most = _RANGES.get(entry.type, (0, 9)) if rows is None else (0, rows - 1)
        numbers = random.integers(least, most, (samples, *shape), endpoint=True)
        if rows is None and math.prod(shape) < _FEW:
            numbers = np.arange(samples).reshape((samples, *(1 for _ in shape))) + np.zeros((samples, *shape), int)
            return numbers.astype(kind), f"the numbers from 0 to {samples - 1}{guessed}"
        return numbers.astype(kind), f"seeded whole numbers from {least} to {most}{guessed}"
    if entry.type not in _TYPES:
        raise ConfigError(
            f"Input `{entry.name}` is {entry.type}: no values can be made up for it.",
            "Wrap the model in a function with example inputs: `module:<python path>:<function>`.",
        )
    if len(shape) == 3 and shape[0] == 3 and shape[1] == shape[2]:
        prepare = images.preprocessing(images.IMAGENET_MEAN, images.IMAGENET_STD, size=shape[1])
        pixels = images.photographs(samples, prepare).astype(_TYPES[entry.type])
        return pixels, f"{images.SOURCE}, ImageNet normalisation{guessed}"
    return random.standard_normal((samples, *shape)).astype(_TYPES[entry.type]), f"seeded normal numbers{guessed}"


def _text(entry: Any, samples: int, length: int) -> tuple[NDArray[np.generic], str]:
    kind = _INTEGERS[entry.type]
    if entry.name == "input_ids":
        tokenizer = minilm_tokenizer("an ONNX file comes without its own")
        return token_ids(tokenizer.encode, samples, length).astype(kind), f"{TEXT_SOURCE}; {tokenizer.source}"
    value = 1 if entry.name == "attention_mask" else 0
    return np.full((samples, length), value, dtype=kind), f"all {value}"


def _sample_shape(entry: Any) -> tuple[tuple[int, ...], str]:
    """Extents of one sample, and in words which of them were free: 224 for an image's, else the usual sequence."""
    extents = entry.shape[1:]
    usual = 224 if len(extents) == 3 and extents[0] == 3 else _DEFAULT_SEQUENCE
    free = [str(extent) for extent in extents if not isinstance(extent, int)]
    guessed = f", its free axes ({', '.join(free)}) taken as {usual}" if free else ""
    return tuple(extent if isinstance(extent, int) else usual for extent in extents), guessed


def _table_rows(path: Path) -> dict[str, int]:
    """By input: rows of the smallest table that it looks up, straight or by way of nodes that only change its form."""
    graph = onnx.load(path, load_external_data=False).graph
    tables = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    origin = {value.name: value.name for value in graph.input}
    found: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _FORMS and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        if node.op_type == "Gather" and node.input[1] in origin and node.input[0] in tables:
            axis = next((entry.i for entry in node.attribute if entry.name == "axis"), 0)
            name = origin[node.input[1]]
            found[name] = min(tables[node.input[0]][axis], found.get(name, sys.maxsize))
    return found
