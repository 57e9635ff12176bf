"""To which group an operator or a GPU kernel belongs, by its name alone (pure).

A linear layer's operator does not tell whether it stands in attention, in an MLP or elsewhere. Where a model has
those, only groups are told that do not depend on the place, and the rest stays together.
"""

from __future__ import annotations

import re

OPERATORS = "operators"
"""What the names do not tell."""

_ANYWHERE: tuple[tuple[str, re.Pattern[str]], ...] = (
    (OPERATORS, re.compile("attention|sdpa|fmha|flash", re.IGNORECASE)),
    ("layout", re.compile("memcpy|reorder|nchwtonhwc|nhwctonchw|reformat", re.IGNORECASE)),
    ("convolution", re.compile("conv(?!ert)|winograd|fprop", re.IGNORECASE)),
    ("normalisation", re.compile("norm(?!al)", re.IGNORECASE)),
    ("embedding", re.compile("embedding", re.IGNORECASE)),
)
"""Names of PyTorch's operators, of Inductor's kernels, which list what they fuse, and of cuDNN's. Attention is first:
its kernels are only a part of the group `attention`, and cuDNN names some of them like its convolutions."""

_OUTSIDE_BLOCKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("pooling", re.compile("pool|::mean$", re.IGNORECASE)),
    ("linear", re.compile("linear|addmm|::mm$|::bmm$|gemm|gemv", re.IGNORECASE)),
    ("activation", re.compile("relu|silu|hardswish|sigmoid|softmax|clamp|hardtanh", re.IGNORECASE)),
)


def group_of_operator(name: str, in_blocks: bool) -> str:
    """The group of an operator, or OPERATORS.

    in_blocks: whether the model that it belongs to has attention or MLP blocks, to which it may belong.
    """
    for group, pattern in _ANYWHERE if in_blocks else (*_ANYWHERE, *_OUTSIDE_BLOCKS):
        if pattern.search(name):
            return group
    return OPERATORS
