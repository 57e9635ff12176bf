"""What a module's products are computed in, seen in one eager pass: parameters do not say what forward() casts them to.

`torch.autocast` in forward, a cast before a layer or a global switch that lowers the precision of products leave the
parameters as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from harness.zoo.work import is_product

LEAST_SHARE = 0.01
"""Of the FLOPs of a pass: less, as the angles of rotary embeddings in fp32, says nothing about the whole."""


def computed_in(call: Callable[[], object], word: Callable[[torch.dtype], str]) -> tuple[str, ...]:
    """Words for what at least LEAST_SHARE of a pass's products were computed in, sorted; () where there are none.

    word: of an element type, as the switches are when it is asked; it is asked at each product.
    """
    seen = _Seen(word)
    # The counter takes composite operators apart; what it hands on is seen by the mode around it.
    with seen, FlopCounterMode(display=False):
        call()
    whole = sum(seen.flops.values())
    return tuple(sorted(name for name, flops in seen.flops.items() if flops >= LEAST_SHARE * whole))


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up FLOPs of products by the word for what they ran in."""

    def __init__(self, word: Callable[[torch.dtype], str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: Counter[str] = Counter()
        self._word = word

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator and look at it."""
        answer = func(*args, **(kwargs or {}))
        tensors = [one for one in args if isinstance(one, torch.Tensor) and one.is_floating_point()]
        if tensors:
            packet = func._overloadpacket
            if packet in flop_registry:
                flops = int(flop_registry[packet](*args, **(kwargs or {}), out_val=answer))
                self.flops[self._word(tensors[-1].dtype)] += flops
            elif is_product(packet.__name__):
                self.flops[self._word(tensors[-1].dtype)] += _about(tensors)
        return answer


def _about(tensors: list[torch.Tensor]) -> int:
    """FLOPs of an operator that is not counted, by the size of its operands: queries by keys, inputs by weights."""
    first, second = tensors[0], tensors[min(1, len(tensors) - 1)]
    return 4 * first.numel() * (second.shape[-2] if second.ndim > 1 else 1)
