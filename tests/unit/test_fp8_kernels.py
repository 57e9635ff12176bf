"""The kinds of kernels of benchmarks/fp8_kernels.py, by names that a trace on an H200 has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.fp8_kernels import kind_of, table

TRACES = Path(__file__).parents[2] / "results/published/h200/2026-11-30-fp8-kernels.json"


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_ovscale_bias_TNT", "products"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64", "attention"),
        ("triton_red_fused__scaled_mm__to_copy_abs_amax_clamp_div_gelu_view_4", "elementwise with the scales of fp8"),
        ("triton_poi_fused_gelu_view_3", "elementwise"),
        ("triton_poi_fused__scaled_dot_product_cudnn_attention__to_copy_add_arange_bitwise_and", "elementwise"),
        ("Memset (Unknown)", "copies"),
        ("void at::native::multi_tensor_apply_kernel", "others"),
    ],
)
def test_a_kernel_is_of_its_kind(kernel: str, kind: str) -> None:
    assert kind_of(kernel) == kind


def test_the_published_trace_has_faster_products_and_slower_elementwise_kernels() -> None:
    half, eighth = json.loads(TRACES.read_text())
    kinds = dict(line.split(" | ", 1) for line in table([half, eighth]).removeprefix("| ").split("\n| ")[1:])
    assert kinds["products"] == "4253 | 2564 |"
    assert kinds["together"] == "6523 | 7186 |"
