"""Precision fp8: linear layers that multiply in float8_e4m3fn, everything between them in bf16.

A scale for each output channel of the weights, made once, and one for each row of the inputs, made at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import nn

from harness.backends.gpu_peaks import FP8_CAPABILITY
from harness.core.errors import NotSupportedError

FLOAT8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FLOAT8).max
"""448."""

MULTIPLE = 16
"""Both dimensions of a weight are multiples of it: torch._scaled_mm takes no others."""

FAST_ACCUMULATION = True
"""use_fast_accum of torch._scaled_mm: sums stay in the Tensor Cores' own accumulator. PyTorch's own fp8 inference
(torchao) has it on; a CPU ignores it."""

_SMALLEST = 1e-12
"""Largest magnitude of a row from which on it has a scale of its own; a row of zeros has this one's."""

_READERS = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
"""Modules that hand the weights of their linear layers to an operator of their own instead of calling the layers."""


def quantised(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(values in fp8, scales of shape (rows, 1) in fp32): the largest magnitude of each row becomes 448."""
    wide = rows.float()
    scales = wide.abs().amax(dim=-1, keepdim=True).clamp(min=_SMALLEST) / LARGEST
    return (wide / scales).clamp(-LARGEST, LARGEST).to(FLOAT8), scales


class Fp8Linear(nn.Module):
    """A linear layer whose product is one torch._scaled_mm, its bias added before the result is rounded."""

    scales: torch.Tensor

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        """dtype: of bias and results; of bf16 and fp16 only bf16 is right in every version (row-wise scales)."""
        super().__init__()
        weight, scales = quantised(linear.weight.detach())
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().to(dtype), requires_grad=False)
        self.register_buffer("scales", scales.t())
        self._dtype = dtype

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Quantise the rows, multiply."""
        rows, scales = quantised(values.reshape(-1, values.shape[-1]))
        product = torch._scaled_mm(
            rows,
            self.weight.t(),
            scale_a=scales,
            scale_b=self.scales,
            bias=self.bias,
            out_dtype=self._dtype,
            use_fast_accum=FAST_ACCUMULATION,
        )
        return product.reshape(*values.shape[:-1], -1)


def in_fp8(module: nn.Module, place: Callable[[nn.Module, torch.dtype], nn.Module], dtype: torch.dtype) -> nn.Module:
    """The module as `place` moves and converts it, its linear layers quantised there from their fp32 weights.

    Raises NotSupportedError where no layer can be.
    """
    layers = list(_linears(module))
    if not layers:
        raise NotSupportedError(
            f"fp8 quantises linear layers (torch.nn.Linear, both dimensions multiples of {MULTIPLE}); there is none.",
            "Leave fp8 out for this model (PRECISIONS=…; `precisions:` in the configuration).",
        )
    for name, _ in layers:
        module.set_submodule(name, nn.Identity())
    placed = place(module, dtype)
    made: dict[int, Fp8Linear] = {}
    for name, linear in layers:
        if id(linear) not in made:
            made[id(linear)] = Fp8Linear(cast("nn.Linear", place(linear, torch.float32)), dtype)
        placed.set_submodule(name, made[id(linear)])
    return placed


def _linears(module: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """The layers by every name that they have. Subclasses compute in ways of their own and stay."""
    read = {id(part) for reader in module.modules() if isinstance(reader, _READERS) for part in reader.children()}
    for name, part in module.named_modules(remove_duplicate=False):
        if type(part) is not nn.Linear or not name or id(part) in read:
            continue
        if part.in_features % MULTIPLE == 0 and part.out_features % MULTIPLE == 0:
            yield name, part


def require_capability(capability: tuple[int, int], name: str) -> None:
    """Raise NotSupportedError for a GPU that cannot multiply in fp8."""
    if capability < FP8_CAPABILITY:
        needed, has = (".".join(map(str, version)) for version in (FP8_CAPABILITY, capability))
        raise NotSupportedError(
            f"fp8 products need compute capability {needed} or higher; {name} has {has}.",
            "Leave fp8 out on this GPU (PRECISIONS=…; `precisions:` in the configuration).",
        )


def settings(module: nn.Module) -> dict[str, str | int | float | bool]:
    """Settings of the row: how many layers were quantised and how many were not, and how they multiply."""
    parts = list(module.modules())
    return {
        "fp8_layers": sum(isinstance(part, Fp8Linear) for part in parts),
        "other_linear_layers": sum(isinstance(part, nn.Linear) for part in parts),
        "fp8_scales": "a row of the inputs, at each call; an output channel of the weights, once",
        "fp8_fast_accumulation": FAST_ACCUMULATION,
    }
