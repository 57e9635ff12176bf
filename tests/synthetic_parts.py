"""A profile of parts whose sum is known."""

from __future__ import annotations

from typing import Any

from harness.core.schemas.profile_record import (
    LayerRow,
    PartsProfile,
)


def layer(name: str, self_ns: int, total_ns: int | None = None, depth: int = 0, **more: Any) -> LayerRow:
    return LayerRow.model_validate(
        {
            "name": name,
            "kind": "Linear",
            "depth": depth,
            "parent": None,
            "calls": 1,
            "self_ns": self_ns,
            "total_ns": self_ns if total_ns is None else total_ns,
            "flops": None,
            "parameters": None,
            "output_shapes": (),
            "output_bytes": None,
            **more,
        }
    )


def profile(parts: int, window: int, plain: int) -> PartsProfile:
    return PartsProfile(layers=(layer("a", parts),), operators=(), traces=(), window_ns=window, plain_ns=plain)
