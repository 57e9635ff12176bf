"""From kernels back to the nodes and modules of the exported file, and ONNX Runtime's profile as rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.backends.onnx_node_names import (
    Node,
    NodeIndex,
    fused_nodes,
    main_node,
    module_and_group,
    nodes_in_kernel_names,
    read_graph,
    scoped_node,
)
from harness.backends.onnxruntime.profile_cpu import last_runs, layer_rows, profiled_runs, with_gpu_times


def node(operator: str, inputs: str, output: str, module: str | None = None, *around: str) -> Node:
    return Node(f"node_{output}", operator, tuple(inputs.split()), (output,), module, around)


def kernel(name: str, operator: str, inputs: str, output: str) -> Node:
    return Node(name, operator, tuple(inputs.split()), (output,))


def members(original: NodeIndex, *kernels: Node) -> dict[str, list[str]]:
    return {name: [each.name for each in entry] for name, entry in fused_nodes(original, NodeIndex(kernels)).items()}


BLOCK = NodeIndex(
    (
        node("Conv", "x w1", "c1", "layer1.conv1"),
        node("Relu", "c1", "r1", "layer1.relu"),
        node("Conv", "r1 w2", "c2", "layer1.conv2"),
        node("Add", "c2 x", "sum", "layer1"),
        node("Relu", "sum", "r2", "layer1.relu"),
        node("Conv", "r2 w3", "c3", "layer2.conv1"),
        node("Relu", "c3", "r3", "layer2.relu"),
    )
)


def test_an_operator_fused_behind_a_convolution_without_a_name_belongs_to_it() -> None:
    """ONNX Runtime's NCHWc kernels name their tensors again, and one with a sum keeps the convolution's name."""
    results = members(
        BLOCK,
        kernel("r1_nchwc", "Conv", "x reorder", "reorder_0"),
        kernel("c2_nchwc", "Conv", "reorder_0 reorder_1 x", "reorder_2"),
        kernel("r3_nchwc", "Conv", "reorder_2 reorder_3", "reorder_4"),
        kernel("ReorderOutput", "ReorderOutput", "reorder_4", "r3"),
    )
    assert results == {
        "r1_nchwc": ["node_c1", "node_r1"],
        "c2_nchwc": ["node_c2", "node_sum", "node_r2"],
        "r3_nchwc": ["node_c3", "node_r3"],
        "ReorderOutput": [],
    }


def test_a_fused_kernel_reaches_back_to_the_outputs_of_other_kernels() -> None:
    original = NodeIndex(
        (
            node("MatMul", "x w", "product", "out.dense"),
            node("Add", "product bias", "linear", "out.dense"),
            node("Add", "linear x", "sum", "out"),
            node("LayerNormalization", "sum scale", "norm", "out.LayerNorm"),
        )
    )
    results = members(
        original,
        kernel("node_product", "MatMul", "x w", "product"),
        kernel("Skip", "SkipLayerNormalization", "product x scale bias", "norm"),
    )
    assert results == {"node_product": ["node_product"], "Skip": ["node_linear", "node_sum", "node_norm"]}


def test_arithmetic_of_shapes_that_was_folded_away_belongs_to_no_kernel() -> None:
    original = NodeIndex(
        (
            node("Shape", "x", "shape"),
            node("Gather", "shape zero", "rows"),
            node("Relu", "x", "r"),
            node("Reshape", "r rows", "y"),
        )
    )
    assert members(original, kernel("node_r", "Relu", "x", "r"), kernel("node_y", "Reshape", "r c", "y")) == {
        "node_r": ["node_r"],
        "node_y": ["node_y"],
    }


def test_a_kernel_is_its_product_else_the_member_in_its_name_else_its_last_member() -> None:
    convolution, _, _, addition, relu, *_ = BLOCK.nodes
    norm = node("LayerNormalization", "s", "n")
    bias = node("Add", "p b", "l", "fc1", "fc1", "Linear")
    assert main_node((addition, convolution, relu)) == convolution
    assert main_node((bias, node("Gelu", "l", "g"))) == bias
    assert main_node((addition, norm, relu), "SkipLayerNormalization") == norm
    assert main_node((addition, relu), "Kernel") == relu
    assert main_node(()) is None


def test_a_convolution_with_the_scope_of_the_folded_normalisation_is_a_convolution() -> None:
    folded = node("Conv", "x w", "c", "bn1", "bn1", "ResNet", "BatchNorm2d")
    assert module_and_group((folded,), "Conv") == ("bn1", "convolution")
    assert module_and_group((), "ReorderInput") == (None, "layout")
    assert module_and_group((), "Transpose") == (None, "layout")
    own = node("Transpose", "x", "t", "layer.0.attention", "attention")
    assert module_and_group((own,), "Transpose") == ("layer.0.attention", "attention")


def test_a_kernel_of_several_modules_is_in_their_common_parent() -> None:
    query = node("MatMul", "x w", "q", "layer.0.attention.query", "attention", "Linear")
    key = node("MatMul", "x v", "k", "layer.0.attention.key", "attention", "Linear")
    dense = node("MatMul", "k u", "d", "layer.0.mlp.fc1", "mlp", "Linear")
    assert module_and_group((query, key), "FusedMatMul") == ("layer.0.attention", "attention")
    assert module_and_group((query, key, dense), "ForeignNode") == ("layer.0", "other")
    assert module_and_group((query, node("MatMul", "x w", "z", "head", "Linear")), "ForeignNode")[0] == "(model)"


def test_scopes_are_read_from_a_file_and_weights_know_better(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    conv = helper.make_node("Conv", ["x", "layer1.conv1.weight"], ["c"], name="node_conv")
    relu = helper.make_node("Relu", ["c"], ["r"], name="node_relu")
    top = helper.make_node("Add", ["r", "r"], ["y"], name="node_add")
    bare = helper.make_node("Relu", ["y"], ["z"], name="bare")
    older = helper.make_node("Relu", ["y"], ["o"], name="/layer1/layer1.0/Relu_1")
    for made, scopes, classes in (
        (conv, ["", "layer1", "layer1.bn1", "op"], ["m.Net", "m.Block", "torch.nn.BatchNorm2d", "aten.op"]),
        (relu, ["", "layer1", "layer1.relu", "relu"], ["m.Net", "m.Block", "torch.nn.ReLU", "aten.relu"]),
        (top, ["", "add"], ["m.Net", "aten.add"]),
    ):
        made.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(scopes))
        made.metadata_props.add(key="pkg.torch.onnx.class_hierarchy", value=repr(classes))
    weight = helper.make_tensor("layer1.conv1.weight", onnx.TensorProto.FLOAT, [1, 1, 1, 1], [1.0])
    value = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 2, 2]) for name in ("x", "z")]
    graph = helper.make_graph([conv, relu, top, bare, older], "g", value[:1], value[1:], [weight])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    result = read_graph(tmp_path / "m.onnx").by_name
    assert {name: entry.module for name, entry in result.items()} == {
        "node_conv": "layer1.conv1",
        "node_relu": "layer1.relu",
        "node_add": "(model)",
        "bare": None,
        "/layer1/layer1.0/Relu_1": "layer1.0",
    }
    assert result["node_relu"].around == ("layer1", "relu", "Net", "Block", "ReLU")
    assert result["node_relu"].kinds == ("Relu", "ReLU")


@pytest.mark.parametrize(
    ("name", "module", "group"),
    [  # of BERT by the older exporter
        ("/model/encoder/layer.0/output/dense/MatMul", "model.encoder.layer.0.output.dense", "mlp"),
        (
            "/model/encoder/layer.0/attention/output/dense/MatMul",
            "model.encoder.layer.0.attention.output.dense",
            "attention",
        ),
        (
            "/model/encoder/layer.0/output/LayerNorm/LayerNormalization",
            "model.encoder.layer.0.output.LayerNorm",
            "normalisation",
        ),
        ("/output/MatMul", "output", "linear"),
        ("/layer1/layer1.0/downsample/downsample.0/Conv", "layer1.0.downsample.0", "convolution"),
    ],
)
def test_a_name_of_the_older_exporter_has_module_and_group(name: str, module: str, group: str) -> None:
    result = scoped_node(name)
    assert result is not None
    assert module_and_group((result,), result.operator) == (module, group)
    assert scoped_node(name[1:]) is None


def test_a_fused_kernel_is_at_the_place_of_its_last_member(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    made = ["/layer.0/attention/self/Reshape_3_output_0"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Attention", ["x", "w"], made, name="Attention_0")], "g", [], []
    )
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    (result,) = nodes_in_kernel_names(read_graph(tmp_path / "m.onnx"))["Attention_0"]
    assert module_and_group((result,), "Attention") == ("layer.0.attention.self", "attention")


def event(name: str, start: int, length: int, category: str = "Node", **about: Any) -> dict[str, Any]:
    shown = {"op_name": "Conv", "output_type_shape": [{"float": [1, 8]}], "output_size": "32", **about}
    return {"cat": category, "name": name, "ts": start, "dur": length, "args": shown}


def run(start: int, first: int, second: int) -> list[dict[str, Any]]:
    return [
        event("a_kernel_time", start + 1, first),
        event("b_kernel_time", start + 1 + first, second, op_name="Relu"),
        event("model_run", start, first + second + 5, "Session"),
    ]


def test_nodes_are_counted_in_the_runs_that_have_them() -> None:
    events = [event("outside_kernel_time", 5, 1), *run(100, 10, 20), *run(200, 12, 22)]
    runs = profiled_runs(events)
    assert [[entry["name"] for entry in each.nodes] for each in runs] == [["a_kernel_time", "b_kernel_time"]] * 2
    assert [each.span_us for each in runs] == [35, 39]


def test_a_trace_holds_the_last_runs_only() -> None:
    events = [event("load", 0, 3, "Session"), *run(100, 10, 20), *run(200, 12, 22), *run(300, 1, 2)]
    assert last_runs(events, 2) == events[4:]
    assert last_runs(events[:1], 2) == []


def test_rows_are_means_over_the_runs_of_typical_length_in_the_order_of_the_graph() -> None:
    events = [*run(100, 10, 20), *run(200, 12, 22), *run(300, 14, 24), *run(400, 9000, 9000)]
    rows = layer_rows(profiled_runs(events), {"a": (BLOCK.nodes[0], BLOCK.nodes[1])})
    assert [(row.name, row.kind, row.calls, row.self_ns, row.total_ns) for row in rows] == [
        ("a", "Conv", 1, 13_000, 13_000),
        ("b", "Relu", 1, 23_000, 23_000),
    ]
    assert rows[0].members == ("node_c1", "node_r1")
    assert (rows[0].parent, rows[0].group) == ("layer1.conv1", "convolution")
    assert (rows[1].parent, rows[1].group) == (None, "activation")
    assert (rows[0].output_shapes, rows[0].output_bytes, rows[0].flops) == (((1, 8),), 32, None)


def test_every_kernel_of_one_launch_counts_and_work_without_a_launch_is_in_no_node() -> None:
    def traced(category: str, dur: float, **args: int) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": category, "ts": 5.0, "dur": dur, "args": args}

    shown = [{"cat": "Node", "name": "a_kernel_time", "ts": 0, "dur": 10, "args": {}}]
    trace = [
        traced("cuda_runtime", 1.0, correlation=7),
        traced("cuda_runtime", 1.0),
        traced("kernel", 2.0, correlation=7),
        traced("kernel", 3.0, correlation=7),
        traced("kernel", 5.0),
    ]
    (result,), share = with_gpu_times(shown, 0, trace, 0)
    assert (result["dur"], share) == (5.0, 0.5)


def test_a_node_without_outputs_is_read(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")

    graph = onnx.helper.make_graph([onnx.helper.make_node("Sink", ["x"], [], name="sink")], "g", [], [])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    (result,) = read_graph(tmp_path / "m.onnx").nodes
    assert (result.outputs, result.module) == ((), None)
