"""The export stage as a user runs it, on real libraries: files, checks, second run, damage, and what goes wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from harness.core import store
from harness.core.layout import Models
from harness.core.schemas import Case, PlannedModel
from tests.fixtures.exporting import OWN_MODULE, SAMPLES, TRAINED, planned, record_of, run_export, write_plan

pytestmark = pytest.mark.stages


def case(model: PlannedModel, batch_size: int) -> Case:
    return Case(
        case_id=f"{model.slug}-b{batch_size}",
        model=model.name,
        slug=model.slug,
        backend="onnxruntime",
        device="cpu",
        precision="fp32",
        batch_size=batch_size,
        sequence_length=None,
        boundary="compute",
        mode="sync",
        weights=model.weights,
    )


def write_own_onnx(path: Path, batch: int | str) -> None:
    """A convolution, ReLU and mean over photographs of 32 x 32."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["pixels", "w"], ["c"]),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("GlobalAveragePool", ["r"], ["scores"]),
        ],
        "own",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [batch, 3, 32, 32])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, 4, 1, 1])],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def root_of(folder: Path, model: str) -> Path:
    record = record_of(folder, model)
    return Models(folder / "models").folder(record.slug, record.folder).root


def arrays_of(folder: Path, model: str, file: str) -> dict[str, np.ndarray]:
    with np.load(root_of(folder, model) / file) as stored:
        return dict(stored)


