"""Hooks on every module of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from torch import nn

from harness.backends.profiles.tree import ROOT

Hook = Callable[[str], Callable[..., None]]
"""From a module's path to what is called there; a hook that returned anything would stand in for inputs or results."""


@contextmanager
def hooked(module: nn.Module, before: Hook, after: Hook) -> Iterator[None]:
    """Call what `before` makes where a module begins and what `after` makes where it ends; gone afterwards."""
    with ExitStack() as hooks:
        for path, part in module.named_modules():
            hooks.callback(part.register_forward_pre_hook(before(path or ROOT)).remove)
            hooks.callback(part.register_forward_hook(after(path or ROOT)).remove)
        yield
