"""Counting a user's ONNX file, which has no module, and counts that disagree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import MalformedFileError
from harness.core.schemas import Case, ExportRecord, TensorSpec, Work
from tests.synthetic_results import RESNET, case_of, export_record

pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.stages

BATCH = {"x": np.zeros((4, 10), np.float32)}
WORK = Work(
    sequence_length=None,
    flops_per_item=2 * 1_200,
    parameters=1_200,
    input_bytes_per_item=40,
    output_elements_per_item=2,
)


@pytest.fixture
def export(tmp_path: Path) -> ExportRecord:
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("MatMul", ["a", "v"], ["y"])],
        "own",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 10])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [
            numpy_helper.from_array(np.zeros(shape, np.float32), name)
            for name, shape in (("w", (10, 100)), ("v", (100, 2)))
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "model.onnx")
    spec = TensorSpec(name="x", dtype="float32", shape=("batch", 10))
    return export_record(RESNET).model_copy(update={"module": None, "inputs": (spec,), "work": ()})


def case(precision: str = "fp32") -> Case:
    return case_of(RESNET, "onnxruntime", precision, 4)


def test_without_a_module_the_graph_is_counted(export: ExportRecord, tmp_path: Path) -> None:
    from harness.zoo.cost.counting import counts_of

    counts = counts_of(case(), export, tmp_path, BATCH)
    assert (counts.macs, counts.flops, counts.counted_by) == (1_200, 2_400, "the ONNX graph")
    assert (counts.parameters, counts.trainable_parameters, counts.weight_bytes) == (None, None, {})
    assert "no module" in counts.count_notes[0]
    assert counts.activation_bytes == 4 * (100 + 2)
    lower = counts_of(case("int8"), export, tmp_path, BATCH)
    assert (lower.activation_bytes, lower.activation_bytes_by) == (None, "not estimated: fp32 only")


def test_counts_that_disagree_are_both_reported(export: ExportRecord, tmp_path: Path) -> None:
    from harness.zoo.cost.counting import counts_of

    agreeing = counts_of(case(), export.model_copy(update={"work": (WORK,)}), tmp_path, BATCH)
    assert not any("disagree" in note for note in agreeing.count_notes)
    blind = WORK.model_copy(update={"flops_per_item": 2_000})
    counts = counts_of(case(), export.model_copy(update={"work": (blind,)}), tmp_path, BATCH)
    assert (counts.macs, counts.onnx_count and counts.onnx_count.macs) == (1_000, 1_200)
    assert "torch has 1,000 multiply-adds a sample, the ONNX graph 1,200" in counts.count_notes[0]


def test_the_graph_counts_operators_that_torch_cannot_and_nothing_counted_is_no_zero(
    export: ExportRecord, tmp_path: Path
) -> None:
    from harness.zoo.cost.counting import counts_of

    blind = WORK.model_copy(update={"flops_per_item": 0, "uncounted": ("mystery",)})
    counts = counts_of(case(), export.model_copy(update={"work": (blind,)}), tmp_path, BATCH)
    assert (counts.macs, counts.counted_by, counts.uncounted) == (1_200, "the ONNX graph", ())
    assert not any("disagree" in note for note in counts.count_notes)
    alone = counts_of(case(), export.model_copy(update={"work": (blind,), "onnx": {}}), tmp_path, BATCH)
    assert (alone.macs, alone.flops, alone.uncounted) == (None, None, ("mystery",))
    part = blind.model_copy(update={"flops_per_item": 2_000})
    some = counts_of(case(), export.model_copy(update={"work": (part,), "onnx": {}}), tmp_path, BATCH)
    assert (some.macs, some.uncounted) == (1_000, ("mystery",))


def test_an_export_without_an_fp32_file_says_so(export: ExportRecord, tmp_path: Path) -> None:
    from harness.zoo.cost.counting import counts_of

    counts = counts_of(case(), export.model_copy(update={"onnx": {}}), tmp_path, BATCH)
    assert (counts.macs, counts.flops, counts.onnx_count, counts.activation_bytes) == (None, None, None, None)
    assert counts.count_notes[0] == "there is no fp32 ONNX file to compare the count with"


def test_a_damaged_onnx_file_is_named(tmp_path: Path) -> None:
    from harness.zoo.cost.onnx_counts import open_graph

    (tmp_path / "model.onnx").write_bytes(b"\x08\x0a:\xff\xff\x01")
    with pytest.raises(MalformedFileError, match=r"model\.onnx cannot be read \(DecodeError") as raised:
        open_graph(tmp_path / "model.onnx", {})
    assert "make export" in raised.value.hint
