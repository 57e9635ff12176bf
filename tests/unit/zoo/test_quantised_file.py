"""Whether a file is quantised, from its bytes; and what a plan makes of one that is."""

from __future__ import annotations

from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402

from harness.core.schemas import Quantisation  # noqa: E402
from harness.planning.config import parse_config  # noqa: E402
from harness.planning.matrix import make_plan  # noqa: E402
from harness.zoo.quantised_files import computes_dequantised, quantisation_of  # noqa: E402
from tests.fixtures import odd_onnx as files  # noqa: E402


def of_nodes(kinds: str, path: Path) -> Path:
    made = [helper.make_node(kind, ["x", "w"], [f"y{place}"]) for place, kind in enumerate(kinds.split())]
    return files.save(path, made, [files.info("x", ["N", 8])], [files.info("y0", ["N", 4])])


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("QuantizeLinear DequantizeLinear", "static"),
        ("QuantizeLinear MatMulInteger", "static"),
        ("MatMul QuantizeLinear", None),
        ("QLinearMatMul", "static"),
        ("DynamicQuantizeLinear", "dynamic"),
        ("MatMulInteger", "dynamic"),
        ("DequantizeLinear", None),
        ("MatMul", None),
    ],
)
def test_operators_decide_whether_a_file_is_quantised(
    kinds: str, expected: Quantisation | None, tmp_path: Path
) -> None:
    assert quantisation_of(of_nodes(kinds, tmp_path / "m.onnx")) == expected


@pytest.mark.parametrize(
    ("activations", "weights", "expected"),
    [
        (onnx.TensorProto.UINT8, onnx.TensorProto.INT8, "static"),
        (onnx.TensorProto.INT8, onnx.TensorProto.INT8, "static"),
        (onnx.TensorProto.UINT16, onnx.TensorProto.INT8, None),
        (onnx.TensorProto.INT8, onnx.TensorProto.INT4, None),
        (onnx.TensorProto.FLOAT8E4M3FN, onnx.TensorProto.FLOAT8E4M3FN, None),
        (None, onnx.TensorProto.UINT4, None),
    ],
)
@pytest.mark.parametrize("by_attribute", [False, True])
def test_only_products_of_bytes_make_a_file_int8(
    activations: int | None, weights: int, expected: Quantisation | None, by_attribute: bool, tmp_path: Path
) -> None:
    def constant(name: str, kind: int) -> onnx.TensorProto:
        return helper.make_tensor(name, kind, [2], [0, 1])

    zero = [] if by_attribute or activations is None else [constant("zero", activations)]
    typed = {"output_dtype": activations} if by_attribute else {}
    nodes = [
        *(
            []
            if activations is None
            else [helper.make_node("QuantizeLinear", ["x", "s", *(["zero"] if zero else [])], ["q"], **typed)]
        ),
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s"], ["v"]),
        helper.make_node("DequantizeLinear", ["bias", "s"], ["c"]),
        helper.make_node("MatMul", ["d", "v"], ["y"]),
    ]
    constants = [*zero, constant("w", weights), constant("bias", onnx.TensorProto.INT32)]
    graph = helper.make_graph(nodes, "g", [files.info("x", ["N", 2])], [files.info("y", ["N", 2])], constants)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph), path)
    assert quantisation_of(path) == expected
    assert computes_dequantised(path) is (expected is None)


def test_a_name_that_only_reads_like_an_operator_does_not(tmp_path: Path) -> None:
    assert quantisation_of(files.linear(tmp_path / "m.onnx", x="QuantizeLinear", y="after_QuantizeLinear")) is None


def test_an_unreadable_file_is_not_quantised(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    assert quantisation_of(tmp_path / "empty.onnx") is None
    assert quantisation_of(tmp_path / "absent.onnx") is None
    assert quantisation_of(tmp_path) is None
    (tmp_path / "text.onnx").write_text("no message" * 100)
    assert quantisation_of(tmp_path / "text.onnx") is None
    assert not computes_dequantised(tmp_path / "text.onnx")


def test_its_cases_are_int8_once_for_every_precision_of_the_blocks() -> None:
    data = {
        "models": ["onnx:q.onnx", "onnx:plain.onnx"],
        "matrix": [
            {"backends": ["torch-eager", "onnxruntime", "openvino"], "precisions": ["fp32", "bf16"]},
            {"backends": ["onnxruntime"], "precisions": ["int8"]},
        ],
    }
    config = parse_config(data, "my.yaml")
    for kind in ("static", "dynamic"):
        plan = make_plan(config, "my.yaml", "", quantised={"onnx:q.onnx": kind})  # type: ignore[dict-item]
        own = {case.backend: case.skip_reason for case in plan.cases if case.model == "onnx:q.onnx"}
        assert {case.precision for case in plan.cases if case.model == "onnx:q.onnx"} == {"int8"}
        assert own["onnxruntime"] is None
        assert own["torch-eager"] == "an ONNX file has no PyTorch module to run"
        assert (own["openvino"] is None) == (kind == "static")
        others = {case.precision for case in plan.cases if case.model == "onnx:plain.onnx"}
        assert others == {"fp32", "bf16", "int8"}
