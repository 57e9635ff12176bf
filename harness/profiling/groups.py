"""Assigns each part of a model to a group: by its own kind, then by the modules around it (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.core.schemas.profile_record import Group

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

_BY_KIND: tuple[tuple[re.Pattern[str], Group], ...] = (
    (_LAYOUT, "layout"),
    (_CONVOLUTION, "convolution"),
    (_NORMALISATION, "normalisation"),
    (_EMBEDDING, "embedding"),
)
_BY_PLACE: tuple[tuple[re.Pattern[str], Group], ...] = (
    (_ATTENTION, "attention"),
    (_MLP, "mlp"),
    (_EMBEDDING, "embedding"),
)
_REST: tuple[tuple[re.Pattern[str], Group], ...] = (
    (_ACTIVATION, "activation"),
    (_POOLING, "pooling"),
    (_LINEAR, "linear"),
)


def group_of(kinds: Sequence[str], around: Sequence[str] = ()) -> Group:
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
BY_NAME_ALONE = (MATMUL, ELEMENTWISE, OPERATORS)
"""Groups that only operators and kernels have, never layers."""

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
