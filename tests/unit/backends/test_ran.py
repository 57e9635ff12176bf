"""The one word for what many layers and kernels ran in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.backends.precision import (
    computing_layers,
    file_precision,
    floating_precision,
    precision_of,
)
from harness.core.schemas import NO_FLOATS, OnnxArtifact


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


def test_kernels_are_counted_by_their_precision_and_others_not_at_all() -> None:
    pytest.importorskip("onnxruntime")
    from harness.backends.onnxruntime.placement import CPU, Ran, kernels_by_type

    def ran(*operators: str, element: str = "float") -> list[Ran]:
        return [Ran(CPU, operator, 64, element=element) for operator in operators]

    assert kernels_by_type(
        ran("QLinearConv", "QGemm", "MatMulIntegerToFloat", "FusedConv", "Transpose", "DequantizeLinear")
    ) == {
        "int8": 3,
        "fp32": 1,
    }
    assert kernels_by_type(ran("MatMul", element="float16")) == {"fp16": 1}
    assert kernels_by_type(ran("Reshape")) == {}
    assert kernels_by_type(ran("MatMulNBits", "MatMulNBits", "MatMul")) == {"fp32": 3}
    assert kernels_by_type(ran("MatMulNBits", "MatMulNBits", "MatMul"), in_int8=1) == {"int8": 1, "fp32": 2}


def test_floats_of_a_file_are_multiplied_in_floats_and_bytes_where_it_asks_for_them(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    ort = pytest.importorskip("onnxruntime")
    from harness.backends.onnxruntime.placement import computing_kernels
    from harness.backends.onnxruntime.session import session_options
    from tests.fixtures import odd_onnx as files

    def answer(path: Path, options: Any, x: Any) -> Any:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]

    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    weights = files.with_nodes_for_weights(tmp_path / "weights.onnx")
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert np.allclose(answer(weights, session_options(1), x), answer(weights, plain, x), rtol=1e-5, atol=1e-5)
    assert computing_kernels(weights, {"x": x}, 1) == {"fp32": 1}
    wide = {"x": np.ones((3, 64), np.float32)}
    assert computing_kernels(files.with_bytes(tmp_path / "floats.onnx"), wide, 1) == {"fp32": 1}
    assert computing_kernels(files.with_bytes_in_int8(tmp_path / "bytes.onnx"), wide, 1) == {"int8": 1}


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
    from harness.backends.onnxruntime.placement import is_quantised

    assert is_quantised(census) is expected


@pytest.mark.parametrize(
    ("layers", "word"),
    [
        ([("FullyConnected", "f32"), ("Const", "i32"), ("Reshape", "i32")], "fp32"),
        ([("FullyConnected", "bf16"), ("MVN", "f32"), ("Const", "f32")], "bf16"),
        ([("FullyConnected", "f32"), ("FullyConnected", "bf16")], "bf16+fp32"),
        ([("RNNSeq", "f32"), ("Const", "i32"), ("Gather", "i64")], "fp32"),
        ([("MVN", "f32"), ("Const", "i32"), ("Input", "f32")], "fp32"),
        ([("MVN", "bf16"), ("Convert", "f32"), ("Output", "f32")], "bf16"),
        ([("MVN", "bf16"), ("Subgraph", "f32")], "bf16+fp32"),
        ([("Subgraph", "u8"), ("Reduce", "f32"), ("Gather", "i32")], "fp32"),
        ([("MatMul", "i32"), ("Softmax", "f32")], "fp32"),
        ([("FullyConnected", "u8"), ("FullyConnected", "i8"), ("MatMul", "f32")], "int8"),
    ],
)
def test_layers_of_openvino_without_constants_shapes_and_ids(layers: list[tuple[str, str]], word: str) -> None:
    assert precision_of(computing_layers(layers)) == word


def test_a_graph_that_computes_nothing_is_known_by_its_ports() -> None:
    assert computing_layers([("Input", "f32"), ("Output", "f32")]) == {}
    assert floating_precision({"i64": 1}, {"f32": 1}) == "fp32"


@pytest.mark.parametrize(
    ("evidence", "word"),
    [
        ([{"float": 1000, "float16": 3}], "fp32"),
        ([{"float16": 1000, "float": 3, "int64": 9000}], "fp16"),
        ([{"int64": 7}, {"tensor(float)": 1}], "fp32"),
        ([{"int64": 7}, {"tensor(int64)": 1}, {"tensor(float16)": 2}], "fp16"),
        ([{"double": 8}], "fp64"),
        ([{"int64": 7}, {"tensor(bool)": 1}], NO_FLOATS),
        ([], NO_FLOATS),
    ],
)
def test_integers_are_no_evidence_of_a_precision(evidence: list[dict[str, int]], word: str) -> None:
    assert floating_precision(*evidence) == word


def test_the_outputs_of_the_nodes_of_a_file_without_weights_are_better_evidence_than_its_ports() -> None:
    """An fp16 file keeps fp32 inputs and outputs."""
    file = OnnxArtifact(
        path="model-fp16.onnx",
        sha256="",
        size_bytes=1,
        exporter="",
        opset=20,
        dtype_census={"float": 1},
        value_census={"float16": 3},
    )
    assert file_precision(file, ["tensor(float)"], ["tensor(float)"]) == "fp16"
    weights = {"dtype_census": {"float16": 12}, "value_census": {}}
    assert file_precision(file.model_copy(update=weights), ["tensor(float)"], ["tensor(float)"]) == "fp16"
