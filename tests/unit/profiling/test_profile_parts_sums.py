"""Whether parts add up, and sums by group and module for trees and graphs alike."""

from __future__ import annotations

import pytest

from harness.core.schemas.profile_record import (
    LaunchGaps,
    OperatorRow,
    PartsProfile,
)
from harness.profiling.layers import module_ns, ns_by_group, total_ns
from harness.profiling.reconcile import reconcile
from tests.synthetic_parts import layer, profile


def on_gpu(
    parts: int, plain: int, kernels: int, idle: int | None, work: int | None = None, window: int | None = None
) -> PartsProfile:
    """Layers timed by their kernels. idle: of a traced pass; None without a trace. work: of overlapping kernels."""
    kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=kernels)
    work = kernels if work is None else work
    gaps = None if idle is None else LaunchGaps(
        window_ns=10 * (kernels + idle), busy_ns=10 * kernels, waited_ns=None, work_ns=10 * work, kernels_ns=work
    )  # fmt: skip
    result = profile(parts, plain if window is None else window, plain)
    return result.model_copy(update={"operators": (kernel,), "launch_gaps": gaps})


@pytest.mark.parametrize(
    ("parts", "window", "plain", "outcome", "corrected", "reason"),
    [
        (100, 105, 104, "adds up", 100 / 104, ""),
        (94, 100, 104, "adds up", 94 / 104, ""),
        (150, 155, 100, "explained", 150 / 155, "profiler overhead: profiled runs took 1.55"),
        (300, 310, 100, "explained", 300 / 310, "profiler overhead: profiled runs took 3.10"),
        # The profiler's cost is measured, and does not cover the difference.
        (300, 150, 100, "unexplained", 2.0, "profiler overhead: profiled runs took 1.50"),
        (150, 300, 100, "unexplained", 0.5, "profiler overhead: profiled runs took 3.00"),
        (300, 100, 100, "unexplained", 3.0, "profiled runs took 1.00 times the plain ones, and parts cover 300%"),
        (60, 100, 100, "unexplained", 0.6, "profiled runs took 1.00 times the plain ones, and parts cover 60%"),
        (20, 100, 100, "unexplained", 0.2, "profiled runs took 1.00 times the plain ones, and parts cover 20%"),
        (20, 500, 100, "unexplained", 0.2, "profiled runs took 5.00 times the plain ones, and parts cover 4%"),
        (80, 81, 100, "unexplained", 0.8, "profiled runs took 0.81 times the plain ones, and parts cover 99%"),
    ],
)
def test_a_sum_that_is_off_is_explained_only_by_causes_that_cover_the_difference(
    parts: int, window: int, plain: int, outcome: str, corrected: float, reason: str
) -> None:
    for gpu in (False, True):  # a profiler that has no kernels, as TensorRT's, gives no other reason
        result = reconcile(profile(parts, window, plain), gpu)
        assert result is not None
        assert result.outcome == outcome
        assert result.ratio == parts / plain
        assert result.corrected == pytest.approx(corrected, abs=0.01)
        assert result.overhead == pytest.approx(window / plain - 1)
        assert " ".join(result.reasons).startswith(reason)
        assert bool(result.reasons) == bool(reason)


MS = 1_000_000


@pytest.mark.parametrize(
    ("given", "outcome", "corrected"),
    [
        (on_gpu(60 * MS, 100 * MS, kernels=60 * MS, idle=40 * MS), "explained", 1.0),
        # The profiler lengthens gaps: of them no more counts than the kernels' own time leaves.
        (on_gpu(13 * MS, 100 * MS, kernels=13 * MS, idle=300 * MS), "explained", 1.0),
        # Parts that miss a third of the kernels' time are not made whole by gaps.
        (on_gpu(60 * MS, 100 * MS, kernels=90 * MS, idle=300 * MS), "unexplained", 0.7),
        # The trace shows fewer gaps than the sum lacks.
        (on_gpu(20 * MS, 100 * MS, kernels=20 * MS, idle=10 * MS), "unexplained", 0.3),
        # Without a trace nothing shows that the GPU had nothing to do.
        (on_gpu(60 * MS, 100 * MS, kernels=60 * MS, idle=None), "unexplained", 0.6),
        # On two streams: 150 of work in 100 of time.
        (on_gpu(150 * MS, 100 * MS, kernels=100 * MS, idle=0, work=150 * MS), "explained", 1.0),
        (on_gpu(300 * MS, 100 * MS, kernels=100 * MS, idle=0, work=150 * MS), "unexplained", 2.0),
        # Kernels take as long under a profiler that slows the host: its cost is no reason.
        (on_gpu(300 * MS, 100 * MS, kernels=300 * MS, idle=0, window=310 * MS), "unexplained", 3.0),
    ],
)
def test_on_a_gpu_the_trace_shows_the_time_of_gaps_and_overlap(
    given: PartsProfile, outcome: str, corrected: float
) -> None:
    result = reconcile(given, True)
    assert result is not None
    assert result.outcome == outcome
    assert result.corrected == pytest.approx(corrected)


def test_the_reason_has_both_figures_of_a_gap() -> None:
    result = reconcile(on_gpu(60 * MS, 100 * MS, kernels=60 * MS, idle=45 * MS), True)
    assert result is not None
    assert result.reasons == (
        "launch gaps: the kernels' own time leaves 40.0 ms of the plain latency, and in a traced pass no kernel ran "
        "for 45.0 ms",
    )


def test_a_plain_latency_far_from_the_measured_one_is_reported_and_changes_no_outcome() -> None:
    result = reconcile(profile(100, 100, 100), False, measured_ns=50)
    assert result is not None
    assert result.outcome == "adds up"
    assert "2.00 times the measured one" in result.reasons[0]


def test_operators_replace_layers_by_the_device_that_computes() -> None:
    operators = (
        OperatorRow(name="aten::mm", shapes="", calls=1, self_cpu_ns=10, self_device_ns=0),
        OperatorRow(name="gemm_kernel", shapes="", calls=1, self_cpu_ns=0, self_device_ns=95),
    )
    parts = PartsProfile(layers=(), operators=operators, traces=(), window_ns=100, plain_ns=100)
    on_gpu, on_cpu = reconcile(parts, True), reconcile(parts, False)
    assert on_gpu is not None
    assert on_cpu is not None
    assert (on_gpu.parts_ns, on_cpu.parts_ns) == (95, 10)


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
    assert module_ns(TREE, "layers.0") == 60
    assert module_ns(GRAPH, "layers.0") == 43
    assert module_ns(GRAPH, "layers.0.fc") == 40
    assert module_ns(GRAPH, "layers.1") is None


def test_groups_hold_self_times_only() -> None:
    assert ns_by_group(TREE) == {"mlp": 55, "other": 37, "embedding": 8}
    assert total_ns(TREE) == 100
