"""When an earlier export still answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core import store
from harness.core.layout import Models
from harness.core.schemas import ExportRecord, InputSet, OnnxArtifact, PlannedModel
from harness.zoo import identity, model_info
from harness.zoo.identity import (
    ExportChoices,
    artifact,
    covers,
    intact_record,
    request_digest,
)

OPTIONS = ExportChoices(exporter="dynamo", opset=20, output_name=None, max_length=None, cache=None)


def planned(name: str = "minilm-l6", lengths: tuple[int, ...] = (16,)) -> PlannedModel:
    return PlannedModel(
        name=name,
        slug=model_info(name).slug,
        weights="pretrained",
        kind="text",
        sequence_lengths=lengths,
        onnx_precisions=("fp32",),
    )


def digest(wanted: PlannedModel, seed: int = 1, samples: int = 8, options: ExportChoices = OPTIONS) -> str:
    return request_digest(model_info(wanted.name), wanted, seed, samples, options)


def saved_record(root: Path, request: str) -> ExportRecord:
    root.mkdir(parents=True)
    for name in ("model.onnx", "inputs-s16.npz", "reference-s16.npz"):
        (root / name).write_bytes(name.encode())
    onnx = OnnxArtifact(
        **artifact(root / "model.onnx").model_dump(), exporter="dynamo", opset=20, dtype_census={"float": 3}
    )
    inputs = InputSet(
        sequence_length=16,
        samples=8,
        inputs=artifact(root / "inputs-s16.npz"),
        reference=artifact(root / "reference-s16.npz"),
        source="test",
    )
    record = ExportRecord(
        request_sha256=request,
        model="minilm-l6",
        slug="minilm-l6",
        weights="pretrained",
        weight_source="test",
        kind="text",
        classifier=False,
        parameters=3,
        inputs=(),
        outputs=(),
        module=None,
        onnx={"fp32": onnx},
        input_sets=(inputs,),
        checks=(),
        versions={},
        seconds={},
    )
    store.save(root / "export.json", record)
    return record


def test_the_digest_follows_the_choices_that_decide_the_files() -> None:
    base = digest(planned())
    assert digest(planned()) == base
    assert digest(planned(lengths=(16, 64))) == base
    seeded = planned().model_copy(update={"weights": "seeded"})
    others = [
        digest(seeded),
        digest(planned(), seed=2),
        digest(planned(), samples=9),
        *(digest(planned(), options=option) for option in changed_options()),
    ]
    assert len({base, *others}) == 1 + len(others)


def test_an_export_of_before_the_heads_of_token_classifiers_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = digest(planned("hf:dslim/bert-base-NER"))
    monkeypatch.setattr(identity, "_FORMAT", 7)
    assert digest(planned("hf:dslim/bert-base-NER")) != now


def changed_options() -> list[ExportChoices]:
    return [
        ExportChoices("torchscript", 20, None, None, None),
        ExportChoices("dynamo", 18, None, None, None),
        ExportChoices("dynamo", 20, "answer", None, None),
        ExportChoices("dynamo", 20, None, 64, None),
    ]


def test_a_changed_file_of_the_user_changes_the_digest(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    file.write_bytes(b"one")
    before = digest(planned(f"onnx:{file}"))
    file.write_bytes(b"two")
    assert digest(planned(f"onnx:{file}")) != before


def test_an_intact_record_is_accepted_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    folder = Models(tmp_path).folder("minilm-l6")
    record = saved_record(folder.root, "abc")
    assert intact_record(folder, "abc") == record
    assert intact_record(folder, "other") is None
    (folder.root / "reference-s16.npz").write_bytes(b"reference-s16.npZ")
    assert intact_record(folder, "abc") is None


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schema_version":99}'])
def test_unreadable_record_counts_as_not_exported(tmp_path: Path, content: bytes) -> None:
    folder = Models(tmp_path).folder("minilm-l6")
    saved_record(folder.root, "abc")
    folder.record.write_bytes(content)
    assert intact_record(folder, "abc") is None


def test_an_export_serves_a_plan_that_asks_for_no_more(tmp_path: Path) -> None:
    record = saved_record(tmp_path / "minilm-l6", "abc")
    assert covers(record, planned())
    wider = planned(lengths=(64,)).model_copy(update={"onnx_precisions": ("fp16",)})
    assert not covers(record, wider)


def test_a_form_that_was_not_written_is_pending(tmp_path: Path) -> None:
    record = saved_record(tmp_path / "minilm-l6", "abc")
    wanted = planned().model_copy(update={"onnx_variants": ("fp16-fused",)})
    assert not covers(record, wanted)
    fused = record.onnx["fp32"].model_copy(update={"path": "model-fp16-fused.onnx"})
    with_form = record.model_copy(update={"onnx_variants": {"fp16-fused": fused}})
    assert covers(with_form, wanted)
    assert fused in with_form.files()
