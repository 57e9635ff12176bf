"""ONNX → the steps of the cudnn backend: executed by PyTorch, they give what ONNX's own evaluator gives."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from onnx.reference import ReferenceEvaluator

from harness.backends.cudnn.layer_plan import (
    Activation,
    Convolution,
    LayerPlan,
    Pooling,
    channels_last,
    folded,
    in_blocks,
    layer_plan,
)
from harness.core.errors import NotSupportedError
from tests.fixtures.cudnn_models import model, node, random, residual_network


def run(plan: LayerPlan, source: Any) -> Any:
    """The steps of a plan, one after the other, in fp32."""
    values = {plan.source: torch.as_tensor(np.asarray(source, np.float32))}
    for step in plan.steps:
        read = values[step.source]
        assert tuple(read.shape) == plan.extents[step.source]
        if isinstance(step, Pooling):
            pooling = torch.nn.functional.max_pool2d if step.kind == "max" else torch.nn.functional.avg_pool2d
            answer = pooling(read, step.window, step.stride, step.padding)
        else:
            padding = (step.before[1], step.after[1], step.before[0], step.after[0])
            answer = torch.nn.functional.conv2d(
                torch.nn.functional.pad(read, padding),
                torch.tensor(plan.constants[step.weight]),
                torch.tensor(plan.constants[step.bias]),
                step.stride,
                0,
                step.dilation,
                step.groups,
            )
            answer = answer if step.residual is None else answer + values[step.residual]
            answer = answer if step.activation is None else answer.clamp(step.activation.lower, step.activation.upper)
        assert tuple(answer.shape) == plan.extents[step.result]
        values[step.result] = answer
    result = values[plan.result].numpy()
    return result.reshape(result.shape[:2]) if plan.flat else result


def expected(graph: Any, source: Any) -> Any:
    return ReferenceEvaluator(graph).run(None, {"x": source})[0]


def shape_of(graph: Any) -> tuple[int, ...]:
    return tuple(entry.dim_value for entry in graph.graph.input[0].type.tensor_type.shape.dim)


def test_additions_and_activations_join_the_convolution_before_them() -> None:
    graph = residual_network()
    plan = layer_plan(graph, shape_of(graph))
    assert [step.nodes for step in plan.steps] == [
        ("Conv-c0", "Relu-r0"),
        ("MaxPool-p",),
        ("Conv-c1", "Relu-r1"),
        ("Conv-c2",),
        ("Conv-c3", "Add-s", "Clip-r2"),
        ("ReduceMean-m",),
        ("Gemm-y",),
    ]
    last = plan.steps[4]
    assert isinstance(last, Convolution)
    assert (last.residual, last.activation) == ("c2", Activation(0.0, 6.0))
    source = random(*shape_of(graph))
    np.testing.assert_allclose(run(plan, source), expected(graph, source), rtol=2e-4, atol=2e-4)


def test_padded_channels_of_the_input_change_nothing() -> None:
    graph = residual_network()
    plan = layer_plan(graph, shape_of(graph), channel_multiple=4)
    source = random(*shape_of(graph))
    padded = np.concatenate([source, np.full((2, 1, 19, 28), 7, np.float32)], axis=1)  # met by weights of 0
    assert plan.extents["x"] == (2, 4, 19, 28)
    np.testing.assert_allclose(run(plan, padded), expected(graph, source), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("window", [(7, 7), (3, 3), (4, 3), (1, 1)])
@pytest.mark.parametrize("pads", [(3, 3, 3, 3), (0, 0, 1, 1), (1, 0, 0, 2), (2, 1, 2, 1), (0, 0, 0, 0)])
@pytest.mark.parametrize("size", [(32, 28), (19, 23)])
def test_a_folded_input_gives_the_same(window: Any, pads: Any, size: Any) -> None:
    first = node("Conv", "x w b", "y", strides=[2, 2], pads=pads)
    graph = model([first], "y", (2, 3, *size), flat=False, w=random(8, 3, *window), b=random(8))
    plan, fold = folded(layer_plan(graph, shape_of(graph)))
    (step,) = plan.steps
    assert isinstance(step, Convolution)
    assert (step.stride, step.before, step.after, fold.blocks[1]) == ((1, 1), (0, 0), (0, 0), 16)
    source = random(*shape_of(graph)).astype(np.float16)  # blocks are in fp16
    laid_out = in_blocks(source, fold)
    assert laid_out.flags["C_CONTIGUOUS"]
    result = run(plan, laid_out.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(result, expected(graph, source.astype(np.float32)), rtol=1e-4, atol=1e-4)


def test_an_input_that_cannot_be_folded_is_refused() -> None:
    graph = model([node("Conv", "x w", "y")], "y", flat=False, w=random(8, 3, 3, 3))
    with pytest.raises(NotSupportedError, match="stride 2") as caught:
        folded(layer_plan(graph, (2, 3, 9, 8)))
    assert "SETTINGS=graph" in caught.value.hint


def test_a_convolution_in_groups_keeps_its_weights() -> None:
    weights = random(16, 1, 3, 3)
    nodes = [node("Conv", "x w", "c"), node("Conv", "c d", "y", group=16, pads=[0, 0, 1, 1], strides=[2, 2])]
    graph = model(nodes, "y", flat=False, w=random(16, 3, 3, 3), d=weights)
    plan = layer_plan(graph, (2, 3, 9, 8))
    assert isinstance(plan.steps[1], Convolution)
    assert plan.steps[1].groups == 16
    assert plan.signature(plan.steps[1]) == "conv 2x16x7x6 k16x1x3x3 s2x2 p0x0-1x1 d1x1 g16"
    np.testing.assert_array_equal(plan.constants["d"], weights)
    source = random(2, 3, 9, 8)
    np.testing.assert_allclose(run(plan, source), expected(graph, source), rtol=1e-4, atol=1e-4)


def test_channels_lie_innermost_in_fp16() -> None:
    values = random(2, 3, 4, 5)
    result = channels_last(values, 4)
    assert (result.dtype, result.shape, result.flags["C_CONTIGUOUS"]) == (np.float16, (2, 4, 5, 4), True)
    np.testing.assert_array_equal(result[..., :3], values.transpose(0, 2, 3, 1).astype(np.float16))
    assert not result[..., 3].any()


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("Sigmoid", "x", "s"), node("Erf", "s", "y")], "the operators Erf, Sigmoid"),
        ([node("Conv", "x w", "c"), node("HardSwish", "c", "y")], "the operator HardSwish"),
        ([helper.make_node("Conv", ["x", "w"], ["y"], domain="mine")], "the operator mine:Conv"),
        ([node("Relu", "x", "y")], r"the operator Relu behind no convolution .* \(node Relu-y\)"),
        ([node("Conv", "x w", "c"), node("Relu", "c", "r"), node("Add", "r c", "y")], "Relu behind no convolution"),
        ([node("Conv", "x w", "c", auto_pad="SAME_UPPER"), node("Relu", "c", "y")], "Conv with auto_pad"),
        ([node("MaxPool", "x", "y", kernel_shape=[2, 2], ceil_mode=1)], "MaxPool with uneven padding"),
        ([node("ReduceMean", "x axes", "y")], "ReduceMean over other than height and width"),
        ([node("Conv", "x w", "c"), node("Flatten", "c", "y")], "an output that is a flattened picture"),
    ],
)
def test_an_operator_that_it_does_not_run_is_refused_by_name(nodes: Any, reason: str) -> None:
    graph = model(nodes, "y", w=random(8, 3, 3, 3), axes=np.array([1]))
    with pytest.raises(NotSupportedError, match=reason) as caught:
        layer_plan(graph, (2, 3, 9, 8))
    assert "Conv" in caught.value.hint


@pytest.mark.slow
def test_the_plan_of_a_real_export_has_one_step_a_layer() -> None:
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    network = torchvision.models.resnet18(weights=None).eval()
    file = io.BytesIO()
    torch.onnx.export(network, (torch.randn(2, 3, 64, 64),), file, dynamo=False, opset_version=17, input_names=["x"])
    plan = layer_plan(onnx.load_from_string(file.getvalue()), (2, 3, 64, 64), channel_multiple=4)
    assert len(plan.steps) == 23  # 20 convolutions, two poolings, the product
    source = torch.randn(2, 3, 64, 64)
    padded = torch.nn.functional.pad(source, (0, 0, 0, 0, 0, 1)).numpy()
    with torch.no_grad():
        np.testing.assert_allclose(run(plan, padded), network(source).numpy(), rtol=1e-3, atol=1e-3)
