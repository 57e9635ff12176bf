"""Kernels of real traces (PyTorch 2.11 and ONNX Runtime 1.31 on an H100 and an H200) by names that distinguish them."""

from __future__ import annotations

import pytest

from harness.reporting.tables.profile_tables import kernel_name

HALF = "__half, __half, __half"


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("nvjet_sm90_hsh_48x64_64x15_2x1_v_bz_bias_TNN", "nvjet_sm90_hsh_48x64_64x15_2x1_v_bz_bias_TNN"),
        ("aten::addmm", "aten::addmm"),
        (
            f"void onnxruntime::cuda::_BinaryElementWise<{HALF}, onnxruntime::cuda::OP_Add<{HALF}>, false, int>(int)",
            "_BinaryElementWise<OP_Add>",
        ),
        (
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::"
            "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const> >(int)",
            "elementwise_kernel<direct_copy_kernel_cuda>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::Half>, "
            "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::Half>, std::array<char*, 3ul>)",
            "vectorized_elementwise_kernel<CUDAFunctor_add>",
        ),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float, false>(int, float)",
            "vectorized_layer_norm_kernel",
        ),
        ("void onnxruntime::cuda::Transpose3DKernel<short, 32u>(long, long)", "Transpose3DKernel"),
        (
            "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_64x64_64x5_nhwc_align8>"
            "(cutlass_tensorop_f16_s16816fprop_optimized_f16_64x64_64x5_nhwc_align8::Params)",
            "cutlass_tensorop_f16_s16816fprop_optimized_f16_64x64_64x5_nhwc_align8",
        ),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int> >(int)", "GemmUniversal"),
        (
            "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x128x64_warpgroupsize1x1x1_g1_execute_"
            "segment_k_off_kernel__5x_cudnn",
            "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x128x64_warpgroupsize1x1x1_g1",
        ),
        ("## Call CompiledFxGraph fhoq4plnvnb6bsuj5d2eb ##", "Call CompiledFxGraph"),
        ("vectorized_execute_kernel", "vectorized_execute_kernel"),
        ("void library::KernelOfOurs<float>(float)", "KernelOfOurs"),
        ("void (int)", "void (int)"),
    ],
)
def test_names(full: str, short: str) -> None:
    assert kernel_name(full) == short
