"""One forward pass of a module for the export, whoever wrote the module."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from harness.core.errors import ConfigError
from harness.core.extensions import reason


def forward(module: nn.Module, arguments: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The outputs of a module, a single one as a tuple too. Raises ConfigError where its forward raises."""
    try:
        answer = module(*arguments)
    except (Exception, SystemExit) as error:  # whatever the module's own code raises
        given = ", ".join(f"{str(one.dtype).removeprefix('torch.')}{list(one.shape)}" for one in arguments)
        raise ConfigError(
            f"The forward of {type(module).__name__} raised {reason(error)} (its inputs: {given}).",
            "Call the module with inputs of these shapes: it must take a batch of any size, in fp32 on the CPU.",
        ) from error
    return answer if isinstance(answer, tuple) else (answer,)
