"""Models of other people's zoos, with random weights: timm, transformers of pictures and sounds, saved programs."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from torch import nn

from harness.core import store
from harness.core.errors import ConfigError
from harness.core.schemas import ExportRecord, ProcessorPreparation
from harness.zoo import model_info
from harness.zoo.families import exported_program
from harness.zoo.inputs import sounds
from harness.zoo.loaded import Request
from tests.fixtures.odd_models import Batched, Nested, Tempered, numbers
from tests.fixtures.stages import Folder

pytestmark = pytest.mark.stages


def bench(folder: Folder, name: str, *boundaries: str) -> ExportRecord:
    """Export and measure a model by PyTorch and ONNX Runtime; every row must be sound."""
    block = {"backends": ["torch-eager", "onnxruntime"], "boundaries": list(boundaries)}
    plan = folder.plan(block, models=(name,), parity_samples=8)
    for stage in ("export", "run"):
        done = folder(stage)
        assert done.returncode == 0, done.stderr
    rows = folder.summary().rows
    assert len(rows) == 2 * len(boundaries)
    lost = {row.case_id: row.reason or row.flags for row in rows if row.status != "measured" or row.grade == "F"}
    assert lost == {}
    return store.load(folder.models.folder(plan.models[0].slug).record, ExportRecord, "make export")


@pytest.mark.slow
def test_timm(own: Folder) -> None:
    pytest.importorskip("timm", reason="timm is an extra: pip install 'inferometer[timm]'")
    config = own.configure(
        {"backends": ["torch-eager", "onnxruntime"], "boundaries": ["compute", "e2e"]},
        models=("timm:test_resnet",),
        parity_samples=8,
    )
    planned = own("plan", "--config", str(config), "--models", "timm:test_resnet@seeded")
    assert planned.returncode == 0, planned.stderr
    for stage in ("export", "run"):
        done = own(stage)
        assert done.returncode == 0, done.stderr
    rows = own.summary().rows
    assert {(row.boundary, row.status, row.grade != "F") for row in rows} == {
        ("compute", "measured", True),
        ("e2e", "measured", True),
    }
    record = store.load(own.models.folder("timm-test_resnet").record, ExportRecord, "make export")
    assert (record.kind, record.classifier, record.inputs[0].shape) == ("image", True, ("batch", 3, 160, 160))
    assert "batch norms fitted" in record.weight_source


def test_a_timm_model_that_there_is_not_has_near_names(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    from harness.zoo.families import timm

    with pytest.raises(ConfigError) as caught:
        timm.load(Request(model_info("timm:resnet5o"), "seeded", 0, None, tmp_path))
    assert caught.value.hint.startswith("Did you mean `resnet50")


@pytest.mark.slow
def test_pictures_of_transformers_by_the_models_own_processor(own: Folder) -> None:
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, num_labels=5, **sizes)).save_pretrained(
        own.root / "vit"
    )
    ViTImageProcessor(size={"height": 32, "width": 32}, image_mean=[0.4] * 3).save_pretrained(own.root / "vit")
    assert model_info(f"hf:{own.root / 'vit'}").kind == "image"
    record = bench(own, f"hf:{own.root / 'vit'}", "compute", "e2e")
    assert (record.kind, record.classifier, record.inputs[0].shape) == ("image", True, ("batch", 3, 32, 32))
    raw = record.input_sets[0].raw
    assert raw is not None
    assert isinstance(raw.preparation, ProcessorPreparation)
    assert raw.preparation.media == "image"
    stored = np.load(own.models.folder(record.slug, record.folder).inputs(None))["pixel_values"]
    assert np.isclose(stored.max(), (1 - 0.4) / 0.5, atol=0.05), "its own mean, and not ImageNet's"


def test_sounds_of_transformers_by_the_models_own_processor(own: Folder) -> None:
    from transformers import Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2ForSequenceClassification

    config = Wav2Vec2Config(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        conv_dim=(16, 16),
        conv_kernel=(10, 8),
        conv_stride=(80, 8),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=8,
        num_labels=3,
    )
    torch.manual_seed(0)
    Wav2Vec2ForSequenceClassification(config).save_pretrained(own.root / "speech")
    Wav2Vec2FeatureExtractor(sampling_rate=8000).save_pretrained(own.root / "speech")
    record = bench(own, f"hf:{own.root / 'speech'}", "compute", "e2e")
    assert (record.kind, record.classifier) == ("tensor", True)
    assert record.inputs[0].shape == ("batch", sounds.SECONDS * 8000)


def test_sounds_are_different_and_the_same_every_time() -> None:
    first, again = (sounds.wav_files(8, 8000) for _ in range(2))
    assert first == again
    assert len(set(first)) == 8
    decoded = sounds.decode_wav(first[0])
    assert (decoded.shape, decoded.dtype) == ((sounds.SECONDS * 8000,), np.float32)
    assert 0.5 < np.abs(decoded).max() <= 1


def saved(path: Path, module: nn.Module, inputs: tuple[torch.Tensor, ...], batch: bool) -> str:
    shapes = tuple({0: torch.export.Dim("batch")} if entry.ndim and batch else None for entry in inputs)
    torch.export.save(torch.export.export(module, inputs, dynamic_shapes=shapes), path)
    return f"pt2:{path}"


@pytest.mark.slow
def test_a_saved_program(own: Folder) -> None:
    own.root.mkdir(exist_ok=True)
    name = saved(own.root / "nested.pt2", Nested().eval(), (numbers(16, 8),), batch=True)
    record = bench(own, name, "compute")
    assert [spec.name for spec in record.outputs] == ["output_0", "output_1_0", "output_1_1_0"]
    assert record.input_sets[0].source == "8 different samples of the program's example inputs"


@pytest.mark.slow
def test_a_program_of_one_batch_size_and_a_shared_input(own: Folder) -> None:
    own.root.mkdir(exist_ok=True)
    name = saved(own.root / "tempered.pt2", Tempered().eval(), (numbers(4, 8), torch.tensor(0.5)), batch=False)
    own.plan({"backends": ["torch-eager", "onnxruntime"], "batch_sizes": [4]}, models=(name,))
    for stage in ("export", "run"):
        done = own(stage)
        assert done.returncode == 0, done.stderr
    rows = own.summary().rows
    assert [(row.status, row.grade != "F") for row in rows] == [("measured", True)] * 2


def test_a_program_of_a_dictionary_and_a_keyword_takes_tensors_by_name(tmp_path: Path) -> None:
    batch = {"x": numbers(16, 8), "factors": (numbers(16, 1), numbers(16, 1))}
    weight = numbers(16, 1)
    module = Batched().eval()
    torch.export.save(torch.export.export(module, (batch,), {"weight": weight}), tmp_path / "batched.pt2")
    request = Request(model_info(f"pt2:{tmp_path / 'batched.pt2'}"), "own", 0, None, tmp_path / "export")
    loaded = exported_program.load(request)
    assert loaded.input_names == ("batch_x", "batch_factors_0", "batch_factors_1", "weight")
    given = loaded.make_inputs(16, None).arrays
    answer = loaded.require_module()(*(torch.from_numpy(given[name]) for name in loaded.input_names))
    assert torch.equal(answer, module(batch, weight=weight))


def test_a_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(b"no program")
    with pytest.raises(ConfigError, match=r"cannot be read as a torch.export program") as caught:
        exported_program.load(Request(model_info(f"pt2:{tmp_path / 'model.pt2'}"), "own", 0, None, tmp_path))
    assert "torch.export.save" in caught.value.hint


def test_a_file_of_another_kind_of_pytorchs_is_named(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(4, 2).state_dict(), tmp_path / "saved.pt2")
    with ZipFile(tmp_path / "compiled.pt2", "w") as archive:
        archive.writestr("compiled/data/aotinductor/model/code.wrapper.so", b"")
    for name, words in {"saved": "torch.save wrote it", "compiled": "a package of AOTInductor"}.items():
        with pytest.raises(ConfigError, match=words):
            exported_program.load(Request(model_info(f"pt2:{tmp_path / name}.pt2"), "own", 0, None, tmp_path))
