"""What a profile of one run says about where the nodes of a model ran."""

from __future__ import annotations

from typing import Any

import pytest

from harness.backends.onnxruntime.placement import (
    Ran,
    device_of,
    node_counts,
    profiled_nodes,
)

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def event(name: str, provider: str = CUDA, size: str = "4096") -> dict[str, Any]:
    return {
        "cat": "Node",
        "name": f"{name}_kernel_time",
        "args": {"op_name": name, "provider": provider, "output_size": size},
    }


def test_only_the_kernels_of_nodes_count() -> None:
    events = [{"cat": "Session", "name": "model_run", "args": {}}, event("MatMul"), event("Concat", CPU, "16")]
    assert profiled_nodes(events) == [Ran(CUDA, "MatMul", 4096, "MatMul"), Ran(CPU, "Concat", 16, "Concat")]


@pytest.mark.parametrize(
    ("node", "device"),
    [
        (Ran(CPU, "Concat", 32), "cuda"),
        (Ran(CPU, "Add", 8), "cuda"),
        (Ran(CPU, "Add", 196_608), "cuda+cpu"),
        (Ran(CPU, "Gemm", 8), "cuda+cpu"),
        (Ran(CUDA, "Gemm", 196_608), "cuda"),
    ],
)
def test_shape_arithmetic_may_stay_on_the_cpu_and_nothing_else(node: Ran, device: str) -> None:
    assert device_of([Ran(CUDA, "MatMul", 4096), node]) == device


def test_a_profile_without_nodes_proves_no_device() -> None:
    assert device_of([]) == "nothing"


def test_copies_between_the_devices_are_shown() -> None:
    ran = [Ran(CUDA, "MemcpyToHost", 4096), Ran(CPU, "NonZero", 4096, "found"), Ran(CUDA, "MatMul", 4096)]
    on_cpu = {"computed_on_cpu": "NonZero", "nodes_computed_on_cpu": "found"}
    assert node_counts(ran) == {"nodes_cpu": 1, "nodes_cuda": 2, "nodes_copying": 1, **on_cpu}
    assert node_counts([Ran(CUDA, "MatMul", 4096)]) == {"nodes_cuda": 1}


def test_removed_padding_is_read_from_the_nodes_that_ran() -> None:
    ran = [Ran(CUDA, "RemovePadding", 4096), Ran(CUDA, "PackedAttention", 4096), Ran(CUDA, "RestorePadding", 4096)]
    assert node_counts(ran) == {"removes_padding": True, "nodes_cuda": 3}


def test_quantised_convolutions_on_the_cpu_are_named_and_counted() -> None:
    """ONNX Runtime has no QLinearConv on CUDA, and runs it on the CPU without a word (onnxruntime#12229, #24807)."""
    quantised = [Ran(CPU, "QLinearConv", 4096, f"conv{number}_quant") for number in range(1, 54)]
    ran = [Ran(CUDA, "QuantizeLinear", 4096, "q"), *quantised, Ran(CPU, "QLinearAdd", 4096, "sum_quant")]
    assert device_of(ran) == "cuda+cpu"
    results = node_counts(ran)
    assert results["computed_on_cpu"] == "QLinearAdd+QLinearConv"
    assert results["nodes_computed_on_cpu"] == "conv1_quant, conv2_quant, conv3_quant and 51 more"
