"""The same model under several backends: every column adds up, and so do the gains."""

from __future__ import annotations

import pytest

from harness.backends.profile_timing import ROOT
from harness.core.schemas.profile_record import OperatorRow
from harness.profiling.layers import group_of_operator
from harness.profiling.side_by_side import (
    MODEL,
    NO_MODULE,
    SideBySide,
    by_group,
    by_module,
    compared_profiles,
    line_gain_ns,
    merged_blocks,
    not_compared,
    shared_modules,
)
from tests.synthetic_side_by_side import CPU_SHARED, EAGER, FUSED, GRAPH, column, columns, parts, profiled


def adds_up(side: SideBySide) -> None:
    for place, single in enumerate(side.columns):
        assert sum(line.times_ns[place] or 0 for line in side.lines) == single.parts_ns
    assert sum(line_gain_ns(line) for line in side.lines) == side.gain_ns


def times(side: SideBySide) -> dict[str, tuple[int | None, ...]]:
    return {line.name: line.times_ns for line in side.lines}


def test_groups_add_up_and_are_ordered_by_gain() -> None:
    result = by_group(columns())
    assert result is not None
    adds_up(result)
    assert [entry.name for entry in result.columns] == ["fused", "graph", "eager"]
    assert times(result) == {
        "mlp": (20, 60, 96),
        "attention": (6, 28, 62),
        "normalisation": (None, None, 40),
        "embedding": (10, 10, 15),
        "layout": (None, 4, None),
        "other": (25, None, 7),
    }
    assert [line.name for line in result.lines] == ["mlp", "attention", "normalisation", "embedding", "layout", "other"]


def test_fused_operators_are_in_one_line_with_their_target() -> None:
    result = by_module(columns()[:2])
    assert result is not None
    adds_up(result)
    assert times(result)["layer.0.out"] == (30, 68)
    assert times(result)["layer.0.attn.q"] == (5, 10)
    assert times(result)["layer.0.attn"] == (4, 11)  # a dropout that does not run fuses nothing
    assert times(result)[NO_MODULE] == (4, None)
    assert times(result)[MODEL] == (None, 5)
    assert {line.name: line.modules for line in result.lines}["layer.0.out"] == (
        "layer.0.out", "layer.0.out.dense", "layer.0.out.norm",
    )  # fmt: skip


def test_a_region_over_several_modules_takes_them_all_and_leaves_those_it_left() -> None:
    result = by_module(columns())
    assert result is not None
    adds_up(result)
    assert times(result)["layer"] == (25, 44, 100)  # all of layer 1, of which the third backend has nothing apart
    assert times(result)["layer.0.attn"] == (6, 14, 31)
    assert times(result)["layer.0.out"] == (20, 30, 68)
    assert times(result)["layer.0"] == (None, None, 1)


def test_blocks_fold_into_one_line_and_still_add_up() -> None:
    result = by_module(columns()[:2])
    assert result is not None
    adds_up(merged_blocks(result))
    assert times(merged_blocks(result))["layer.*.out"] == (60, 136)
    assert times(merged_blocks(result))["embed"] == (10, 15)
    assert "layer.0.out" not in times(merged_blocks(result))
    assert "layer.0.out" in times(
        merged_blocks(by_module(columns()) or result)
    )  # alone in its kind, it keeps its number


def test_the_measured_latency_decides_who_is_faster_where_all_have_one() -> None:
    result = by_group(columns(latencies=(90.0, 100.0, 300.0)))
    assert result is not None
    assert [entry.name for entry in result.columns] == ["eager", "graph", "fused"]
    assert (result.gain_ns, result.measured_gain_ns) == (61 - 220, 210.0)
    adds_up(result)
    assert result.fastest.factor == pytest.approx(220 / 90)
    partly = by_group(columns(latencies=(90.0, None, 300.0)))
    assert partly is not None
    assert [entry.name for entry in partly.columns] == ["fused", "graph", "eager"]
    assert partly.columns[1].factor is None


