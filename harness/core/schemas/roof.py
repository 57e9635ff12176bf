"""results/roof.json: what a device can do at most, as measured."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.vocabulary import Precision, Record


class Roof(Record):
    """Measured limits of one device: nothing that runs on it is faster."""

    schema_version: Literal[1] = 1
    created_at: str
    environment_id: str
    device: str
    """Name of the GPU."""
    uuid: str
    flops: dict[Precision, float]
    """Best matrix product, FLOP/s, 2 a multiply-add."""
    copy_bytes_per_s: float
    """Best device-to-device copy, bytes read plus bytes written."""
    launch_ns: float
    """Device time of one more dependent empty kernel in a CUDA graph."""
    h2d_bytes_per_s: float | None = None
    d2h_bytes_per_s: float | None = None
    """Copies from and to pinned host memory."""
