"""torch-eager: one infer() is one call of the nn.Module, operator by operator, under inference_mode."""

from __future__ import annotations

from harness.backends.torch.base import TorchBackend


class TorchEager(TorchBackend):
    """The module as its authors wrote it: the baseline of every speedup."""
