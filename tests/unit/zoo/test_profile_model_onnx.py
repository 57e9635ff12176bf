"""Products and live tensors of small graphs against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from harness.zoo.cost.onnx_counts import OnnxGraph, OnnxProducts, live_bytes, open_graph, products_of  # noqa: E402  # noqa: E402

FLOAT = TensorProto.FLOAT
Dims = Sequence[int | str]


def save(
    path: Path,
    nodes: list[Any],
    inputs: dict[str, Dims],
    weights: dict[str, tuple[int, ...]],
    outputs: Sequence[str] = ("y",),
    notes: dict[str, Dims] | None = None,
) -> Path:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, FLOAT, list(dims)) for name, dims in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in weights.items()],
        value_info=[helper.make_tensor_value_info(name, FLOAT, list(dims)) for name, dims in (notes or {}).items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


def opened(tmp_path: Path, node: Any, inputs: dict[str, Dims], weights: dict[str, tuple[int, ...]]) -> OnnxGraph:
    extents = {name: tuple(int(extent) for extent in dims) for name, dims in inputs.items()}
    return open_graph(save(tmp_path / "m.onnx", [node], inputs, weights), extents)


@pytest.mark.parametrize(
    ("node", "inputs", "weights", "macs"),
    [
        # 8 x 10 x 10 outputs, each over 3 channels x 3 x 3
        (("Conv", ["x", "w"], {"pads": [1, 1, 1, 1]}), {"x": (1, 3, 10, 10)}, {"w": (8, 3, 3, 3)}, 8 * 100 * 27),
        # depthwise: each of 4 x 5 x 5 outputs over 1 channel x 3 x 3, in strides of 2
        (
            ("Conv", ["x", "w"], {"group": 4, "pads": [1, 1, 1, 1], "strides": [2, 2]}),
            {"x": (1, 4, 10, 10)},
            {"w": (4, 1, 3, 3)},
            4 * 25 * 9,
        ),
        # each of 4 x 5 x 5 inputs goes to 6 channels x 2 x 2
        (("ConvTranspose", ["x", "w"], {"strides": [2, 2]}), {"x": (1, 4, 5, 5)}, {"w": (4, 6, 2, 2)}, 100 * 24),
        (("Gemm", ["x", "w"], {"transB": 1}), {"x": (2, 7)}, {"w": (5, 7)}, 2 * 5 * 7),
        (("Gemm", ["x", "w"], {"transA": 1}), {"x": (7, 2)}, {"w": (7, 5)}, 2 * 5 * 7),
        (("MatMul", ["x", "w"], {}), {"x": (3, 12, 4, 8)}, {"w": (8, 6)}, 3 * 12 * 4 * 6 * 8),
        (("MatMul", ["x", "k"], {}), {"x": (2, 3, 4, 8), "k": (2, 3, 8, 4)}, {}, 2 * 3 * 4 * 4 * 8),
        (("Einsum", ["x", "w"], {"equation": "bid, dj -> bij"}), {"x": (2, 3, 4)}, {"w": (4, 5)}, 2 * 3 * 4 * 5),
    ],
)
def test_each_operator_by_hand(
    node: tuple[str, list[str], dict[str, Any]],
    inputs: dict[str, Dims],
    weights: dict[str, tuple[int, ...]],
    macs: int,
    tmp_path: Path,
) -> None:
    kind, names, attributes = node
    products = products_of(opened(tmp_path, helper.make_node(kind, names, ["y"], **attributes), inputs, weights))
    assert (products.total, dict(products.macs), products.uncounted) == (macs, {kind: macs}, ())


def test_uncounted_operators_are_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("DFT", ["a"], ["y"]),
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("Cast", ["n"], ["f"], to=FLOAT),
        helper.make_node("MatMul", ["f", "v"], ["z"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, {"x": (4, 3, 1)}, {"v": (3, 5)}, ("y", "z"))
    products = products_of(open_graph(path, {"x": (4, 3, 1)}))
    assert products.total == 0
    assert products.uncounted == ("1 x DFT: not counted", "1 x MatMul: shape not known")


def test_symbols_become_the_extents_of_the_case_in_the_exporters_notes_as_well(tmp_path: Path) -> None:
    # The result of a Reshape by a computed shape cannot be inferred; the exporter's note knows, in symbols.
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Abs", ["s"], ["t"]),
        helper.make_node("Reshape", ["x", "t"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    inputs: dict[str, Dims] = {"x": ("batch", "sequence", 4)}
    path = save(tmp_path / "m.onnx", nodes, inputs, {"w": (4, 5)}, notes={"r": ("batch", "sequence", 4)})
    for batch, length in ((1, 8), (2, 16)):
        graph = open_graph(path, {"x": (batch, length, 4)})
        assert graph.shapes["r"] == (batch, length, 4)
        assert products_of(graph).total == batch * length * 4 * 5
    unknown = save(tmp_path / "u.onnx", nodes, inputs, {"w": (4, 5)}, notes={"r": ("batch", "other", 4)})
    assert "r" not in open_graph(unknown, {"x": (1, 8, 4)}).shapes


def test_tensors_live_from_their_node_to_their_last_reader(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),  # a: 40 bytes
        helper.make_node("MatMul", ["a", "w"], ["b"]),  # a, b: 40 + 400
        helper.make_node("Relu", ["b"], ["c"]),  # b, c: 400 + 400
        helper.make_node("MatMul", ["c", "v"], ["d"]),  # c, d: 400 + 8
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, {"x": (1, 10)}, {"w": (10, 100), "v": (100, 2)})
    live = live_bytes(open_graph(path, {"x": (1, 10)}))
    assert (live.peak, live.unknown) == (800, 0)
    both = save(tmp_path / "b.onnx", nodes, {"x": (1, 10)}, {"w": (10, 100), "v": (100, 2)}, ("y", "a"))
    assert live_bytes(open_graph(both, {"x": (1, 10)})).peak == 840  # an output stays


def model_of(
    tmp_path: Path, nodes: list[Any], inputs: dict[str, Dims], tensors: Sequence[Any], **more: Any
) -> OnnxProducts:
    """The count of a model of one output `y`, with ONNX Runtime's own operators."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, FLOAT, list(dims)) for name, dims in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        list(tensors),
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 20), (MICROSOFT, 1), ("mine", 1))]
    onnx.save(helper.make_model(graph, opset_imports=opsets, **more), tmp_path / "m.onnx")
    extents = {name: tuple(int(extent) for extent in dims) for name, dims in inputs.items()}
    return products_of(open_graph(tmp_path / "m.onnx", extents))


