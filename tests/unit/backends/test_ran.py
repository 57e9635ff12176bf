"""The one word for what many layers and kernels ran in."""

from __future__ import annotations

import pytest

from harness.backends.ran import precision_of


@pytest.mark.parametrize(
    ("layers", "word"),
    [
        ({"fp32": 36}, "fp32"),
        ({"bf16": 36, "fp32": 1}, "bf16+fp32"),
        ({"int8": 50}, "int8"),
        ({"int8": 36, "fp32": 12}, "int8"),
        ({"int8": 6, "fp32": 6}, "fp32+int8"),
        ({"int8": 0, "fp32": 36}, "fp32"),
        ({}, "none"),
    ],
)
def test_only_int8_may_have_a_minority_of_other_layers(layers: dict[str, int], word: str) -> None:
    assert precision_of(layers) == word


def test_kernels_are_counted_by_what_they_compute_in_and_others_not_at_all() -> None:
    pytest.importorskip("onnxruntime")
    from harness.backends.onnxruntime_kernels import count

    assert count(["QLinearConv", "QGemm", "MatMulIntegerToFloat", "FusedConv", "Transpose", "DequantizeLinear"]) == {
        "int8": 3,
        "fp32": 1,
    }
    assert count(["Reshape"]) == {}


@pytest.mark.parametrize(
    ("census", "expected"),
    [
        ({"float": 51_462, "uint8": 11_917_827, "int8": 10_637_568}, True),
        ({"float": 22_565_376, "int64": 10}, False),
        ({"float16": 100, "int8": 100}, False),
    ],
)
def test_a_file_is_quantised_where_most_of_its_weights_are(census: dict[str, int], expected: bool) -> None:
    pytest.importorskip("onnxruntime")
    from harness.backends.onnxruntime_kernels import quantised

    assert quantised(census) is expected
