"""Products of a decoder as the quantizer needs them, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from harness.zoo.generation.onnx_decoder import plain_products

RNG = np.random.default_rng(0)
TIED = RNG.standard_normal((6, 4)).astype(np.float32)
WEIGHT = RNG.standard_normal((4, 4)).astype(np.float32)
BIAS = RNG.standard_normal(4).astype(np.float32)


def model() -> Any:
    nodes = [
        helper.make_node("Gemm", ["x", "weight", "bias"], ["a"], "plain"),
        helper.make_node("Gemm", ["a", "weight"], ["b"], "turned", transB=1),
        helper.make_node("Gemm", ["b", "weight", "bias"], ["c"], "scaled", alpha=0.5),
        helper.make_node("Transpose", ["tied"], ["head"], perm=[1, 0]),
        helper.make_node("MatMul", ["c", "head"], ["y"], "logits"),
    ]
    constants = {"tied": TIED, "weight": WEIGHT, "bias": BIAS}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 6])],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    result.ir_version = 10
    return result


def answer(one: Any) -> Any:
    given = {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}
    session = onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, given)[0]


def test_gemm_and_a_tied_layer_become_matmul_of_constants() -> None:
    before, after = model(), model()
    plain_products(after.graph)
    onnx.checker.check_model(after)
    np.testing.assert_allclose(answer(after), answer(before), rtol=1e-5)
    assert [node.op_type for node in after.graph.node] == ["MatMul", "Add", "MatMul", "Gemm", "MatMul"]
    constants = {tensor.name for tensor in after.graph.initializer}
    assert all(node.input[1] in constants for node in after.graph.node if node.op_type == "MatMul")
