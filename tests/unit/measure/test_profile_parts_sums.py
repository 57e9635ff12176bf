"""Whether parts add up, and sums by group and module for trees and graphs alike."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.schemas.profile_parts import LayerRow, OperatorRow, PartsProfile
from harness.measure.layer_sums import by_group, inside, total
from harness.measure.reconcile import launch_gaps, reconcile


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


@pytest.mark.parametrize(
    ("parts", "window", "plain", "on_gpu", "outcome", "reason"),
    [
        (100, 105, 104, False, "adds up", ""),
        (94, 100, 104, False, "adds up", ""),
        (150, 155, 100, False, "explained", "profiler overhead: profiled runs took 1.55"),
        (150, 100, 100, True, "explained", "parallel streams or threads: parts overlap, 1.50 times"),
        (60, 100, 100, True, "explained", "launch gaps: the GPU spent 40%"),
        (60, 100, 100, False, "explained", "work between the parts: the run spent 40%"),
        (80, 81, 100, False, "unexplained", "profiled runs took 0.81 times the plain ones, and parts cover 99%"),
    ],
)
def test_sums_that_are_off_are_explained_by_rule_or_flagged(
    parts: int, window: int, plain: int, on_gpu: bool, outcome: str, reason: str
) -> None:
    found = reconcile(profile(parts, window, plain), on_gpu)
    assert found is not None
    assert found.outcome == outcome
    assert found.ratio == parts / plain
    assert found.overhead == pytest.approx(window / plain - 1)
    assert " ".join(found.reasons).startswith(reason)
    assert bool(found.reasons) == bool(reason)


def test_a_plain_latency_far_from_the_measured_one_is_told_and_changes_no_outcome() -> None:
    found = reconcile(profile(100, 100, 100), False, measured_ns=50)
    assert found is not None
    assert found.outcome == "adds up"
    assert "2.00 times the measured one" in found.reasons[0]


def test_operators_stand_in_for_layers_by_the_device_that_computes() -> None:
    operators = (
        OperatorRow(name="aten::mm", shapes="", calls=1, self_cpu_ns=10, self_device_ns=0),
        OperatorRow(name="gemm_kernel", shapes="", calls=1, self_cpu_ns=0, self_device_ns=95),
    )
    parts = PartsProfile(layers=(), operators=operators, traces=(), window_ns=100, plain_ns=100)
    on_gpu, on_cpu = reconcile(parts, True), reconcile(parts, False)
    assert on_gpu is not None
    assert on_cpu is not None
    assert (on_gpu.parts_ns, on_cpu.parts_ns) == (95, 10)
    assert launch_gaps(parts) == pytest.approx(0.05)
    assert launch_gaps(profile(100, 100, 100)) is None


def test_nothing_to_add_up_is_no_reconciliation() -> None:
    assert reconcile(PartsProfile(layers=(), operators=(), traces=(), window_ns=1, plain_ns=1), False) is None


TREE = (
    layer("(model)", 2, 100),
    layer("embed", 8, 8, 1, parent="(model)", group="embedding"),
    layer("layers.0", 5, 60, 1, parent="(model)"),
    layer("layers.0.fc", 55, 55, 2, parent="layers.0", group="mlp"),
    layer("layers.1", 30, 30, 1, parent="(model)"),
)
GRAPH = (
    layer("node_1", 4, parent="embed"),
    layer("node_2", 40, parent="layers.0.fc"),
    layer("node_3", 3, parent="layers.0"),
    layer("node_4", 9, parent="layers.01"),
    layer("node_5", 1),
)


def test_a_module_is_summed_the_same_way_in_trees_and_graphs() -> None:
    assert inside(TREE, "layers.0") == 60
    assert inside(GRAPH, "layers.0") == 43
    assert inside(GRAPH, "layers.0.fc") == 40
    assert inside(GRAPH, "layers.1") is None


def test_groups_hold_self_times_only() -> None:
    assert by_group(TREE) == {"mlp": 55, "other": 37, "embedding": 8}
    assert total(TREE) == 100
