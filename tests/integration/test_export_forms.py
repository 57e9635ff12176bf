"""The further forms of an ONNX file, of trained weights and with real libraries: what each holds, and that a file which
does not obey its attention mask is found out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from harness.core import store
from harness.core.errors import ExportError
from harness.core.layout import Models
from harness.core.schemas import ExportRecord, PlannedModel
from harness.zoo.onnx.variants import MASK, check_padding, count_fused, read_masks
from harness.zoo.reference import open_session, run_session
from tests.fixtures.exporting import OWN_MODULE, planned, record_of, run_export, write_plan
from tests.fixtures.stages import latest_export

pytestmark = pytest.mark.stages

MODEL = "minilm-l6"
LAYERS = 6
FORMS = ("fp32-opset17", "fp16-opset17", "fp32-fused", "fp16-fused", "fp32-packed", "fp16-packed")
KNOWN_TO_TENSORRT_8_6 = frozenset(
    """
    Add And Cast Concat Constant ConstantOfShape Conv Div Equal Erf Expand Flatten Gather GatherElements GatherND Gemm
    Greater GreaterOrEqual Identity LayerNormalization Less LessOrEqual MatMul Mod Mul Not Or Pow Range ReduceMean
    Reshape Shape Slice Softmax Sqrt Squeeze Sub Tanh Transpose Unsqueeze Where
    """.split()  # noqa: SIM905 - easier to read
)
"""Those that an encoder may need, from the table of onnx-tensorrt 8.5, and LayerNormalization and Mod, which
libnvonnxparser 8.6.0 holds. Of newer operators (Gelu, …) its parser says that there is no importer."""


def with_forms(*forms: str, model: str = MODEL, **more: Any) -> PlannedModel:
    plain = planned(model, more.pop("weights", "pretrained"), more.pop("lengths", (16, 32)), ("fp32",))
    return plain.model_copy(update={"onnx_variants": forms})


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forms")
    write_plan(folder / "results", [with_forms(*FORMS)])
    done = run_export(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def record(exported: Path) -> ExportRecord:
    return record_of(exported, MODEL)


def path_of(exported: Path, form: str) -> Path:
    return files_of(exported) / record_of(exported, MODEL).onnx_variants[form].path


def files_of(exported: Path) -> Path:
    return latest_export(Models(exported / "models"), MODEL)[0].root


@pytest.mark.slow
def test_each_form_is_a_file_of_its_own_that_was_held_against_torch(exported: Path, record: ExportRecord) -> None:
    assert set(record.onnx_variants) == set(FORMS)
    files = [*record.onnx.values(), *record.onnx_variants.values()]
    assert len({file.path for file in files}) == len({file.sha256 for file in files}) == 1 + len(FORMS)
    for file in files:
        assert store.sha256_file(files_of(exported) / file.path) == file.sha256
    # Two batch sizes at two lengths of every file: an axis that an exporter froze would have failed at one of them.
    # The packed files are not among them: their operators run on CUDA alone.
    assert [check.precision for check in record.checks].count("fp32") == 3 * 4
    assert [check.precision for check in record.checks].count("fp16") == 2 * 4


@pytest.mark.slow
@pytest.mark.parametrize("form", ["fp32-opset17", "fp16-opset17"])
def test_the_form_for_tensorrt_holds_nothing_that_8_6_does_not_read(
    exported: Path, record: ExportRecord, form: str
) -> None:
    assert record.onnx_variants[form].opset == 17
    model = onnx.load(path_of(exported, form))
    assert {entry.domain for entry in model.opset_import} <= {"", "ai.onnx"}
    assert {node.op_type for node in model.graph.node} - KNOWN_TO_TENSORRT_8_6 == set()
    assert [entry.name for entry in model.graph.input] == [spec.name for spec in record.inputs]
    assert [entry.name for entry in model.graph.output] == [spec.name for spec in record.outputs]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["fp32-fused", "fp16-fused"])
def test_the_fused_form_has_every_layer_fused(exported: Path, record: ExportRecord, form: str) -> None:
    model = onnx.load(path_of(exported, form))
    result = count_fused(model.graph)
    assert result["Attention"] == LAYERS
    assert result["BiasGelu"] == LAYERS
    assert result["SkipLayerNormalization"] == 2 * LAYERS
    assert "Softmax" not in {node.op_type for node in model.graph.node}
    assert f"{LAYERS} Attention" in record.onnx_variants[form].exporter


@pytest.mark.slow
@pytest.mark.parametrize("form", ["fp32-packed", "fp16-packed"])
def test_the_packed_form_has_no_padding_between_its_first_attention_and_its_end(
    exported: Path, record: ExportRecord, form: str
) -> None:
    graph = onnx.load(path_of(exported, form)).graph
    by_kind: dict[str, list[Any]] = {}
    for node in graph.node:
        by_kind.setdefault(node.op_type, []).append(node)
    (remove,), (restore,) = by_kind["RemovePadding"], by_kind["RestorePadding"]
    assert "Attention" not in by_kind
    assert len(by_kind["PackedAttention"]) == LAYERS
    _, places, lengths, _ = remove.output
    assert all(tuple(node.input[3:5]) == (places, lengths) for node in by_kind["PackedAttention"])
    made_by = {name: node.op_type for node in graph.node for name in node.output}
    assert made_by[remove.input[0]] == "EmbedLayerNormalization"
    assert restore.input[1] == places
    assert made_by[restore.input[0]] == "SkipLayerNormalization"
    assert [entry.name for entry in graph.output] == [spec.name for spec in record.outputs]
    assert f"{LAYERS} PackedAttention" in record.onnx_variants[form].exporter


@pytest.mark.slow
def test_fp16_forms_hold_their_weights_in_fp16(record: ExportRecord) -> None:
    for form in FORMS:
        half = form.startswith("fp16")
        census = record.onnx_variants[form].dtype_census
        assert (census.get("float16", 0) > 100 * census.get("float", 0)) == half
        assert ("float16" in census) == half


@pytest.mark.slow
def test_the_fused_form_answers_the_same_where_rows_are_padded(exported: Path) -> None:
    plain, fused = path_of(exported, "fp32-opset17"), path_of(exported, "fp32-fused")
    assert check_padding(plain, fused, inputs_of(exported), threads=1) < 1e-4


@pytest.mark.slow
def test_a_form_that_ignores_the_mask_is_detected(exported: Path, tmp_path: Path) -> None:
    plain, deaf = path_of(exported, "fp32-opset17"), tmp_path / "deaf.onnx"
    model = onnx.load(plain)
    assert read_masks(model.graph) == LAYERS
    onnx.save(model, deaf)
    inputs = inputs_of(exported)
    check_padding(plain, deaf, inputs, threads=1)  # what was written for the optimizer means the same
    (masked,) = [entry for entry in model.graph.initializer if entry.name == "fused_masked"]
    masked.CopyFrom(onnx.numpy_helper.from_array(np.array(0, np.float32), masked.name))
    onnx.save(model, deaf)
    assert same_without_padding(plain, deaf, inputs), "on the inputs that are measured nothing would show it"
    with pytest.raises(ExportError, match=r"deaf\.onnx does not obey the attention mask"):
        check_padding(plain, deaf, inputs, threads=1)


def inputs_of(exported: Path) -> dict[str, Any]:
    with np.load(files_of(exported) / "inputs-s32.npz") as stored:
        return {name: stored[name][:2] for name in stored.files}


def same_without_padding(one: Path, other: Path, inputs: dict[str, Any]) -> bool:
    assert inputs[MASK].all()
    answers = [run_session(open_session(path, 1), inputs) for path in (one, other)]
    return all(np.allclose(answers[0][name], answers[1][name], atol=1e-4) for name in answers[0])


def test_a_form_that_a_plan_adds_is_exported_and_one_that_it_drops_is_kept(tmp_path: Path) -> None:
    (tmp_path / "own_models.py").write_text(OWN_MODULE)
    name = "module:own_models:build"
    for forms, up_to_date in (((), False), (("fp32-opset17",), False), ((), True)):
        write_plan(tmp_path / "results", [with_forms(*forms, model=name, weights="own", lengths=())])
        done = run_export(tmp_path)
        assert done.returncode == 0, done.stderr
        assert ("up to date" in done.stdout) == up_to_date
    assert set(record_of(tmp_path, name).onnx_variants) == {"fp32-opset17"}


@pytest.mark.slow
def test_a_model_without_attention_is_refused_with_the_setting_to_leave_out(tmp_path: Path) -> None:
    write_plan(tmp_path / "results", [with_forms("fp16-fused", model="efficientnet-lite0", lengths=())])
    done = run_export(tmp_path)
    assert done.returncode == 0, done.stderr  # no case of this plan needs the file
    (warning,) = done.stderr.splitlines()
    assert "no fp32-fused, fp16-fused ONNX file" in warning
    assert "attention" in warning
    assert "fused+graph" in warning


def test_the_older_form_of_a_vision_transformer_has_its_attention_in_separate_operators(tmp_path: Path) -> None:
    name = "module:tests.fixtures.models:vision_transformer"
    write_plan(tmp_path / "results", [with_forms("fp32-opset17", model=name, weights="own", lengths=())])
    done = run_export(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    file = record_of(tmp_path, name).onnx_variants["fp32-opset17"].path
    model = onnx.load(latest_export(Models(tmp_path / "models"), record_of(tmp_path, name).slug)[0].root / file)
    operators = [node.op_type for node in model.graph.node]
    assert operators.count("Softmax") == 2
    assert set(operators) - KNOWN_TO_TENSORRT_8_6 == set()