def zeros(name: str, *shape: int, kind: Any = np.float32) -> Any:
    return numpy_helper.from_array(np.zeros(shape, kind), name)


MICROSOFT = "com.microsoft"


@pytest.mark.parametrize(
    ("node", "inputs", "weights", "macs"),
    [
        # 5 steps x 2 items x 2 directions x 4 gates of 6 x (3 inputs + 6 hidden)
        (
            ("LSTM", "xwr", {"hidden_size": 6, "direction": "bidirectional"}),
            {"x": (5, 2, 3)},
            {"w": (2, 24, 3), "r": (2, 24, 6)},
            5 * 2 * 2 * 24 * 9,
        ),
        (("GRU", "xwr", {"hidden_size": 6}), {"x": (5, 2, 3)}, {"w": (1, 18, 3), "r": (1, 18, 6)}, 5 * 2 * 18 * 9),
        (("RNN", "xwr", {"hidden_size": 6}), {"x": (5, 2, 3)}, {"w": (1, 6, 3), "r": (1, 6, 6)}, 5 * 2 * 6 * 9),
        # each of 8 x 10 x 10 outputs over 3 channels x 3 x 3; the samples' places cost no products
        (
            ("DeformConv", "xwo", {"pads": [1] * 4}),
            {"x": (1, 3, 10, 10), "o": (1, 18, 10, 10)},
            {"w": (8, 3, 3, 3)},
            8 * 100 * 27,
        ),
    ],
)
def test_recurrent_and_deformable_operators_by_hand(
    node: tuple[str, str, dict[str, Any]],
    inputs: dict[str, Dims],
    weights: dict[str, tuple[int, ...]],
    macs: int,
    tmp_path: Path,
) -> None:
    kind, names, attributes = node
    made = helper.make_node(kind, list(names), ["y"], **attributes)
    model = model_of(tmp_path, [made], inputs, [zeros(name, *shape) for name, shape in weights.items()])
    assert (dict(model.macs), model.uncounted) == ({kind: macs}, ())


