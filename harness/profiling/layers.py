"""Layers of a profile: the group of each, and those chosen for a table by group, path or class (pure)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import get_args

from harness.core.schemas.profile_record import LayerGroup, LayerRow

_LAYOUT = re.compile("reorder|memcpy|reformat|copynode", re.IGNORECASE)
_CONVOLUTION = re.compile("conv(?!1D|ert)", re.IGNORECASE)
"""transformers' Conv1D is a linear layer, and OpenVINO's Convert is a cast."""
_NORMALISATION = re.compile("norm|^MVN$", re.IGNORECASE)
_EMBEDDING = re.compile("embed", re.IGNORECASE)
_ATTENTION = re.compile("attention|attn", re.IGNORECASE)
_MLP = re.compile(
    r"mlp|ffn|feed_?forward|intermediate|LayerFF|DenseAct|^[A-Z][A-Za-z]+Output$|^layer\.\d+\.output$", re.IGNORECASE
)
"""BertOutput, by its name `layer.0.output`, is the end of BERT's MLP; BertSelfOutput is in BertAttention, which
matches earlier."""
_ACTIVATION = re.compile("relu|gelu|silu|swish|sigmoid|softmax|tanh|elu$|clip", re.IGNORECASE)
_POOLING = re.compile("pool|^Global", re.IGNORECASE)
_LINEAR = re.compile("(?<!quantize)linear|gemm|matmul|fullyconnected|conv1d", re.IGNORECASE)
"""QuantizeLinear only scales."""

_BY_KIND: tuple[tuple[re.Pattern[str], LayerGroup], ...] = (
    (_LAYOUT, "layout"),
    (_CONVOLUTION, "convolution"),
    (_NORMALISATION, "normalisation"),
    (_EMBEDDING, "embedding"),
)
_BY_PLACE: tuple[tuple[re.Pattern[str], LayerGroup], ...] = (
    (_ATTENTION, "attention"),
    (_MLP, "mlp"),
    (_EMBEDDING, "embedding"),
)
_REST: tuple[tuple[re.Pattern[str], LayerGroup], ...] = (
    (_ACTIVATION, "activation"),
    (_POOLING, "pooling"),
    (_LINEAR, "linear"),
)


def group_of(kinds: Sequence[str], around: Sequence[str] = ()) -> LayerGroup:
    """The group of one part.

    kinds: its module's class, its operator, or both. around: names and classes of the modules that contain it, in any
    order. Layout, convolution, normalisation and embedding are decided by kind, anywhere in the model; then attention,
    MLP and embedding by kind and the modules around the part; the other groups again by kind.
    """
    for words, rules in ((kinds, _BY_KIND), ((*kinds, *around), _BY_PLACE), (kinds, _REST)):
        for pattern, group in rules:
            if any(pattern.search(word) for word in words):
                return group
    return "other"


OPERATORS = "operators"
"""Operators whose names show no group."""
MATMUL = "matmul"
"""GPU kernels that may serve a linear layer, attention or a 1×1 convolution."""
ELEMENTWISE = "elementwise"
"""GPU kernels of sums, biases, casts, and of activations in attention or an MLP."""

_ANYWHERE: tuple[tuple[str, re.Pattern[str]], ...] = (
    (OPERATORS, re.compile("attention|sdpa|fmha|flash", re.IGNORECASE)),
    ("layout", re.compile("memcpy|reorder|nchwtonhwc|nhwctonchw|reformat|transpose", re.IGNORECASE)),
    ("convolution", re.compile("conv(?!ert)|winograd|fprop", re.IGNORECASE)),
    ("normalisation", re.compile("norm(?!al)", re.IGNORECASE)),
    ("embedding", re.compile("embedding", re.IGNORECASE)),
)
"""Patterns for names of PyTorch's operators, of Inductor's kernels, which list what they fuse, and of cuDNN's kernels.
Attention is first: its kernels are only a part of the group `attention`, and cuDNN names some of them like its
convolutions."""

_OUTSIDE_BLOCKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("pooling", re.compile("pool|::mean$", re.IGNORECASE)),
    ("linear", re.compile("linear|addmm|::mm$|::bmm$|::_scaled_mm$", re.IGNORECASE)),
    ("activation", re.compile("relu|silu|hardswish|sigmoid|softmax|clamp|hardtanh", re.IGNORECASE)),
)

_KERNELS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (MATMUL, re.compile("gemm|gemv|nvjet|cutlass", re.IGNORECASE)),
    (ELEMENTWISE, re.compile("elementwise|^triton_poi_|op_generic_tensor_kernel|BroadcastBias", re.IGNORECASE)),
)
"""nvjet is of cuBLAS; op_generic_tensor_kernel is cuDNN's cudnnAddTensor, a bias after ONNX Runtime's convolutions."""


def group_of_operator(name: str, in_blocks: bool) -> str:
    """The group of an operator or a kernel, or OPERATORS.

    in_blocks: whether its model has attention or MLP blocks, to which it may belong.
    """
    for group, pattern in (*_ANYWHERE, *(() if in_blocks else _OUTSIDE_BLOCKS), *_KERNELS):
        if pattern.search(name):
            return group
    return OPERATORS


_NEAR = 5
"""Number of names that an error lists."""

_CUTOFF = 0.4
"""Smallest similarity of a near name, by difflib."""


@dataclass(frozen=True)
class LayerChoice:
    """words: groups, paths of modules with `*`, or classes; without words every layer is chosen. depth: in the module
    tree, where the model is 0. A deeper layer counts for the module at that depth that contains it; None: no limit."""

    words: tuple[str, ...] = ()
    depth: int | None = None


EVERYTHING = LayerChoice()


def chosen_layers(layers: Sequence[LayerRow], choice: LayerChoice = EVERYTHING) -> tuple[LayerRow, ...]:
    """The layers that match any word; layers below the depth are added to the module that contains them.

    self_ns and flops of a row are its own and those of the layers added to it, without those of modules in it that have
    a row. A row whose layers all have one group has that group.
    """
    by_name = {row.name: row for row in layers}
    flops = _own_flops(layers)
    taken: dict[str, list[LayerRow]] = {}
    for row in layers:
        if not choice.words or any(matches(row, word) for word in choice.words):
            taken.setdefault(_place(row, by_name, choice.depth).name, []).append(row)
    return tuple(_sum(by_name[name], rows, flops) for name, rows in taken.items())


def matches(row: LayerRow, word: str) -> bool:
    """Whether a word chooses a layer: by its group, else by its class, or by its module or a module around it.

    A path may begin at any module: `layer.0` finds `encoder.layer.0` and `encoder.layer.0.attention`. For a node of a
    graph, its own name and the path of the module that it came from count.
    """
    if word in get_args(LayerGroup):
        return row.group == word
    return fnmatchcase(row.kind, word) or any(_is_inside(name, word) for name in (row.name, row.parent) if name)


def unmatched_words(words: Iterable[str], profiles: Iterable[Sequence[LayerRow]]) -> list[str]:
    """The words that choose no layer of any profile."""
    rows = [row for layers in profiles for row in layers]
    return [word for word in words if not any(matches(row, word) for row in rows)]


def near_names(word: str, profiles: Iterable[Sequence[LayerRow]]) -> list[str]:
    """Names that are similar to a word, the most similar first; where none is, the groups of the profiles."""
    rows = [row for layers in profiles for row in layers]
    groups = list(dict.fromkeys(str(row.group) for row in rows))
    paths = {end for row in rows for name in (row.name, row.parent) if name for end in _ends(name)}
    known = {name.lower(): name for name in (*sorted(paths), *sorted({row.kind for row in rows}), *groups)}
    near = difflib.get_close_matches(word.strip("*").lower(), known, n=_NEAR, cutoff=_CUTOFF)
    return [known[name] for name in near] or groups


def _is_inside(path: str, pattern: str) -> bool:
    """Whether any part of a path matches the pattern: then the path is that module, or is inside it."""
    names = path.split(".")
    places = range(len(names))
    return any(
        fnmatchcase(".".join(names[begin : end + 1]), pattern) for begin in places for end in places if end >= begin
    )


def _ends(path: str) -> list[str]:
    """The ends of a path from each of its modules, with numbers as `*`, because layers with other numbers are alike."""
    names = ["*" if name.isdecimal() else name for name in path.split(".")]
    return [".".join(names[begin:]) for begin, name in enumerate(names) if name != "*"]


def _place(row: LayerRow, by_name: Mapping[str, LayerRow], depth: int | None) -> LayerRow:
    """The row itself, or the module at that depth that contains it."""
    above = by_name.get(row.parent or "")
    while depth is not None and row.depth > depth and above is not None:
        row, above = above, by_name.get(above.parent or "")
    return row


def _own_flops(layers: Sequence[LayerRow]) -> dict[str, int | None]:
    """Name → FLOPs without those of its children."""
    inner: dict[str, int] = {}
    for row in layers:
        if row.parent is not None:
            inner[row.parent] = inner.get(row.parent, 0) + (row.flops or 0)
    return {row.name: None if row.flops is None else row.flops - inner.get(row.name, 0) for row in layers}


def _sum(place: LayerRow, rows: Sequence[LayerRow], flops: Mapping[str, int | None]) -> LayerRow:
    groups = {row.group for row in rows}
    known = [own for row in rows if (own := flops[row.name]) is not None]
    return place.model_copy(
        update={
            "self_ns": sum(row.self_ns for row in rows),
            "flops": sum(known) if known else None,
            "group": groups.pop() if len(groups) == 1 else place.group,
        }
    )


def ns_by_group(layers: Sequence[LayerRow]) -> dict[LayerGroup, int]:
    """Group → self time in ns, the longest first."""
    sums: dict[LayerGroup, int] = {}
    for row in layers:
        sums[row.group] = sums.get(row.group, 0) + row.self_ns
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def total_ns(layers: Sequence[LayerRow]) -> int:
    """Sum of all self times in ns."""
    return sum(row.self_ns for row in layers)


def module_ns(layers: Sequence[LayerRow], module: str) -> int | None:
    """Self time in ns of a module, of modules inside it, and of nodes that came from them; None without any, as for
    a module that was fused into others."""
    below = f"{module}."
    times = [
        row.self_ns
        for row in layers
        if module in (row.name, row.parent) or row.name.startswith(below) or (row.parent or "").startswith(below)
    ]
    return sum(times) if times else None
