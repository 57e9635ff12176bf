"""The attention mask of an exported file, rewritten so that the optimizer knows it."""

from __future__ import annotations

from typing import Any

import pytest

onnx = pytest.importorskip("onnx")


def exported(added: str) -> Any:
    """Scores + something, softmax; the mask by a gathering that no pattern knows. `added`: name of what is added."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Shape", ["ids"], ["extent"]),
        helper.make_node("Cast", ["attention_mask"], ["seen"], to=TensorProto.BOOL),
        helper.make_node("Where", ["seen", "zero", "lowest"], ["flat"]),
        helper.make_node("Expand", ["flat", "extent"], ["from_mask"]),
        helper.make_node("Cast", ["ids"], ["from_ids"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["flat", "from_ids"], ["from_both"]),
        helper.make_node("Add", ["scores", added], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["out"]),
    ]
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", "s"]),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["b", "s"]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["b", 1, "s", "s"]),
    ]
    constants = [
        helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
        helper.make_tensor("lowest", TensorProto.FLOAT, [], [-3e38]),
    ]
    output = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["b", 1, "s", "s"])
    return helper.make_graph(nodes, "exported", inputs, [output], constants)


def test_a_value_from_the_mask_alone_is_read_and_a_shape_of_another_input_is_no_source() -> None:
    from harness.zoo.onnx.variants import read_masks

    graph = exported("from_mask")
    assert read_masks(graph) == 1
    addition = next(node for node in graph.node if node.op_type == "Add" and node.input[0] == "scores")
    maker = next(node for node in graph.node if addition.input[1] in node.output)
    assert maker.op_type == "Where"
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)


def test_it_hides_the_same_tokens_as_the_mask() -> None:
    import numpy as np
    from onnx.reference import ReferenceEvaluator

    from harness.zoo.onnx.variants import read_masks

    graph = exported("from_mask")
    read_masks(graph)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    mask = np.array([[1, 1, 0], [1, 0, 0]], np.int64)
    scores = np.zeros((2, 1, 3, 3), np.float32)
    (result,) = ReferenceEvaluator(model).run(None, {"ids": mask, "attention_mask": mask, "scores": scores})
    np.testing.assert_allclose(result[0, 0, 0], [0.5, 0.5, 0], atol=1e-6)
    np.testing.assert_allclose(result[1, 0, 2], [1, 0, 0], atol=1e-6)


@pytest.mark.parametrize("added", ["from_ids", "from_both"])
def test_a_value_from_any_other_source_is_left_alone(added: str) -> None:
    from harness.zoo.onnx.variants import read_masks

    graph = exported(added)
    before = graph.SerializeToString()
    assert read_masks(graph) == 0
    assert graph.SerializeToString() == before
