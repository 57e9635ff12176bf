"""Modules as NVTX ranges, so that Nsight Systems names them: `nsys profile -t cuda,nvtx` around the profile stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from harness.backends.profiles.torch_hooks import hooked


@contextmanager
def nvtx_ranges(module: nn.Module, nvtx: Any = torch.cuda.nvtx) -> Iterator[None]:
    """Hooks on every module that open a range by its path and close it; all are gone afterwards.

    nvtx: has range_push(text) and range_pop(). Ranges are the host's: while a module's kernels are enqueued.
    """

    def push(path: str) -> Callable[..., None]:
        def enter(*_: object) -> None:
            nvtx.range_push(path)

        return enter

    def pop(_path: str) -> Callable[..., None]:
        def leave(*_: object) -> None:
            nvtx.range_pop()

        return leave

    with hooked(module, push, pop):
        yield