def operator(name: str, cpu: int, device: int | None = None) -> OperatorRow:
    return OperatorRow(name=name, shapes="", calls=1, self_cpu_ns=cpu, self_device_ns=device)


def test_a_backend_with_operators_alone_is_grouped_as_far_as_names_show() -> None:
    parts_profile = parts(
        operators=(operator("aten::addmm", 80), operator("aten::native_layer_norm", 9), operator("x", 0))
    )
    result = by_group([column("eager", EAGER), column("script", parts_profile)])
    assert result is not None
    adds_up(result)
    assert times(result)["operators"] == (80, None)
    assert times(result)["normalisation"] == (9, 40)
    assert by_module([column("eager", EAGER), column("script", parts_profile)]) is None


def test_kernels_are_counted_by_the_device() -> None:
    parts_profile = parts(operators=(operator("aten::mm", 500, 0), operator("ampere_sgemm", 0, 70)))
    result = by_group([column("eager", EAGER), column("ort", parts_profile)])
    assert result is not None
    adds_up(result)
    assert times(result)["matmul"] == (None, 70)


@pytest.mark.parametrize(
    ("name", "in_blocks", "group"),
    [
        ("aten::mkldnn_convolution", True, "convolution"),
        ("sm80_xmma_fprop_implicit_gemm", True, "convolution"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", True, "operators"),
        ("aten::batch_norm", True, "normalisation"),
        ("triton_per_fused_native_layer_norm_3", True, "normalisation"),
        ("aten::normal_", True, "operators"),
        ("aten::embedding", True, "embedding"),
        ("void cudnn::nchwToNhwcKernel", True, "layout"),
        ("Memcpy DtoD (Device -> Device)", True, "layout"),
        ("aten::addmm", True, "operators"),
        ("aten::addmm", False, "linear"),
        ("aten::_scaled_mm", False, "linear"),
        ("aten::relu_", True, "operators"),
        ("aten::relu_", False, "activation"),
        ("aten::max_pool2d_with_indices", False, "pooling"),
        ("aten::view", False, "operators"),
        # kernels seen on an H200, torch 2.11 and ONNX Runtime 1.31
        ("nvjet_sm90_hsh_128x192_64x5_2x1_v_bz_coopB_TNN", False, "matmul"),
        ("nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_bias_TNT", True, "matmul"),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16>", False, "convolution"),
        ("void convolve_common_engine_float_NHWC<__half, __half, 128, 5, 5, 3, 3, 3>", False, "convolution"),
        ("void op_generic_tensor_kernel<4, __half, float, __half, 256, (cudnnGenericOp_t)0>", False, "elementwise"),
        ("void onnxruntime::cuda::_BinaryElementWiseSimple<true, onnxruntime::cuda::OP_Add>", True, "elementwise"),
        ("void onnxruntime::cuda::_UnaryElementWise<__half, onnxruntime::cuda::OP_Relu>", False, "activation"),
        ("void onnxruntime::cuda::_UnaryElementWise<__half, onnxruntime::cuda::OP_Relu>", True, "elementwise"),
        ("void onnxruntime::cuda::Transpose3DKernel<short, 32u>", False, "layout"),
        ("triton_poi_fused__native_batch_norm_legit_no_training_add_relu_8", False, "normalisation"),
        ("triton_poi_fused_gelu_3", True, "elementwise"),
        ("void cudnn::pooling_fw_kernel_max_nhwc<__half, float, 3>", False, "pooling"),
    ],
)
def test_groups_follow_from_operator_names(name: str, in_blocks: bool, group: str) -> None:
    assert group_of_operator(name, in_blocks) == group


def test_the_model_itself_has_the_name_that_profilers_give_it() -> None:
    assert MODEL == ROOT


def test_one_backend_alone_is_no_comparison() -> None:
    assert by_group(columns()[:1]) is None
    assert by_module([]) is None
    assert by_group([column("a", EAGER), column("nothing", parts())]) is None
    assert shared_modules([]) == {}


def test_only_cases_that_differ_in_the_backend_alone_are_compared() -> None:
    result = compared_profiles(
        [
            profiled("torch-eager", EAGER),
            profiled("onnxruntime", GRAPH),
            profiled("onnxruntime", GRAPH, batch_size=8),
            profiled("openvino", FUSED, precision="bf16"),
            profiled("tensorrt", None),
        ]
    )
    assert [[entry.backend for entry in together.rows] for together in result] == [["torch-eager", "onnxruntime"]]
    assert result[0].modules is not None
    assert result[0].shape == "resnet50, fp32, batch 1"


def test_of_several_settings_the_fastest_measured_one_represents_its_backend() -> None:
    (result,) = compared_profiles(
        [
            profiled("torch-eager", EAGER, latency_ns=200.0),
            profiled("tensorrt", FUSED, setting="slow", latency_ns=90.0),
            profiled("tensorrt", FUSED, setting="quick", latency_ns=60.0),
            profiled("tensorrt", FUSED, setting="unmeasured"),
        ]
    )
    assert [entry.name for entry in result.groups.columns] == ["tensorrt quick", "torch-eager"]


def test_an_unexplained_profile_is_compared_with_no_other_and_says_why() -> None:
    disturbed = GRAPH.model_copy(update={"grade": "C", "flags": (CPU_SHARED,)})
    covers_a_fifth = FUSED.model_copy(update={"plain_ns": 305})
    cases = [
        profiled("torch-eager", EAGER),
        profiled("onnxruntime", disturbed),
        profiled("tensorrt", covers_a_fifth),
        profiled("openvino", FUSED),
    ]
    (result,) = compared_profiles(cases)
    assert [entry.name for entry in result.groups.columns] == ["openvino", "torch-eager"]
    assert result.modules is not None
    assert [entry.name for entry in result.modules.columns] == ["openvino", "torch-eager"]
    left_out = (
        ("onnxruntime", "its profile has grade C (CPU_SHARED)"),
        ("tensorrt", "its parts are 0.20 of the plain latency, and nothing measured covers the difference"),
    )
    assert result.left_out == left_out
    assert not_compared(cases) == []
    assert compared_profiles(cases[:3]) == []
    assert [(entry.shape, entry.left_out) for entry in not_compared(cases[:3])] == [
        ("resnet50, fp32, batch 1", left_out)
    ]
    # One backend alone would have no other beside it, whatever its profile shows.
    assert not_compared(cases[1:2]) == []
    assert not_compared(cases[:1]) == []


def test_another_setting_replaces_an_unexplained_one() -> None:
    covers_a_fifth = FUSED.model_copy(update={"plain_ns": 305})
    (result,) = compared_profiles(
        [
            profiled("torch-eager", EAGER, latency_ns=200.0),
            profiled("tensorrt", covers_a_fifth, setting="quick", latency_ns=60.0),
            profiled("tensorrt", FUSED, setting="slow", latency_ns=90.0),
        ]
    )
    assert [entry.name for entry in result.groups.columns] == ["tensorrt slow", "torch-eager"]
    assert result.left_out == ()


def test_the_time_without_a_kernel_is_taken_of_the_measured_latency() -> None:
    parts_profile = parts(operators=(operator("gemm", 0, 70),)).model_copy(update={"plain_ns": 100})
    measured, plain = column("ort", parts_profile, 140.0), column("ort", parts_profile)
    assert (measured.idle_ns, plain.idle_ns) == (70, 30)
    shares = [entry.idle_share for entry in (measured, plain)]
    assert [(share.share, share.of) for share in shares if share] == [
        (pytest.approx(0.5), "measured latency"),
        (pytest.approx(0.3), "plain latency"),
    ]
    assert column("eager", EAGER).idle_share is None
