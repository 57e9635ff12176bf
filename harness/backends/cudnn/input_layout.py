"""How a batch of pictures, and the weights of the layer that reads it, lie in memory (pure; arrays are NumPy's).

Folding: a convolution of stride 2 on H × W pixels of C channels is one of stride 1 on H/2 × W/2 blocks of 2 × 2 pixels,
with 4·C channels. First layers have 3 channels, for which cuDNN has few kernels; 12 fill them better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from harness.backends.base import Array
from harness.backends.cudnn.layer_plan import Convolution, Extents, LayerPlan, Pair
from harness.core.errors import NotSupportedError

_ALIGNED = 8
"""Channels: 16 bytes of fp16, which kernels load at once."""


@dataclass(frozen=True)
class Fold:
    """Rows above and columns left of the picture that belong to the first blocks, even numbers; the plan's input then
    has the extents `blocks`, whose further rows, columns and channels are zeros."""

    margin: Pair
    blocks: Extents


def channels_last(values: Array, channels: int | None = None) -> Array:
    """(N, C, H, W) in fp32 or fp16 → (N, H, W, C) in fp16, padded with zeros to so many channels; weights likewise."""
    n, c, h, w = values.shape
    laid_out = np.zeros((n, h, w, channels or c), np.float16)
    laid_out[..., :c] = values.transpose(0, 2, 3, 1)
    return laid_out


def folded(plan: LayerPlan) -> tuple[LayerPlan, Fold]:
    """The same inference on blocks of 2 × 2 pixels. NotSupportedError where the input has another reader than one
    convolution of stride 2. The plan's input must have its own channels, not padded ones.
    """
    readers = [step for step in plan.steps if plan.source in (step.source, getattr(step, "residual", None))]
    first = readers[0]
    if len(readers) != 1 or not isinstance(first, Convolution) or _stride(first) != ((2, 2), (1, 1), 1):
        raise NotSupportedError(
            "The input cannot be folded: one convolution of stride 2 would have to be its only reader.",
            "Choose another setting of cudnn: SETTINGS=graph.",
        )
    weight = plan.constants[first.weight]
    k, c, *window = weight.shape
    odd = [before % 2 for before in first.before]
    size = [(extent + shift + 1) // 2 for extent, shift in zip(window, odd, strict=True)]
    channels = -(-4 * c // _ALIGNED) * _ALIGNED
    blocks = np.zeros((k, channels, *size), np.float32)
    for row in range(window[0]):
        for column in range(window[1]):
            y, x = row + odd[0], column + odd[1]
            place = c * (2 * (y % 2) + x % 2)
            blocks[:, place : place + c, y // 2, x // 2] = weight[:, :, row, column]
    n, _, height, width = plan.extents[first.result]
    extents = (n, channels, height + size[0] - 1, width + size[1] - 1)
    step = replace(first, stride=(1, 1), before=(0, 0), after=(0, 0))
    fold = Fold((first.before[0] + odd[0], first.before[1] + odd[1]), extents)
    changed = replace(
        plan,
        steps=tuple(step if one is first else one for one in plan.steps),
        extents={**plan.extents, plan.source: extents},
        constants={**plan.constants, first.weight: blocks},
    )
    return changed, fold


def _stride(step: Convolution) -> tuple[Pair, Pair, int]:
    return step.stride, step.dilation, step.groups


def in_blocks(values: Array, fold: Fold) -> Array:
    """(N, C, H, W) → (N, blocks down, blocks across, channels of the fold) in fp16."""
    n, c, h, w = values.shape
    _, channels, down, across = fold.blocks
    top, left = fold.margin
    pixels = np.zeros((n, 2 * down, 2 * across, c), np.float16)
    rows, columns = min(h, 2 * down - top), min(w, 2 * across - left)
    pixels[:, top : top + rows, left : left + columns] = values[:, :, :rows, :columns].transpose(0, 2, 3, 1)
    laid_out = np.zeros((n, down, across, channels), np.float16)
    laid_out[..., : 4 * c] = (
        pixels.reshape(n, down, 2, across, 2, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, down, across, 4 * c)
    )
    return laid_out
