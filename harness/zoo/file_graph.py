"""The graph of an ONNX file, from its bytes: `plan` imports no library that could read it.

A protobuf message is a row of fields: a tag, which has the field's number and kind, and a value, which is a number or
a length and as many bytes (protobuf.dev/programming-guides/encoding). The numbers of fields and types are those of
onnx.proto.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from harness.zoo.batch_axes import Shape, axes_of_graph, fixed_batch

_MOST = (1 << 63) - 1


class FileNode(NamedTuple):
    """A node of a graph."""

    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    numbers: Mapping[str, int]
    """Attributes that are whole numbers."""


@dataclass
class FileGraph:
    """The nodes of all graphs of a file, the element types of their constants by name, and the shapes of the inputs of
    the whole file; a constant may be declared as an input as well."""

    nodes: list[FileNode] = field(default_factory=list)
    constants: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, Shape] = field(default_factory=dict)


def graph_of(path: Path) -> FileGraph:
    """Empty for a file that cannot be read."""
    graph = FileGraph()
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for number, start, end in _fields(content, 0, len(content)):
                if number == 7:  # graph
                    _read_graph(content, start, end, graph)
                    graph.inputs = dict(_inputs(content, start, end))
                elif number == 25:  # functions, of which 7 are the nodes
                    for inner, node_start, node_end in _fields(content, start, end):
                        if inner == 7:
                            _read_node(content, node_start, node_end, graph)
    except (OSError, ValueError, IndexError, RecursionError):  # ValueError: also an empty file, which cannot be mapped
        return FileGraph()
    return graph


def _read_graph(content: mmap.mmap, start: int, end: int, graph: FileGraph) -> None:
    for number, inner, stop in _fields(content, start, end):
        if number == 1:
            _read_node(content, inner, stop, graph)
        elif number == 5:  # initializer
            kind, name = _tensor(content, inner, stop)
            graph.constants[name] = kind


def _inputs(content: mmap.mmap, start: int, end: int) -> Iterator[tuple[str, Shape]]:
    """Names and shapes of a graph's inputs, of those that are tensors of a known rank."""
    for number, value, last in _fields(content, start, end):
        if number != 11:
            continue
        own = dict(_places(content, value, last))
        kind = dict(_places(content, *own[2])) if 2 in own else {}
        tensor = dict(_places(content, *kind[1])) if 1 in kind else {}
        if 1 in own and 2 in tensor:
            dimensions = [place for inner, place in _places(content, *tensor[2]) if inner == 1]
            yield content[slice(*own[1])].decode(), tuple(_extent(content, *place) for place in dimensions)


def _places(content: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """(number, (start, end)) of each field."""
    for number, inner, stop in _fields(content, start, end):
        yield number, (inner, stop)


def _extent(content: mmap.mmap, start: int, end: int) -> int | str | None:
    """A number, a name, or None where the file has neither."""
    for number, value, last in _fields(content, start, end):
        if number == 1:
            return value if value <= _MOST else None  # a negative number is no extent
        if number == 2:
            return content[value:last].decode() or None
    return None


def _read_node(content: mmap.mmap, start: int, end: int, graph: FileGraph) -> None:
    kind, attributes = "", _Attributes()
    names: dict[int, list[str]] = {1: [], 2: []}  # inputs and outputs
    for number, inner, stop in _fields(content, start, end):
        if number in names:
            names[number].append(content[inner:stop].decode())
        elif number == 4:
            kind = content[inner:stop].decode()
        elif number == 5:
            _read_attribute(content, inner, stop, attributes, graph)
    graph.nodes.append(FileNode(kind, names[1], names[2], attributes.numbers))
    if kind == "Constant" and attributes.tensor is not None:
        graph.constants |= dict.fromkeys(names[2], attributes.tensor)


@dataclass
class _Attributes:
    """Numbers by name, and the element type of a tensor."""

    numbers: dict[str, int] = field(default_factory=dict)
    tensor: int | None = None


def _read_attribute(content: mmap.mmap, start: int, end: int, attributes: _Attributes, graph: FileGraph) -> None:
    name = ""
    for number, value, last in _fields(content, start, end):
        if number == 1:
            name = content[value:last].decode()
        elif number == 3:
            attributes.numbers[name] = value
        elif number == 5:
            attributes.tensor = _tensor(content, value, last)[0]
        elif number in (6, 11):  # graphs of If, Loop and Scan
            _read_graph(content, value, last, graph)


def _tensor(content: mmap.mmap, start: int, end: int) -> tuple[int, str]:
    """(element type, name)."""
    kind, name = 0, ""
    for number, value, last in _fields(content, start, end):
        if number == 2:
            kind = value
        elif number == 8:
            name = content[value:last].decode()
    return kind, name


def _fields(content: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of each field that holds bytes, and (number, value, 0) of each number. Raises ValueError or
    IndexError for what is no message."""
    while at < end:
        tag, at = _number(content, at)
        kind = tag & 7
        if kind == 0:
            value, at = _number(content, at)
            yield tag >> 3, value, 0
        elif kind == 2:
            length, at = _number(content, at)
            if at + length > end:
                raise ValueError("a field is longer than its message")
            yield tag >> 3, at, at + length
            at += length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError("no protobuf message")


def _number(content: mmap.mmap, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than ten bytes")


def fixed_batch_of(graph: FileGraph) -> int | None:
    """The only batch size of the file; None where it is free, or where the file could not be read."""
    shapes = {name: shape for name, shape in graph.inputs.items() if name not in graph.constants}
    return fixed_batch(shapes, axes_of_graph(shapes))
