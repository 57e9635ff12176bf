"""The arithmetic and the least memory traffic of one item, counted on the reference module for the roofline.

Fused kernels hide their products from the counter: a ViT-B/16 whose attention is fused shows 11.3 of its 17.6 GMAC.
So attention is computed in separate products while counting, and put back as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from harness.core.schemas import Work
from harness.zoo.forward import forward
from harness.zoo.loaded import Arrays, Inputs, Loaded

# fmt: off
PRODUCTS = frozenset((
    "addbmm", "addmm", "addmv", "attention", "baddbmm", "bmm", "cdist", "conv", "convolution", "dot", "fft", "gru",
    "linear", "lstm", "mm", "mv", "rnn", "transformer", "vdot",
))
# fmt: on
"""Words in the names of operators that consist of products: where the counter does not know one, too little is counted.
Activations, normalisations and poolings are left out of FLOPs by convention, here as in published figures."""

_WINOGRAD_KERNELS = ((3, 3), (5, 5))
"""Kernel sizes for which cuDNN offers Winograd's algorithm (cuDNN, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED)."""

_CONVOLUTIONS = (torch.ops.aten.convolution, torch.ops.aten._convolution)
"""The second one in traced modules; their arguments begin alike."""

_LOOKUPS = (nn.Embedding, nn.EmbeddingBag)


def work_of(loaded: Loaded, inputs: Mapping[int | None, Inputs]) -> tuple[Work, ...]:
    """What one item costs, by sequence length of the given inputs; () for a user's ONNX file, which has no module."""
    if loaded.module is None:
        return ()
    module, counted = loaded.module, []
    with torch.no_grad(), _unfused(loaded):
        for length, made in inputs.items():
            counted.append(_count(module, loaded.input_names, length, made.arrays))
    return tuple(counted)


def _count(module: nn.Module, names: tuple[str, ...], length: int | None, arrays: Arrays) -> Work:
    item = {name: arrays[name][:1] for name in names}
    counter, seen = FlopCounterMode(display=False), _Seen()
    # The counter takes composite operators apart; what it hands on is seen by the mode around it.
    with seen, counter:
        outputs = forward(module, [torch.from_numpy(item[name]) for name in names])
    return Work(
        sequence_length=length,
        flops_per_item=int(counter.get_total_flops()),
        parameters=_read_parameters(module),
        input_bytes_per_item=sum(values.nbytes for values in item.values()),
        output_elements_per_item=sum(output.numel() for output in outputs),
        winograd_flops_per_item=seen.winograd_flops,
        uncounted=tuple(sorted(seen.uncounted)),
    )


def _read_parameters(module: nn.Module) -> int:
    """Elements of all parameters less lookup tables, of which a pass reads some rows; a table that is also an output
    layer's weight counts, because that reads all of it."""
    read = {
        id(parameter): parameter.numel()
        for part in module.modules()
        if not isinstance(part, _LOOKUPS)
        for parameter in part.parameters(recurse=False)
    }
    return sum(read.values())


@contextmanager
def _unfused(loaded: Loaded) -> Iterator[None]:
    """Attention in separate products, of transformers as of torch's own nn.MultiheadAttention."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    if loaded.set_attention is not None:
        loaded.set_attention("eager")
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        if loaded.set_attention is not None and loaded.attention is not None:
            loaded.set_attention(loaded.attention)


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches the operators that really run: which products the counter misses, which convolutions need fewer."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.uncounted: set[str] = set()
        self.winograd_flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator and look at it."""
        answer = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        if packet not in flop_registry:
            name = packet.__name__
            if PRODUCTS & set(re.split(r"[\d_]+", name)):
                self.uncounted.add(name)
        elif packet in _CONVOLUTIONS and _is_winograd(*args):
            self.winograd_flops += int(flop_registry[packet](*args, **(kwargs or {}), out_val=answer))
        return answer


def _is_winograd(
    _values: Any, weight: torch.Tensor, _bias: Any, stride: Any, _padding: Any, dilation: Any, *more: Any
) -> bool:
    """Whether a convolution (arguments of _CONVOLUTIONS) is one that Winograd's algorithm can do."""
    transposed, _output_padding, groups, *_ = more
    plain = not transposed and groups == 1 and set(stride) == set(dilation) == {1}
    return plain and tuple(weight.shape[2:]) in _WINOGRAD_KERNELS
