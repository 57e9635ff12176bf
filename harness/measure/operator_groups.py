"""To which group an operator or a GPU kernel belongs, by its name alone (pure).

A linear layer's operator does not tell whether it stands in attention, in an MLP or elsewhere. Where a model has
those, only groups are told that do not depend on the place, and the rest stays together.
"""

from __future__ import annotations

import re

OPERATORS = "operators"
"""What the names do not tell."""
MATMUL = "matmul"
"""GPU kernels that may serve a linear layer, attention or a 1×1 convolution."""
ELEMENTWISE = "elementwise"
"""GPU kernels of sums, biases, casts and of activations in attention or an MLP."""
BY_NAME_ALONE = (MATMUL, ELEMENTWISE, OPERATORS)
"""Groups that no layer has."""

_ANYWHERE: tuple[tuple[str, re.Pattern[str]], ...] = (
    (OPERATORS, re.compile("attention|sdpa|fmha|flash", re.IGNORECASE)),
    ("layout", re.compile("memcpy|reorder|nchwtonhwc|nhwctonchw|reformat|transpose", re.IGNORECASE)),
    ("convolution", re.compile("conv(?!ert)|winograd|fprop", re.IGNORECASE)),
    ("normalisation", re.compile("norm(?!al)", re.IGNORECASE)),
    ("embedding", re.compile("embedding", re.IGNORECASE)),
)
"""Names of PyTorch's operators, of Inductor's kernels, which list what they fuse, and of cuDNN's. Attention is first:
its kernels are only a part of the group `attention`, and cuDNN names some of them like its convolutions."""

_OUTSIDE_BLOCKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("pooling", re.compile("pool|::mean$", re.IGNORECASE)),
    ("linear", re.compile("linear|addmm|::mm$|::bmm$", re.IGNORECASE)),
    ("activation", re.compile("relu|silu|hardswish|sigmoid|softmax|clamp|hardtanh", re.IGNORECASE)),
)

_KERNELS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (MATMUL, re.compile("gemm|gemv|nvjet|cutlass", re.IGNORECASE)),
    (ELEMENTWISE, re.compile("elementwise|^triton_poi_|op_generic_tensor_kernel|BroadcastBias", re.IGNORECASE)),
)
"""nvjet is cuBLAS's; op_generic_tensor_kernel is cuDNN's cudnnAddTensor, a bias behind ONNX Runtime's convolutions."""


def group_of_operator(name: str, in_blocks: bool) -> str:
    """The group of an operator or a kernel, or OPERATORS.

    in_blocks: whether the model that it belongs to has attention or MLP blocks, to which it may belong.
    """
    for group, pattern in (*_ANYWHERE, *(() if in_blocks else _OUTSIDE_BLOCKS), *_KERNELS):
        if pattern.search(name):
            return group
    return OPERATORS