@pytest.mark.parametrize(
    ("node", "inputs", "weights", "macs"),
    [
        (("FusedMatMul", "xw", {"transB": 1}), {"x": (2, 3, 8)}, {"w": (5, 8)}, 2 * 3 * 8 * 5),
        (("FusedMatMul", "xk", {"transA": 1}), {"x": (2, 8, 3), "k": (2, 8, 5)}, {}, 2 * 3 * 8 * 5),
        # projection to 24, then 6 x 6 scores over 8, and their product with values of 8
        (("Attention", "xwb", {"num_heads": 2}), {"x": (1, 6, 8)}, {"w": (8, 24), "b": (24,)}, 6 * 8 * 24 + 6 * 6 * 16),
        (
            ("MultiHeadAttention", "qkv", {"num_heads": 2}),
            {"q": (1, 6, 8), "k": (1, 9, 8), "v": (1, 9, 4)},
            {},
            6 * 9 * (8 + 4),
        ),
        (
            ("FusedConv", "xw", {"activation": "Relu", "pads": [1] * 4, "strides": [2, 2]}),
            {"x": (1, 3, 5, 5)},
            {"w": (8, 3, 3, 3)},
            8 * 9 * 27,
        ),
        (
            ("MatMulNBits", "xws", {"K": 64, "N": 32, "bits": 4, "block_size": 32}),
            {"x": (2, 64)},
            {"w": (32, 2, 16), "s": (64,)},
            2 * 64 * 32,
        ),
    ],
)
def test_fused_operators_of_onnx_runtime_by_hand(
    node: tuple[str, str, dict[str, Any]],
    inputs: dict[str, Dims],
    weights: dict[str, tuple[int, ...]],
    macs: int,
    tmp_path: Path,
) -> None:
    kind, names, attributes = node
    made = helper.make_node(kind, list(names), ["y"], domain=MICROSOFT, **attributes)
    model = model_of(tmp_path, [made], inputs, [zeros(name, *shape) for name, shape in weights.items()])
    assert (dict(model.macs), model.uncounted) == ({kind: macs}, ())


def test_an_operator_behind_a_fused_one_is_counted_too(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Attention", ["x", "w", "b"], ["a"], domain=MICROSOFT, num_heads=2),
        helper.make_node("BiasGelu", ["a", "c"], ["g"], domain=MICROSOFT),
        helper.make_node("MatMul", ["g", "v"], ["y"]),
    ]
    tensors = [zeros("w", 8, 24), zeros("b", 24), zeros("c", 8), zeros("v", 8, 5)]
    model = model_of(tmp_path, nodes, {"x": (1, 6, 8)}, tensors)
    assert dict(model.macs) == {"Attention": 6 * 8 * 24 + 6 * 6 * 16, "MatMul": 6 * 8 * 5}
    assert model.uncounted == ()


