"""Build a module without filling its weights with random numbers that are overwritten at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode


class Uninitialised(TorchFunctionMode):
    """Inside this context the functions of torch.nn.init leave their tensor as it is.

    Initialising takes longer than loading: it would be half of the cold cost of a small model.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Answer torch.nn.init with its own argument; let everything else through."""
        given = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else given["tensor"]
        return func(*args, **given)
