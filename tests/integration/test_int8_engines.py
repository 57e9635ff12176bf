"""The int8 file that TensorRT engines are built from: symmetric, products alone, of trained weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from harness.core.layout import Models
from tests.fixtures.exporting import planned, record_of, run_export, write_plan

pytestmark = [pytest.mark.stages, pytest.mark.slow]

MODEL, FORM = "efficientnet-lite0", "int8-opset17"
CONVOLUTIONS, PRODUCTS, ADDITIONS = 49, 50, 9
"""Of EfficientNet-Lite0; products with its classifier, additions of a convolution and a shortcut."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("int8-engines")
    plain = planned(MODEL, "pretrained", (), ("fp32",))
    write_plan(folder / "results", [plain.model_copy(update={"onnx_variants": ("fp32-opset17", FORM)})])
    done = run_export(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def graph(exported: Path) -> Any:
    record = record_of(exported, MODEL)
    model = onnx.load(Models(exported / "models").folder(MODEL, record.folder).root / record.onnx_variants[FORM].path)
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}, "TensorRT knows no other operators"
    assert record.onnx_variants[FORM].opset == 17
    return model.graph


def test_every_scale_is_around_zero(graph: Any) -> None:
    values = {entry.name: numpy_helper.to_array(entry) for entry in graph.initializer}
    pairs = [node for node in graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    # A pair before the activation and one before the weights of each product, and one before each shortcut.
    assert len(pairs) == 4 * PRODUCTS + 2 * ADDITIONS
    for node in pairs:
        zero = values[node.input[2]]
        assert zero.dtype == np.int8, node.name
        assert not zero.any(), node.name


def test_both_inputs_of_every_product_are_quantised_and_no_bias_is(graph: Any) -> None:
    made_by = {name: node for node in graph.node for name in node.output}
    weights = {entry.name: entry for entry in graph.initializer}
    products = [node for node in graph.node if node.op_type in ("Conv", "Gemm", "MatMul")]
    assert [node.op_type for node in products].count("Conv") == CONVOLUTIONS
    assert len(products) == PRODUCTS
    for node in products:
        for name in node.input[:2]:
            dequantised = made_by[name]
            assert dequantised.op_type == "DequantizeLinear"
            assert made_by[dequantised.input[0]].op_type == "QuantizeLinear"
        source = made_by[made_by[node.input[1]].input[0]].input[0]
        assert weights[source].data_type == onnx.TensorProto.FLOAT, "TensorRT quantises weights by itself"
        assert all(weights[name].data_type == onnx.TensorProto.FLOAT for name in node.input[2:])


def test_it_was_held_against_torch_at_two_batches(exported: Path) -> None:
    record = record_of(exported, MODEL)
    results = [check.relative_l2 for check in record.checks if check.precision == "int8"]
    assert len(results) == 2
    assert all(1e-3 < distance < 0.3 for distance in results)
    assert "64 calibration inputs" in record.onnx_variants[FORM].exporter
