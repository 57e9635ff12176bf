"""`make models`: every model with parameters, inputs and weight source, without an inference library."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.models import availability, models
from harness.zoo import MODELS, PREFIXES


def test_lists_every_model_and_every_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    models([])
    shown = capsys.readouterr().out
    for info in MODELS.values():
        line = next(line for line in shown.splitlines() if line.startswith(f"{info.name} "))
        assert f"{info.parameters:,}" in line
        assert info.weight_source in line
        assert info.input_spec in line
    for form in PREFIXES:
        assert form in shown
    assert max(len(line) for line in shown.splitlines()) <= 140


def test_downloaded_weights_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    assert availability(MODELS["resnet50"]) == "download"
    assert availability(MODELS["gpt2"]) == "download"
    checkpoint = tmp_path / "torch/hub/checkpoints/resnet50-11ad3fa6.pth"
    weights = tmp_path / "hf/hub/models--openai-community--gpt2/snapshots/1/model.safetensors"
    for file in (checkpoint, weights):
        file.parent.mkdir(parents=True)
        file.touch()
    assert availability(MODELS["resnet50"]) == "here (cache)"
    assert availability(MODELS["gpt2"]) == "here (cache)"
    assert availability(MODELS["resnet18"]) == "download"


def test_a_model_without_pretrained_weights_has_nothing_to_download() -> None:
    assert availability(MODELS["llama-1b"]) == "none"
