"""Products and live tensors of small graphs against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from harness.zoo.onnx_complexity import OnnxGraph, live_bytes, open_graph, products_of  # noqa: E402

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
    found = products_of(opened(tmp_path, helper.make_node(kind, names, ["y"], **attributes), inputs, weights))
    assert (found.total, dict(found.macs), found.uncounted) == (macs, {kind: macs}, ())


def test_what_is_not_counted_is_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("LSTM", ["a", "w", "r"], ["", "y"], hidden_size=2),
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("Cast", ["n"], ["f"], to=FLOAT),
        helper.make_node("MatMul", ["f", "v"], ["z"]),
    ]
    weights = {"w": (1, 8, 3), "r": (1, 8, 2), "v": (2, 5)}
    path = save(tmp_path / "m.onnx", nodes, {"x": (4, 1, 3)}, weights, ("y", "z"))
    found = products_of(open_graph(path, {"x": (4, 1, 3)}))
    assert found.total == 0
    assert found.uncounted == ("1 x LSTM: not counted", "1 x MatMul: shape not known")


def test_symbols_become_the_extents_of_the_case_in_the_exporters_notes_as_well(tmp_path: Path) -> None:
    # Nobody can infer what a Reshape by a computed shape gives; the exporter's note knows, in symbols.
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
