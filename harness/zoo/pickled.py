"""Weights that were stored by pickle: read as tensors, never as code."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

from harness.core.errors import ConfigError


@contextmanager
def tensors_only(model: str) -> Iterator[None]:
    """Around loading with `weights_only=True`: ConfigError where the file holds anything else than tensors."""
    try:
        yield
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"The weights of {model} are a pickle that holds more than tensors and could run code: refused.",
            f"Save them as safetensors (`save_pretrained` does), or set `weights: seeded` for {model}.",
        ) from error