def test_functions_of_the_model_are_put_in_the_place_of_their_calls(tmp_path: Path) -> None:
    inner = [helper.make_node("MatMul", ["a", "b"], ["m"]), helper.make_node("Relu", ["m"], ["c"])]
    function = helper.make_function("mine", "Layer", ["a", "b"], ["c"], inner, [helper.make_opsetid("", 20)])
    nodes = [
        helper.make_node("Layer", ["x", "w"], ["h"], domain="mine"),
        helper.make_node("Layer", ["h", "v"], ["y"], domain="mine"),
    ]
    model = model_of(tmp_path, nodes, {"x": (1, 8)}, [zeros("w", 8, 4), zeros("v", 4, 3)], functions=[function])
    assert (dict(model.macs), model.uncounted) == ({"MatMul": 8 * 4 + 4 * 3}, ())


def branch(name: str, weight: str) -> Any:
    made = helper.make_node("MatMul", ["x", weight], [name])
    return helper.make_graph([made], name, [], [helper.make_tensor_value_info(name, FLOAT, None)])


@pytest.mark.parametrize(
    ("condition", "other", "macs", "missing"),
    [
        ("c", "v", 8 * 4, ()),  # equal branches: it does not matter which is taken
        ("c", "wide", 8 * 4, ("1 x If: its branch with fewer products is counted",)),
        ("true", "wide", 8 * 4, ()),
        ("false", "wide", 8 * 64, ()),
    ],
)
def test_the_branch_that_is_taken_or_the_smaller_one(
    condition: str, other: str, macs: int, missing: tuple[str, ...], tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", [condition], ["y"], then_branch=branch("t", "w"), else_branch=branch("e", other)),
    ]
    tensors = [zeros("w", 8, 4), zeros("v", 8, 4), zeros("wide", 8, 64), zeros("zero")]
    tensors += [numpy_helper.from_array(np.array(value), name) for name, value in (("true", True), ("false", False))]
    model = model_of(tmp_path, nodes, {"x": (1, 8)}, tensors)
    assert (dict(model.macs), model.uncounted) == ({"MatMul": macs}, missing)


@pytest.mark.parametrize(
    ("rounds", "ends", "macs", "missing"),
    [
        ("three", "c", 3 * 64, ()),
        ("three", "n", 64, ("1 x Loop: one of its rounds is counted",)),
        ("unknown", "c", 64, ("1 x Loop: one of its rounds is counted",)),
    ],
)
def test_a_loop_counts_its_rounds_where_they_are_known(
    rounds: str, ends: str, macs: int, missing: tuple[str, ...], tmp_path: Path
) -> None:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["v", "w"], ["v2"]),
            helper.make_node("Not", ["c"], ["n"]),
            helper.make_node("Identity", [ends], ["c2"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("v", FLOAT, [1, 8])],
        [info("c2", TensorProto.BOOL, []), info("v2", FLOAT, [1, 8])],
    )
    nodes = [
        helper.make_node("Size", ["x"], ["unknown"]),
        helper.make_node("Loop", [rounds, "", "x"], ["y"], body=body),
    ]
    three = numpy_helper.from_array(np.array(3, np.int64), "three")
    model = model_of(tmp_path, nodes, {"x": (1, 8)}, [zeros("w", 8, 8), three])
    assert (dict(model.macs), model.uncounted) == ({"MatMul": macs}, missing)


@pytest.mark.parametrize(
    ("node", "missing"),
    [
        (("DFT", "x", ""), "1 x DFT: not counted"),
        (("Sparkle", "x", "mine"), "1 x Sparkle: not counted"),
        (("MoE", "x", MICROSOFT), "1 x MoE: not counted"),
        (("Softmax", "x", ""), None),
        (("QuickGelu", "x", MICROSOFT), None),
    ],
)
def test_zero_is_never_not_counted(node: tuple[str, str, str], missing: str | None, tmp_path: Path) -> None:
    kind, names, domain = node
    model = model_of(tmp_path, [helper.make_node(kind, list(names), ["y"], domain=domain)], {"x": (1, 6, 1)}, [])
    assert (model.total, model.uncounted) == (0, (missing,) if missing else ())
