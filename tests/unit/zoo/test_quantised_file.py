"""Whether a file is quantised, from its bytes; and what a plan makes of one that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402

from harness.core.errors import ConfigError  # noqa: E402
from harness.planning.config import parse_config  # noqa: E402
from harness.planning.matrix import make_plan  # noqa: E402
from harness.zoo import model_info, quantised_files  # noqa: E402
from harness.zoo.families import own_onnx  # noqa: E402
from harness.zoo.file_graph import graph_of  # noqa: E402
from harness.zoo.loaded import Request  # noqa: E402
from harness.zoo.quantised_files import FileQuantisation, bits_of_blocks, blocks_in_int8, quantisation_of  # noqa: E402
from tests.fixtures import odd_onnx as files  # noqa: E402


def of_nodes(kinds: str, path: Path) -> Path:
    made = [helper.make_node(kind, ["x", "w"], [f"y{place}"]) for place, kind in enumerate(kinds.split())]
    return files.save(path, made, [files.info("x", ["N", 8])], [files.info("y0", ["N", 4])])


def of_file(path: Path) -> FileQuantisation | None:
    return quantisation_of(graph_of(path))


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
    kinds: str, expected: FileQuantisation | None, tmp_path: Path
) -> None:
    assert of_file(of_nodes(kinds, tmp_path / "m.onnx")) == expected


U8, I8, U16, I4, F8 = (getattr(onnx.TensorProto, name) for name in ("UINT8", "INT8", "UINT16", "INT4", "FLOAT8E4M3FN"))


def constant(name: str, kind: int, as_node: bool = False) -> Any:
    tensor = helper.make_tensor(name, kind, [2], [0, 1])
    return helper.make_node("Constant", [], [name], value=tensor) if as_node else tensor


def quantise(source: str, to: str, kind: int, by_attribute: bool = False) -> list[Any]:
    """QuantizeLinear and DequantizeLinear."""
    zero, typed = ([], {"output_dtype": kind}) if by_attribute else ([f"zero{kind}"], {})
    return [
        helper.make_node("QuantizeLinear", [source, "s", *zero], [f"q{to}"], **typed),
        helper.make_node("DequantizeLinear", [f"q{to}", "s", *zero], [to]),
    ]


def product(*inputs: str) -> Any:
    return helper.make_node("MatMul", list(inputs), ["y"])


WEIGHTS = helper.make_node("DequantizeLinear", ["w", "s"], ["v"])
TURNED = helper.make_node("Transpose", ["v"], ["vt"])


def saved(path: Path, nodes: list[Any], weights: int = I8, as_node: bool = False) -> Path:
    constants = [
        constant("w", weights, as_node),
        *(constant(f"zero{kind}", kind, as_node) for kind in (U8, I8, U16, F8)),
    ]
    made = constants if as_node else []
    shape = [files.info("x", ["N", 2])], [files.info("y", ["N", 2])]
    graph = helper.make_graph([*made, *nodes], "g", *shape, [] if as_node else constants)
    onnx.save(helper.make_model(graph), path)
    return path


@pytest.mark.parametrize("as_node", [False, True], ids=["initializers", "nodes"])
@pytest.mark.parametrize(
    ("nodes", "weights", "expected"),
    [
        ([*quantise("x", "d", U8), WEIGHTS, product("d", "v")], I8, "static"),
        ([*quantise("x", "d", U8, by_attribute=True), WEIGHTS, product("d", "v")], I8, "static"),
        ([*quantise("x", "d", I8), WEIGHTS, TURNED, product("d", "vt")], I8, "static"),
        ([*quantise("x", "d", I8), *quantise("w", "v", I8), product("d", "v")], onnx.TensorProto.FLOAT, "static"),
        ([*quantise("x", "d", U16), WEIGHTS, product("d", "v")], I8, "weights"),
        ([*quantise("x", "d", U16, by_attribute=True), WEIGHTS, product("d", "v")], I8, "weights"),
        ([*quantise("x", "d", I8), WEIGHTS, product("d", "v")], I4, "weights"),
        ([*quantise("x", "d", F8), WEIGHTS, product("d", "v")], F8, "weights"),
        ([WEIGHTS, product("x", "v")], I4, "weights"),
        ([WEIGHTS, product("x", "v"), *quantise("y", "z", U8)], I8, "weights"),
        ([*quantise("w", "v", I8), product("x", "v")], onnx.TensorProto.FLOAT, "weights"),
        ([*quantise("x", "d", U16), WEIGHTS, product("d", "v"), *quantise("y", "z", U8)], I8, "weights"),
        ([*quantise("x", "d", U16), helper.make_node("MatMulInteger", ["b", "w"], ["y"])], I8, "dynamic"),
    ],
)
def test_only_products_of_bytes_make_a_file_int8(
    nodes: list[Any], weights: int, expected: FileQuantisation | None, as_node: bool, tmp_path: Path
) -> None:
    assert of_file(saved(tmp_path / "m.onnx", nodes, weights, as_node)) == expected


def test_pixels_that_a_file_restores_are_no_weights(tmp_path: Path) -> None:
    pixels = helper.make_node("DequantizeLinear", ["x", "s"], ["d"])
    assert of_file(saved(tmp_path / "pixels.onnx", [pixels, product("d", "w")])) is None


def test_blocks_of_weights_are_int8_where_activations_become_bytes(tmp_path: Path) -> None:
    for bits in (4, 8):
        in_floats, in_bytes = (
            files.with_bytes(tmp_path / f"{level}.onnx", bits=bits, accuracy_level=level) for level in (1, 4)
        )
        assert (of_file(in_floats), blocks_in_int8(graph_of(in_floats))) == ("weights", 0)
        assert (of_file(in_bytes), blocks_in_int8(graph_of(in_bytes))) == ("dynamic", 1)
        assert bits_of_blocks(graph_of(in_bytes)) == [bits]


def test_the_export_reads_the_quantisation_of_a_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = files.reads_of(own_onnx, monkeypatch)
    path = files.with_bytes(tmp_path / "m.onnx")
    loaded = own_onnx.load(Request(model_info(f"onnx:{path}"), "own", 0, None, tmp_path))
    assert loaded.quantised is None
    assert quantised_files.DEQUANTISED in loaded.weight_source
    assert read == [path]


def test_a_damaged_file_is_not_quantised(tmp_path: Path) -> None:
    whole = saved(tmp_path / "m.onnx", [*quantise("x", "d", U8), WEIGHTS, product("d", "v")]).read_bytes()
    for content in (b"no message" * 100, b"\xff" * 1_000_000, whole[:-20], whole[20:]):
        (tmp_path / "damaged.onnx").write_bytes(content)
        assert of_file(tmp_path / "damaged.onnx") is None


def test_a_file_of_too_many_graphs_in_graphs_is_not_quantised(tmp_path: Path) -> None:
    def message(number: int, content: bytes) -> bytes:
        length, digits = len(content), bytearray()
        while length > 127:
            digits.append(length & 0x7F | 0x80)
            length >>= 7
        return bytes((number << 3 | 2, *digits, length)) + content

    graph = message(1, message(4, b"QLinearMatMul"))
    (tmp_path / "flat.onnx").write_bytes(message(7, graph))
    assert of_file(tmp_path / "flat.onnx") == "static"
    for _ in range(600):
        graph = message(1, message(5, message(6, graph)))
    (tmp_path / "deep.onnx").write_bytes(message(7, graph))
    assert of_file(tmp_path / "deep.onnx") is None


def test_a_name_that_only_reads_like_an_operator_does_not(tmp_path: Path) -> None:
    assert of_file(files.linear(tmp_path / "m.onnx", x="QuantizeLinear", y="after_QuantizeLinear")) is None


def test_an_unreadable_file_is_not_quantised(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    assert of_file(tmp_path / "empty.onnx") is None
    assert of_file(tmp_path / "absent.onnx") is None
    assert of_file(tmp_path) is None


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


def test_a_file_with_quantised_weights_alone_is_not_quantised_again() -> None:
    blocks = [{"backends": ["onnxruntime", "openvino"], "precisions": ["fp32", "int8"]}]
    config = parse_config({"models": ["onnx:w.onnx"], "matrix": blocks}, "my.yaml")
    plan = make_plan(config, "my.yaml", "", quantised={"onnx:w.onnx": "weights"})
    skipped = {(case.backend, case.precision): case.skip_reason for case in plan.cases}
    why = f"this file is {quantised_files.DEQUANTISED}: PRECISIONS=fp32 measures it as it is"
    assert skipped == {
        **{(name, "fp32"): None for name in ("onnxruntime", "openvino")},
        **{(name, "int8"): why for name in ("onnxruntime", "openvino")},
    }
    assert plan.models[0].onnx_precisions == ("fp32",)
    twice = parse_config({"models": ["onnx:w.onnx"], "matrix": blocks * 2}, "my.yaml")
    with pytest.raises(ConfigError, match="duplicate case"):
        make_plan(twice, "my.yaml", "", quantised={"onnx:w.onnx": "weights"})
