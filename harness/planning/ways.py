"""Which boundaries and modes can be planned, alone and together, and why others cannot (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.backends import BACKENDS, BackendInfo
from harness.core.errors import ConfigError
from harness.core.schemas import Boundary, Device, Mode
from harness.planning.config import Block
from harness.zoo import ModelInfo

_MODES: Mapping[Boundary, tuple[Mode, ...]] = {
    "compute": ("sync", "pipelined", "offline"),
    "transfer": ("sync", "pipelined"),
    "e2e": ("sync",),
}
"""How each boundary can be measured. In other modes a sample's parts would not be told apart."""


def refuse_impossible(block: Block, backends: Sequence[BackendInfo], device: Device, where: str) -> None:
    """Raise ConfigError for a boundary or mode of a block that no combination can use."""
    if "transfer" in block.boundaries and device == "cpu":
        problem = "on a CPU there is nothing to transfer: inputs and outputs are already where it reads and writes them"
        raise ConfigError(f"{where}.boundaries: {problem}.", "Use `compute` or `e2e`.")
    for boundary in block.boundaries:
        other = [mode for mode in block.modes if mode not in _MODES[boundary]]
        if other:
            able = " or ".join(_MODES[boundary])
            raise ConfigError(
                f"{where}: the {boundary} boundary is measured in {able} mode, not in {other[0]} mode.",
                f"Make two blocks of it: one with `boundaries: [{boundary}]`, one with `modes`.",
            )
    for mode in block.modes:
        if not any(mode in table.modes_on(device) for table in backends):
            able = ", ".join(name for name, table in BACKENDS.items() if mode in table.modes_on(device))
            raise ConfigError(
                f"{where}.modes: none of these backends has the {mode} mode.", f"These have: {able or 'none yet'}."
            )


def skipped(
    backend: str, table: BackendInfo, info: ModelInfo, device: Device, boundary: Boundary, mode: Mode
) -> str | None:
    """Why this backend has no such mode, or this model no such boundary; None where both have."""
    if mode not in table.modes_on(device):
        return f"{backend} has no {mode} mode: {table.modes_not_offered.get(mode, 'not offered')}"
    if boundary == "transfer" and not table.transfers:
        return f"no transfer boundary: {backend} has no inputs and outputs of its own to copy"
    if (boundary, mode) == ("transfer", "pipelined") and table.one_stream is not None:
        return f"no transfer boundary in pipelined mode: {table.one_stream}"
    if boundary == "e2e" and table.artifact == "none":
        return f"no e2e boundary: {backend} runs no model that text or pictures could be prepared for"
    if boundary == "e2e" and not info.preprocessing:
        return f"no e2e boundary: how text or pictures become inputs of {info.name} is not known"
    return None
