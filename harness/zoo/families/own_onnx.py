"""A user's own ONNX file: `onnx:<file>`. Inputs are made from the graph's declarations."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from harness.core.errors import ConfigError, MissingInputError
from harness.zoo.batch_axes import Axes, axes_of_graph, fixed_batch
from harness.zoo.families.hub import minilm_tokenizer
from harness.zoo.file_graph import graph_of
from harness.zoo.input_files import Arrays
from harness.zoo.inputs import images
from harness.zoo.inputs.sentences import SOURCE as TEXT_SOURCE
from harness.zoo.inputs.sentences import passages, token_ids
from harness.zoo.loaded import Inputs, Loaded, Request
from harness.zoo.onnx.external_data import check_external_data
from harness.zoo.quantised_files import DEQUANTISED, quantisation_of
from harness.zoo.reference import open_session

_TEXT = ("input_ids", "attention_mask", "token_type_ids")
_DEFAULT_SEQUENCE = 128
_INTEGERS = ("int64", "int32")
_KINDS: Mapping[str, np.dtype[Any]] = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "string": np.dtype(np.str_),
    **{name: np.dtype(name) for name in ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")},
    "bool": np.dtype(bool),
}
"""Element types by ONNX Runtime's names: `tensor(float)`."""
_RANGES = {"uint8": (0, 255), "int8": (-128, 127), "bool": (0, 1)}
"""Bytes are pixels or quantised numbers; of other integers that look up no table, the digits."""
_WORDS = 30_522
"""Of the vocabulary of MiniLM's tokenizer; a smaller table does not hold its ids."""
_FEW = 8
"""Elements a sample below which random digits would give the same sample twice."""
_FORMS = frozenset(("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))


def load(request: Request) -> Loaded:
    """The user's file.

    Raises MissingInputError where it is missing, ExportError where it does not load or keeps weights elsewhere.
    """
    path = Path(request.info.reference)
    if not path.is_file():
        raise MissingInputError(
            f"{request.info.name}: there is no file {path}.",
            "Check the path; a relative path begins at the current folder.",
        )
    check_external_data(path)
    session = open_session(path, threads=1, level="ORT_DISABLE_ALL")
    asked = session.get_inputs()
    kinds = _element_types(path, "input", asked)
    _element_types(path, "output", session.get_outputs())
    shapes = {entry.name: tuple(entry.shape) for entry in asked}
    axes = axes_of_graph(shapes)
    if all(axes.get(entry.name, 0) is None for entry in asked):
        bare = ", ".join(f"`{entry.name}`" for entry in asked)
        raise ConfigError(
            f"{path} has {f'no input with a batch axis: {bare}' if bare else 'no inputs'}.",
            "Export it with the batch as an axis of one input at least.",
        )
    quantisation = quantisation_of(graph_of(path))
    return Loaded(
        module=None,
        weight_source="; ".join(
            [
                request.info.weight_source,
                *([DEQUANTISED] if quantisation == "weights" else []),
                "reference by ONNX Runtime on the CPU without optimisations",
            ]
        ),
        classifier=False,
        input_names=tuple(entry.name for entry in asked),
        output_names=tuple(entry.name for entry in session.get_outputs()),
        make_inputs=functools.partial(_inputs, asked, axes, _table_rows(path)),
        input_axes=axes,
        input_types=kinds,
        sequence_inputs=tuple(entry.name for entry in asked if _is_text(entry)),
        onnx_file=path,
        fixed_batch=fixed_batch(shapes, axes),
        usual_batch=1,
        quantised=None if quantisation == "weights" else quantisation,
    )


def _element_types(path: Path, thing: str, ports: Any) -> dict[str, np.dtype[np.generic]]:
    """Name → element type. Raises ConfigError for anything but a tensor of a type that NumPy has."""
    for port in ports:
        if _element(port) not in _KINDS:
            raise ConfigError(
                f"{thing.capitalize()} `{port.name}` of {path} is {port.type}, which is no tensor that NumPy can hold.",
                "Export the model with tensors alone (from scikit-learn: `options={'zipmap': False}`); no bfloat16.",
            )
    return {port.name: _KINDS[_element(port)] for port in ports}


def _element(port: Any) -> str:
    """`tensor(float)` → float."""
    return str(port.type).removeprefix("tensor(").removesuffix(")")


def _is_text(entry: Any) -> bool:
    return entry.name in _TEXT and _element(entry) in _INTEGERS and len(entry.shape) == 2


def _inputs(asked: Any, axes: Axes, rows: Mapping[str, int], samples: int, sequence_length: int | None) -> Inputs:
    arrays: Arrays = {}
    sources: list[str] = []
    for entry in asked:
        axis = axes.get(entry.name, 0)
        if axis is None:
            value, source = _shared(entry)
            arrays[entry.name] = np.stack([value] * samples)
        else:
            arrays[entry.name], source = _input(entry, axis, rows.get(entry.name), samples, sequence_length)
        sources.append(f"{entry.name}: {source}")
    return Inputs(arrays, "; ".join(sources))


def _shared(entry: Any) -> tuple[NDArray[np.generic], str]:
    """A value that all samples share: 1, which as a factor, a number of things or a switch does little harm."""
    shape, guessed = _extents(entry.shape)
    kind = _KINDS[_element(entry)]
    value: NDArray[np.generic] = np.ones(shape, np.int8).astype(kind)
    return value, f"1 for all samples, as it has no batch axis{guessed}"


def _input(
    entry: Any, axis: int, rows: int | None, samples: int, sequence_length: int | None
) -> tuple[NDArray[np.generic], str]:
    """One input of the graph, sample axis first, and its source. rows: size of the table that it looks up, if any."""
    if _is_text(entry) and axis == 0 and (rows is None or rows >= _WORDS):
        fixed = entry.shape[1] if isinstance(entry.shape[1], int) else None
        return _text(entry, samples, fixed or sequence_length or _DEFAULT_SEQUENCE)
    shape, guessed = _extents([extent for place, extent in enumerate(entry.shape) if place != axis])
    random = np.random.default_rng(7)
    kind = _KINDS[_element(entry)]
    if kind.kind == "U":
        texts = np.resize(np.array(passages(samples * max(1, math.prod(shape)), 8)), (samples, *shape))
        return texts, f"{TEXT_SOURCE}{guessed}"
    if kind.kind in "biu":
        numbers, source = _whole_numbers(entry, rows, (samples, *shape))
        return numbers, f"{source}{guessed}"
    if len(shape) == 3 and shape[0] == 3 and shape[1] == shape[2]:
        prepare = images.preprocessing(images.IMAGENET_MEAN, images.IMAGENET_STD, size=shape[1])
        pixels = images.photographs(samples, prepare).astype(kind)
        return pixels, f"{images.SOURCE}, ImageNet normalisation{guessed}"
    return random.standard_normal((samples, *shape)).astype(kind), f"seeded normal numbers{guessed}"


def _whole_numbers(entry: Any, rows: int | None, shape: tuple[int, ...]) -> tuple[NDArray[np.generic], str]:
    element, kind = _element(entry), _KINDS[_element(entry)]
    if rows is None and "mask" in entry.name.lower():
        return np.ones(shape, kind), "all 1, as a mask that hides nothing"
    if rows is None and element != "bool" and math.prod(shape[1:]) < _FEW:
        numbers = np.arange(shape[0]).reshape((-1, *(1 for _ in shape[1:]))) + np.zeros(shape, int)
        return numbers.astype(kind), f"the numbers from 0 to {shape[0] - 1}"
    least, most = _RANGES.get(element, (0, 9)) if rows is None else (0, rows - 1)
    numbers = np.random.default_rng(7).integers(least, most, shape, endpoint=True)
    return numbers.astype(kind), f"seeded whole numbers from {least} to {most}"


def _text(entry: Any, samples: int, length: int) -> tuple[NDArray[np.generic], str]:
    kind = _KINDS[_element(entry)]
    if entry.name == "input_ids":
        tokenizer = minilm_tokenizer("an ONNX file comes without its own")
        return token_ids(tokenizer.encode, samples, length).astype(kind), f"{TEXT_SOURCE}; {tokenizer.source}"
    value = 1 if entry.name == "attention_mask" else 0
    return np.full((samples, length), value, dtype=kind), f"all {value}"


def _extents(declared: Sequence[Any]) -> tuple[tuple[int, ...], str]:
    """Extents of one sample, and in words the free extents among them: 224 for an image's, else the usual sequence."""
    usual = 224 if len(declared) == 3 and 3 in (declared[0], declared[2]) else _DEFAULT_SEQUENCE
    free = [str(extent) for extent in declared if not isinstance(extent, int)]
    guessed = f", its free axes ({', '.join(free)}) taken as {usual}" if free else ""
    return tuple(extent if isinstance(extent, int) else usual for extent in declared), guessed


def _table_rows(path: Path) -> dict[str, int]:
    """Input → rows of the smallest table that it looks up, directly or through nodes that only change its form."""
    graph = onnx.load(path, load_external_data=False).graph
    tables = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    origin = {value.name: value.name for value in graph.input}
    rows: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _FORMS and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        if node.op_type == "Gather" and node.input[1] in origin and node.input[0] in tables:
            axis = next((entry.i for entry in node.attribute if entry.name == "axis"), 0)
            name = origin[node.input[1]]
            rows[name] = min(tables[node.input[0]][axis], rows.get(name, sys.maxsize))
    return rows
