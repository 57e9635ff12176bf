"""Convolutions of few channels, padded to as many as Tensor Cores read at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")


def model(channels: int, groups: int = 1) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    chance = np.random.default_rng(1)
    first = chance.standard_normal((4, channels // groups, 3, 3)).astype(np.float32)
    second = chance.standard_normal((2, 4, 1, 1)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "first"], ["between"], "conv1", group=groups, strides=[2, 2]),
            helper.make_node("Conv", ["between", "second"], ["y"], "conv2"),
        ],
        "two convolutions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", channels, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 2, 4, 4])],
        [numpy_helper.from_array(first, "first"), numpy_helper.from_array(second, "second")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def answer(one: Any, channels: int) -> Any:
    ort = pytest.importorskip("onnxruntime")
    x = np.random.default_rng(2).standard_normal((2, channels, 9, 9)).astype(np.float32)
    session = ort.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def test_a_padded_convolution_gives_the_same_answer_and_reads_eight_channels() -> None:
    from harness.zoo.onnx.variants import pad_channels

    before = answer(model(3), 3)
    changed = model(3)
    assert pad_channels(changed.graph) == 2
    onnx.checker.check_model(changed)
    assert [list(entry.dims)[:2] for entry in changed.graph.initializer if "pads" not in entry.name] == [[4, 8], [2, 8]]
    np.testing.assert_allclose(answer(changed, 3), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("channels", "groups"), [(16, 1), (4, 4)])
def test_wide_and_grouped_convolutions_are_left_alone(channels: int, groups: int) -> None:
    from harness.zoo.onnx.variants import pad_channels

    changed = model(channels, groups)
    assert pad_channels(changed.graph) == 1  # the second alone, of four channels
    assert changed.graph.node[0].op_type == "Conv"
