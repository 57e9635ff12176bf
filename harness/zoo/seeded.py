"""Random weights that behave: from a fixed seed, with heads that answer and batch norms fitted to real inputs.

Fresh batch norms assume activations of variance 1, which random convolutions do not give: MobileNetV2's outputs are
then 1e-9, so that fp16 answers with zeros. torchvision's ViT starts with a head of zeros and answers nothing else.
Either way every parity check would compare nothing with nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

_SAMPLES = 8


def seeded(
    build: Callable[[], nn.Module], seed: int, inputs: Callable[[int], NDArray[np.generic]]
) -> tuple[nn.Module, str]:
    """The module with weights from `seed`, and what was done in words. `inputs` gives that many samples."""
    torch.manual_seed(seed)
    module = build()
    for part in module.modules():
        if isinstance(part, nn.Linear) and not part.weight.any():
            nn.init.trunc_normal_(part.weight, std=0.02)  # as ViT's own training code initialises its other layers
    if _fit_batch_norms(module, inputs):
        return module.eval(), f"random, seed {seed}, batch norms fitted to {_SAMPLES} photographs"
    return module.eval(), f"random, seed {seed}"


def _fit_batch_norms(module: nn.Module, inputs: Callable[[int], NDArray[np.generic]]) -> bool:
    """Give the batch norms the statistics of real inputs; False where there are none."""
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    if not norms:
        return False
    module.eval()
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        norm.momentum = None  # the statistics of this one pass, not a running average with the initial ones
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums depend on how they are split between threads
    with torch.no_grad():
        module(torch.from_numpy(inputs(_SAMPLES)))
    torch.set_num_threads(threads)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return True
