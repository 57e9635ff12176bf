"""torch.nn's own attention without its fused operator, which counters do not see into and older ONNX does not have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def unfused_attention() -> Iterator[None]:
    """Their separate operators until the block ends."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
