"""Quantisation for TensorRT: in a residual block the other operand is quantised, the convolution's output is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from harness.zoo.loaded import Inputs
from harness.zoo.onnx.int8 import residual_additions, write_symmetric


def _block() -> onnx.ModelProto:
    """Two convolutions, the second's output plus the input; then a bias, which is an addition of a constant."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32), "w1"),
        numpy_helper.from_array(rng.normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32), "w2"),
        numpy_helper.from_array(np.ones((1, 4, 1, 1), np.float32), "bias"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "second", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "x"], ["d"], "residual"),
        helper.make_node("Add", ["d", "bias"], ["y"], "biased"),
    ]
    shape = ["n", 4, 8, 8]
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "block", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_only_the_addition_of_two_activations_counts() -> None:
    assert residual_additions(_block().graph) == ["residual"]


def test_the_other_operand_is_quantised_and_the_convolution_is_not(tmp_path: Path) -> None:
    onnx.save(_block(), tmp_path / "block.onnx")
    x = np.random.default_rng(1).normal(size=(16, 4, 8, 8)).astype(np.float32)
    how = write_symmetric(tmp_path / "block.onnx", tmp_path / "int8.onnx", Inputs({"x": x}, "noise"))
    graph = onnx.load(tmp_path / "int8.onnx").graph
    made_by = {name: node for node in graph.node for name in node.output}
    addition = next(node for node in graph.node if node.name == "residual")
    assert sorted(made_by[name].op_type for name in addition.input) == ["Conv", "DequantizeLinear"]
    biased = next(node for node in graph.node if node.name == "biased")
    assert made_by[biased.input[0]].op_type == "Add"
    read = {name for node in graph.node for name in node.input} | {"y"}
    assert all(read.intersection(node.output) for node in graph.node)
    assert "the other operand of 1 addition" in how
    plain, int8 = (
        ort.InferenceSession(str(tmp_path / name), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for name in ("block.onnx", "int8.onnx")
    )
    assert np.linalg.norm(int8 - plain) < 0.05 * np.linalg.norm(plain)
