"""Profiles by layer of which everything is known."""

from __future__ import annotations

from typing import Any

from harness.core.schemas.profile_record import LayerRow, OperatorRow, PartsProfile


def layer(name: str, self_ns: int, **more: Any) -> LayerRow:
    return LayerRow.model_validate(
        {
            "name": name,
            "kind": "Linear",
            "depth": 0,
            "parent": None,
            "calls": 1,
            "self_ns": self_ns,
            "total_ns": self_ns,
            "flops": None,
            "parameters": None,
            "output_shapes": ((1, 128, 384),),
            "output_bytes": 4,
            **more,
        }
    )


EAGER = PartsProfile(
    layers=(
        layer("(model)", 1_000_000, total_ns=20_000_000, flops=300),
        layer("attention", 7_000_000, depth=1, parent="(model)", flops=100, group="attention", calls=2),
        layer("dropout", 0, depth=1, parent="(model)", flops=0),
        layer("mlp", 12_000_000, depth=1, parent="(model)", flops=200, group="mlp"),
    ),
    operators=(
        OperatorRow(name="aten::addmm", shapes="[4,8] [8,8]", calls=2, self_cpu_ns=9_000_000, self_device_ns=None),
    ),
    traces=(),
    window_ns=20_400_000,
    plain_ns=20_000_000,
    notes=("A note.",),
    grade="A",
    ratios=(0.98, 1.0),
    steady=True,
)


ORT = PartsProfile(
    layers=(
        layer("node_a", 3_000_000, kind="MatMul", parent="attention", group="attention"),
        layer("node_b", 5_000_000, kind="Gelu", parent="mlp.act", group="mlp", members=("x", "y", "z", "u", "v")),
        layer("ReorderOutput", 40_000, kind="ReorderOutput", group="layout"),
    ),
    operators=(),
    traces=(),
    window_ns=8_100_000,
    plain_ns=8_000_000,
)
