"""Profiles without a profiler: a tree of modules, a graph whose nodes name their modules, and cases that have them.

Used by the tests of report.html.
"""

from __future__ import annotations

from typing import Any

from harness.core.schemas import Row
from harness.core.schemas.profile_record import Achieved, LayerRow, ModelProfile, OperatorRow, PartsProfile


def layer(name: str, self_ns: int, total_ns: int | None = None, **more: Any) -> LayerRow:
    return LayerRow(name=name, kind="Linear", self_ns=self_ns, total_ns=total_ns or self_ns, **more)


MODULES = (
    layer("(model)", 1_000, 10_000, flops=900),
    layer("encoder", 0, 9_000, depth=1, parent="(model)", flops=900),
    layer("encoder.layer.0", 4_000, 9_000, depth=2, parent="encoder", group="attention", parameters=2_000_000),
    layer("encoder.layer.0.mlp", 5_000, depth=3, parent="encoder.layer.0", group="mlp", output_shapes=((1, 4), ())),
)
GRAPH = (
    layer("MatMul_0", 3_000, parent="encoder.layer.0.mlp", group="mlp", members=("Add_1", "Gelu_2")),
    layer("Softmax_3", 2_000, parent="encoder.layer.0.attention", group="attention"),
    layer("MatMul_4", 1_000, parent="encoder.layer.0.attention", group="attention"),
    layer("Reorder_5", 500, group="layout"),
)


def module_tree(blocks: int) -> tuple[LayerRow, ...]:
    """A model of so many blocks, each of attention and MLP, as a profiler of modules reports it."""
    rows = [layer("(model)", 1_000, 1_000 + 10_000 * blocks)]
    for number in range(blocks):
        name = f"block.{number}"
        rows += [
            layer(name, 1_000, 10_000, depth=1, parent="(model)"),
            layer(f"{name}.attention", 6_000, depth=2, parent=name, group="attention"),
            layer(f"{name}.mlp", 3_000, depth=2, parent=name, group="mlp", flops=2_000_000),
        ]
    return tuple(rows)


def model_profile(row: Row, latency_ns: float = 20e6, **more: Any) -> ModelProfile:
    fields: dict[str, Any] = {
        **dict.fromkeys(ModelProfile.model_fields),
        "schema_version": 2,
        "case_id": row.case_id,
        "settings_id": "p",
        "created_at": "2026-11-28T00:00:00+00:00",
        "environment_id": "e",
        "model": row.model,
        "backend": row.backend,
        "setting": row.setting,
        "precision": row.precision,
        "batch_size": row.batch_size,
        "sequence_length": row.sequence_length,
        "convention": "2 FLOPs",
        "parameters": 22_700_000,
        "flops_per_batch": 2_870_000_000,
        "macs": 1_435_000_000,
        "parameters_by_type": {},
        "weight_bytes": {},
        "activation_bytes_by": "x",
        "activation_measured_by": "y",
        **dict.fromkeys(("uncounted", "count_notes", "files", "memory_files"), ()),
        "achieved": Achieved(
            latency_ns=latency_ns,
            device_ns=None,
            items_per_s=50.0,
            tokens_per_s=6_400.0,
            flops_per_s=143e9,
            peak_share=0.5,
            notes=(),
        ),
        **more,
    }
    return ModelProfile.model_validate(fields)


def parts(layers: tuple[LayerRow, ...] = MODULES, **more: Any) -> PartsProfile:
    operators = (OperatorRow(name="aten::mm", shapes="[4]", calls=1, self_cpu_ns=7_000, self_device_ns=None),)
    fields = {"operators": operators, "traces": ("a.trace.json",), "window_ns": 11_000, "plain_ns": 11_000, **more}
    return PartsProfile(layers=layers, **fields)