MODELS = (
    *TRAINED,
    planned("module:own_models:build", "own", (), ("fp32",)),
    planned("onnx:own.onnx", "own", (), ("fp32",)),
)
NAMES = [model.name for model in MODELS]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Path:
    """A folder in which all of MODELS were exported."""
    folder = tmp_path_factory.mktemp("exported")
    shutil.copytree(trained, folder / "models")
    (folder / "own_models.py").write_text(OWN_MODULE)
    write_own_onnx(folder / "own.onnx", "n")
    write_plan(folder / "results", MODELS)
    done = run_export(folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_record_matches_the_files(exported: Path, name: str) -> None:
    record = record_of(exported, name)
    root = root_of(exported, name)
    artifacts = [*record.onnx.values(), *(entry.inputs for entry in record.input_sets)]
    for artifact in [*artifacts, *([record.module] if record.module else [])]:
        assert store.sha256_file(root / artifact.path) == artifact.sha256
        assert (root / artifact.path).stat().st_mode & 0o044, "others must be able to read it"
    assert {"load", "inputs", "reference", "onnx", "check"} <= set(record.seconds)
    assert all(check.relative_l2 <= (0.3 if check.precision == "int8" else 2e-2) for check in record.checks)
    assert {check.batch_size for check in record.checks} == {1, 3}


def test_text_has_dynamic_axes_and_real_inputs(exported: Path) -> None:
    record = record_of(exported, "minilm-l6")
    assert [(spec.name, spec.shape) for spec in record.inputs] == [
        ("input_ids", ("batch", "sequence")),
        ("attention_mask", ("batch", "sequence")),
    ]
    assert [(spec.name, spec.shape) for spec in record.outputs] == [("last_hidden_state", ("batch", "sequence", 384))]
    assert {(check.precision, check.sequence_length) for check in record.checks} == {
        (precision, length) for precision in ("fp32", "fp16", "int8") for length in (16, 32)
    }
    ids = arrays_of(exported, "minilm-l6", "inputs-s32.npz")["input_ids"]
    assert ids.shape == (SAMPLES, 32)
    assert len(np.unique(ids, axis=0)) == SAMPLES
    assert set(ids[:, 0]) == {101}, "[CLS] opens every row"
    assert set(ids[:, -1]) == {102}, "[SEP] closes every row"


def test_onnx_file_names_its_axes_and_holds_its_precision(exported: Path) -> None:
    import onnx

    root = root_of(exported, "minilm-l6")
    assert "attention eager" in record_of(exported, "minilm-l6").onnx["fp32"].exporter
    inputs = onnx.load(root / "model.onnx").graph.input
    assert [[dim.dim_param for dim in entry.type.tensor_type.shape.dim] for entry in inputs] == [
        ["batch", "sequence"]
    ] * 2
    for name in ("minilm-l6", "efficientnet-lite0"):
        census = {precision: file.dtype_census for precision, file in record_of(exported, name).onnx.items()}
        assert "float16" not in census["fp32"]
        assert census["fp16"]["float16"] > 100 * census["fp16"].get("float", 0)


def test_photographs_are_recognised(exported: Path) -> None:
    # The first two inputs are scikit-learn's photographs as they are: a Chinese palace and a daisy. ImageNet's classes
    # 698 (palace) and 985 (daisy) prove weights and preprocessing together.
    logits = arrays_of(exported, "efficientnet-lite0", "reference.npz")["logits"]
    assert logits[:2].argmax(axis=1).tolist() == [698, 985]


@pytest.mark.parametrize("name", NAMES[:3])
def test_module_is_rebuilt_to_the_same_outputs(exported: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from harness.zoo.construct import build_module

    monkeypatch.syspath_prepend(str(exported))
    record = record_of(exported, name)
    root = root_of(exported, name)
    module = build_module(record, root)
    assert not module.training
    assert not any(parameter.requires_grad for parameter in module.parameters())
    stored = record.input_sets[0]
    inputs, reference = arrays_of(exported, name, stored.inputs.path), arrays_of(exported, name, stored.reference.path)
    with torch.inference_mode():
        answer = module(*(torch.from_numpy(inputs[spec.name]) for spec in record.inputs))
    outputs = answer if isinstance(answer, tuple) else (answer,)
    assert len(outputs) == len(record.outputs)
    for spec, output in zip(record.outputs, outputs, strict=True):
        assert np.allclose(output.numpy(), reference[spec.name], atol=1e-4)


def test_own_module_is_described_and_its_ids_stay_in_range(exported: Path) -> None:
    record = record_of(exported, "module:own_models:build")
    assert [(spec.name, spec.dtype) for spec in record.inputs] == [("features", "float32"), ("ids", "int64")]
    assert len(record.outputs) == 2
    ids = arrays_of(exported, record.model, "inputs.npz")["ids"]
    assert ids.min() >= 0
    assert ids.max() < 50


def test_own_onnx_keeps_its_bytes_and_names_its_reference(exported: Path) -> None:
    record = record_of(exported, "onnx:own.onnx")
    assert record.module is None
    assert record.onnx["fp32"].sha256 == store.sha256_file(exported / "own.onnx")
    assert "ONNX Runtime" in record.weight_source
    assert "photographs" in record.input_sets[0].source


def test_second_run_exports_nothing_and_damage_is_repaired(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(exported, folder)
    again = run_export(folder)
    assert again.returncode == 0
    assert again.stdout.count("up to date") == len(MODELS)
    damaged = next(folder.glob("models/onnx-own-*/*/reference.npz"))
    damaged.write_bytes(damaged.read_bytes()[:-8])
    repaired = run_export(folder)
    assert repaired.returncode == 0, repaired.stderr
    assert repaired.stdout.count("up to date") == len(MODELS) - 1
    arrays_of(folder, "onnx:own.onnx", "reference.npz")


@pytest.mark.slow
def test_failures_name_model_and_way_out_and_lose_nothing(tmp_path: Path) -> None:
    write_own_onnx(tmp_path / "own.onnx", "n")
    write_plan(tmp_path / "results", [planned("bert-base", "pretrained", (16,)), planned("onnx:own.onnx", "own")])
    done = run_export(tmp_path)
    assert done.returncode == 10
    assert record_of(tmp_path, "onnx:own.onnx")
    error, hint, *_ = done.stderr.splitlines()
    assert error.startswith("Error: ")
    assert "bert-base" in error
    assert hint.startswith("Hint:  ")
    assert "weights: seeded" in hint
    assert not (tmp_path / "models" / "bert-base" / "export.json").exists()


def test_several_failures_have_two_lines_each_and_a_summary(tmp_path: Path) -> None:
    (tmp_path / "own_models.py").write_text(OWN_MODULE)
    write_own_onnx(tmp_path / "fixed.onnx", 2)
    write_own_onnx(tmp_path / "empty.onnx", 0)
    fixed = planned("onnx:fixed.onnx", "own")
    models = [
        fixed,
        planned("onnx:empty.onnx", "own"),
        planned("onnx:absent.onnx", "own"),
        planned("module:own_models:nothing", "own"),
        planned("module:own_models:raising", "own"),
        planned("module:own_models:refusing", "own"),
        planned("hf:./absent", "pretrained", (16,)),
        planned("minilm-l6", "pretrained", (16, 600)),
        planned("torchvision:resnet5", "seeded"),
    ]
    write_plan(tmp_path / "results", models, [case(fixed, 1), case(fixed, 4)])
    done = run_export(tmp_path)
    assert done.returncode == 8
    assert [line[:7] for line in done.stderr.splitlines()] == ["Error: ", "Hint:  "] * 10
    for shown in (
        "9 of 9 models were not exported",
        "onnx:empty.onnx is fixed to batch size 0, which has no samples to measure.",
        "Export it again with a dynamic batch axis, or with the batch size to measure.",
        "fixed to batch size 2; the plan asks for [1, 4]",
        "no file absent.onnx",
        "returned str",
        "module:own_models:raising raised KeyError: 'no such file'.",
        "The forward of Refusing raised RuntimeError: this forward fails (its inputs: float32[4, 3]).",
        "no folder ./absent",
        "length 600 of minilm-l6; it has positions for 512",
        "Did you mean `resnet50`?",
    ):
        assert shown in done.stderr


@pytest.mark.parametrize(("opset", "written"), [("3", None), ("18", 18)])
def test_an_operator_set_is_written_as_asked_or_refused(opset: str, written: int | None, tmp_path: Path) -> None:
    (tmp_path / "own_models.py").write_text(OWN_MODULE)
    name = "module:own_models:build"
    write_plan(tmp_path / "results", [planned(name, "own")])
    done = run_export(tmp_path, "--opset", opset)
    if written:
        assert record_of(tmp_path, name).onnx["fp32"].opset == written
        assert f"fp32 ONNX (opset {written}, dynamo)" in done.stdout
    else:
        refused = record_of(tmp_path, name).refused["fp32"]
        assert refused.error == "The dynamo exporter cannot write this model in opset 3: it wrote 18."
        assert "The torchscript exporter was tried, too" in refused.hint
        assert refused.error in done.stderr


def test_max_length_is_a_limit(tmp_path: Path) -> None:
    write_plan(tmp_path / "results", [planned("minilm-l6", "pretrained", (16, 64))])
    done = run_export(tmp_path, "--max-length", "32")
    assert done.returncode == 2
    assert "sequence length 64 of minilm-l6; --max-length limits it to 32" in done.stderr
    done = run_export(tmp_path, "--max-length", "0")
    assert done.returncode == 2
    assert "--max-length 0 leaves no token" in done.stderr


def test_mistakes_on_the_command_line(tmp_path: Path) -> None:
    assert run_export(tmp_path).returncode == 3
    write_plan(tmp_path / "results", [planned("minilm-l6", "pretrained", (16,))])
    done = run_export(tmp_path, "--models", "minilm")
    assert done.returncode == 2
    assert "Did you mean `minilm-l6`?" in done.stderr
