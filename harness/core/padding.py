"""Padding of batched texts: which tokens an attention mask shows (pure).

A model's values for padding tokens mean nothing: backends with fused attention give others there, and backends that
remove padding give zeros.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

MASK = "attention_mask"
"""The input that has 1 for a token and 0 for padding."""

Mask = NDArray[np.bool_]
"""(samples, tokens); True for a token, False for padding."""


def mask_of(inputs: Mapping[str, NDArray[np.generic]]) -> Mask | None:
    """The mask of a batch, samples first, as a copy; None where nothing is padding.

    Only an integer or boolean (samples, tokens) of 0 and 1 is such a mask. With any other one everything is compared,
    and everything of a sample of which it shows no token.
    """
    mask = inputs.get(MASK)
    if mask is None or mask.ndim != 2 or mask.dtype.kind not in "iub":
        return None
    shown: Mask = mask == 1
    if not (shown | (mask == 0)).all():
        return None
    shown[~shown.any(axis=1)] = True
    return None if shown.all() else shown


def applies(mask: Mask | None, shape: tuple[int, ...]) -> bool:
    """Whether an output of that shape has values for each token: (samples, tokens, values, …).

    An output (samples, n) may be an embedding or logits, so that all of it is compared, even with n tokens.
    """
    return mask is not None and len(shape) > len(mask.shape) and shape[: len(mask.shape)] == mask.shape


def cut(inputs: Mapping[str, NDArray[np.generic]], mask: Mask, tokens: int) -> dict[str, NDArray[np.generic]]:
    """The same inputs with the first tokens alone, none of which is padding; samples first. mask: of the inputs."""
    shorter = {
        name: values[:, :tokens] if values.shape[: mask.ndim] == mask.shape else values
        for name, values in inputs.items()
    }
    return {**shorter, MASK: np.ones_like(shorter[MASK])}
