"""INPUTS=<file>.npz through the stages: files, modules and transformers are measured with what the user gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.api import ModelProfiler
from harness.core import store
from harness.core.layout import ModelFolder
from harness.core.padding import mask_of
from harness.core.schemas import ExportRecord, Plan, Summary
from harness.core.units import percent
from harness.statistics.parity import compare
from harness.zoo.reference import open_session, run_session
from tests.fixtures import odd_onnx as files
from tests.fixtures.stages import QUICK, Folder, two_lines

pytestmark = pytest.mark.stages

NUMBERS = np.random.default_rng(3)


def written(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


def planned(folder: Folder, name: str, backends: list[str], *inputs: str) -> Plan:
    config = folder.configure({"backends": backends}, models=(name,))
    done = folder("plan", "--config", str(config), "--inputs", ",".join(inputs))
    assert done.returncode == 0, done.stderr
    return store.load(folder.results.plan, Plan, "make plan")


def measured(folder: Folder) -> Summary:
    for stage in ("export", "run"):
        done = folder(stage)
        assert done.returncode == 0, done.stderr
    summary = folder.summary()
    sound = [row.status == "measured" and row.grade != "F" for row in summary.rows]
    assert all(sound), [(row.case_id, row.reason, row.flags) for row in summary.rows]
    return summary


def record_of(folder: Folder, plan: Plan) -> ExportRecord:
    return store.load(folder.models.folder(plan.models[0].slug).record, ExportRecord, "make export")


@pytest.mark.slow
def test_a_module_in_two_shapes_of_bytes(own: Folder) -> None:
    pictures = [NUMBERS.integers(0, 256, (9, 3, size, size), dtype=np.uint8) for size in (8, 12)]
    paths = [written(own.root / f"{len(picture[0, 0])}.npz", image=picture) for picture in pictures]
    plan = planned(own, "module:tests.fixtures.odd_models:pixels", ["torch-eager", "onnxruntime", "openvino"], *paths)
    summary = measured(own)
    assert sorted({row.sequence_length for row in summary.rows if row.sequence_length}) == [8, 12]
    record = record_of(own, plan)
    assert [(input_set.samples, input_set.complete, input_set.source) for input_set in record.input_sets] == [
        (9, True, f"9 different samples of {size}.npz") for size in (8, 12)
    ]
    assert record.inputs[0].shape == ("batch", 3, "sequence", "sequence")
    stored = np.load(own.models.folder(record.slug, record.folder).inputs(12))
    assert np.array_equal(stored["image"], pictures[1])


def test_a_file_is_exported_again_when_its_inputs_change(own: Folder) -> None:
    name = f"onnx:{files.stepping(own.root / 'stepping.onnx')}"
    items = {"x": NUMBERS.standard_normal((8, 8)), "state": NUMBERS.standard_normal((8, 2, 4))}
    items = {key: values.astype(np.float32) for key, values in items.items()}
    path = own.root / "own.npz"
    camera = np.eye(8, 4, dtype=np.float32)
    first = planned(own, name, ["onnxruntime", "openvino"], written(path, camera=camera, **items))
    measured(own)
    before = record_of(own, first)
    assert {spec.name: spec.batch_axis for spec in before.inputs} == {"x": 0, "state": 1, "camera": None}
    assert "up to date" in own("export").stdout
    written(path, camera=2 * camera, **items)
    assert "has changed since it was planned" in own("export", "--force").stderr
    second = planned(own, name, ["onnxruntime", "openvino"], str(path))
    assert first.plan_id != second.plan_id
    assert own("export").returncode == 0
    after = record_of(own, second)
    assert after.input_sets[0].inputs.sha256 != before.input_sets[0].inputs.sha256
    refused = own("aggregate")
    assert refused.returncode == 3, "what the earlier inputs gave is not replaced unasked"
    assert "inputs.npz has changed since" in refused.stderr
    assert own("aggregate", "--force").returncode == 10
    summary = store.load(own.results.summary, Summary, "make aggregate")
    assert {row.status for row in summary.rows} == {"missing"}, "nor shown as of the new ones"


@pytest.mark.slow
def test_a_transformer_needs_no_tokenizer_then(own: Folder) -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    BertModel(config).save_pretrained(own.root / "mine")
    ids = NUMBERS.integers(0, 50, (8, 12))
    path = written(own.root / "own.npz", input_ids=ids, attention_mask=np.ones_like(ids))
    planned(own, f"hf:{own.root / 'mine'}", ["torch-eager", "onnxruntime"], path)
    assert {row.sequence_length for row in measured(own).rows} == {12}


WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "bread", "water", "ferry", "dawn", "snow", "slope", "winter", "repair")


def encoder(folder: Path) -> str:
    """A small BERT whose answers depend on what it attends to, with a tokenizer of one token a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

    set_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(WORDS), initializer_range=0.5, **sizes)).save_pretrained(folder)
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    ids = {word: place for place, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=special["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    return f"hf:{folder}"


@pytest.mark.slow
def test_texts_are_padded_and_a_backend_that_ignores_their_mask_is_wrong(own: Folder) -> None:
    name = encoder(own.root / "mine")
    lines = [" ".join((WORDS[4:] * 2)[place : place + 1 + 2 * (place % 4)]) for place in range(8)]
    lines += [f"{line} snow" for line in lines]
    texts = own.root / "texts.txt"
    texts.write_text("\n\n".join(lines) + "\n")
    config = own.configure({"backends": ["torch-eager", "onnxruntime"], "sequence_lengths": [6, 12]}, models=(name,))
    done = own("plan", "--config", str(config), "--inputs", str(texts))
    assert done.returncode == 0, done.stderr
    plan = store.load(own.results.plan, Plan, "make plan")
    summary = measured(own)
    assert {row.sequence_length for row in summary.rows} == {6, 12}
    distances = [row.parity.relative_l2 for row in summary.rows if row.parity]
    assert len(distances) == len(summary.rows) == 4
    assert all(distance is not None and distance < 1e-4 for distance in distances)
    record = record_of(own, plan)
    assert [spec.shape for spec in record.inputs] == [("batch", "sequence")] * 2
    long = next(made for made in record.input_sets if made.sequence_length == 12)
    assert long.source.startswith("16 texts of texts.txt, cut or padded to 12 tokens; the model's own tokenizer; ")
    folder = own.models.folder(record.slug, record.folder)
    inputs, reference = (dict(np.load(path(12))) for path in (folder.inputs, folder.reference))
    mask = mask_of(inputs)
    assert mask is not None
    assert long.text_share == pytest.approx(mask.mean())
    assert long.source.endswith(f"; {percent(float(mask.mean()))} of the tokens are text")

    tolerance = plan.tolerance(name, "fp32")
    assert tolerance is not None
    shown = mask[:, :, None]
    removed = {key: np.where(shown, values, 0) for key, values in reference.items()}
    unmasked = answers(folder, inputs["input_ids"])
    for outputs, is_right in ((removed, True), (unmasked, False)):
        distance = compare(outputs, reference, False, mask).item_relative_l2
        assert distance is not None
        assert (distance <= tolerance.relative_l2) == is_right
    assert long.exchanged is not None
    assert (long.exchanged.item_relative_l2 or 0) > tolerance.relative_l2, "the answer to another text is wrong"

    own("report")
    assert f"12 tokens ({percent(long.text_share)} text)" in own.results.report.read_text()


def answers(folder: ModelFolder, ids: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Those of the exported file to texts whose padding is taken for tokens."""
    session = open_session(folder.onnx("fp32"), 1)
    return dict(run_session(session, {"input_ids": ids, "attention_mask": np.ones_like(ids)}))


def test_a_decoder_refuses_texts_that_are_padded(own: Folder) -> None:
    texts = own.root / "texts.txt"
    texts.write_text("".join(f"{word} and water\n" for word in WORDS))
    for name, problem in (("gpt2@seeded", "answers with the next token"), ("resnet18@seeded", "has no tokenizer here")):
        done = own("plan", "--models", name, "--inputs", str(texts))
        error = two_lines(done)
        assert problem in error[0]


@pytest.mark.slow
def test_the_api_takes_input_data_for_a_file(tmp_path: Path) -> None:
    path = files.linear(tmp_path / "linear.onnx")
    quick = {key: value for key, value in QUICK.items() if key != "parity_samples"}
    profiler = ModelProfiler(path, backend="onnxruntime", folder=tmp_path / "out", measurement=quick)
    result = profiler.benchmark({"backend": "onnxruntime"}, {"x": np.ones((9, 8)) * np.arange(9)[:, None]})
    assert [(row.status, row.batch_size) for row in result.rows] == [("measured", 9)]
    (record,) = (tmp_path / "out" / "models").glob("*/export.json")
    (inputs,) = store.load(record, ExportRecord, "make export").input_sets
    assert inputs.source.startswith("9 different samples of inputs-")
