"""A folder of the user's: which part of its model is measured, and the two lines that name a damaged part."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from harness.core.errors import ConfigError, HubError
from harness.zoo import model_info
from harness.zoo.families.transformer import first_token, load
from harness.zoo.loaded import Loaded, Request

CONFIG = '{"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 9}'


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"config.json": CONFIG, "model.safetensors": b"\x10\0\0\0\0\0\0\0{}"}, "weights"),
        ({"config.json": CONFIG, "model.safetensors": b""}, "weights"),
        ({"config.json": CONFIG, "pytorch_model.bin": b"\x80\x02."}, "weights"),
        ({"config.json": CONFIG[:20]}, "configuration"),
    ],
    ids=["torn safetensors", "empty safetensors", "torn pickle", "torn configuration"],
)
def test_a_damaged_file_of_a_folder_is_reported(files: dict[str, str | bytes], what: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(HubError) as raised:
        load(Request(model_info(f"hf:{folder}"), "pretrained", 0, None, tmp_path / "export"))
    assert raised.value.problem.startswith(f"The {what} of hf:{folder} could not be read: ")
    assert "save_pretrained" in raised.value.hint


def test_a_folder_with_a_configuration_alone_can_be_measured_with_random_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(CONFIG)
    with pytest.raises(HubError, match="has a configuration and no weights") as raised:
        load(Request(model_info(f"hf:{tmp_path}"), "pretrained", 0, None, tmp_path / "export"))
    assert f"MODELS=hf:{tmp_path}@seeded" in raised.value.hint


def of_folder(folder: Path, model: Any) -> Loaded:
    """The model as a user's folder, loaded."""
    model.save_pretrained(folder / "mine")
    request = Request(model_info(f"hf:{folder / 'mine'}"), "pretrained", 0, None, folder / "export")
    return load(request)


def tiny_bert() -> Any:
    return transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )


def test_the_head_for_tokens_is_kept(tmp_path: Path) -> None:
    loaded = of_folder(tmp_path, transformers.BertForTokenClassification(tiny_bert()))
    assert loaded.output_names == ("logits",)
    ids = torch.zeros(2, 5, dtype=torch.int64)
    assert loaded.require_module()(ids, torch.ones_like(ids)).shape == (2, 5, 2)


def test_a_head_that_is_left_out_is_said(tmp_path: Path) -> None:
    loaded = of_folder(tmp_path, transformers.BertForMaskedLM(tiny_bert()))
    assert loaded.output_names == ("last_hidden_state",)
    assert loaded.weight_source.endswith("; its encoder, without the head of BertForMaskedLM")


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        (["Transformer"], "mine"),
        (["Transformer", "Pooling", "Normalize"], "; its transformer, without Pooling and Normalize of modules.json"),
    ],
)
def test_the_modules_of_a_folder_of_sentence_transformers_are_said(
    modules: list[str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    entries = [{"idx": place, "type": f"sentence_transformers.models.{name}"} for place, name in enumerate(modules)]
    (tmp_path / "mine/modules.json").write_text(json.dumps(entries))
    loaded = of_folder(tmp_path, transformers.BertModel(tiny_bert()))
    assert loaded.output_names == ("last_hidden_state",)
    assert loaded.weight_source.endswith(said)


@pytest.mark.parametrize(
    ("lost", "problem"),
    [
        ("classifier.weight", "lack the weights `classifier.weight`, which would be random"),
        ("encoder.layer.0", r"lack the weights `bert.encoder.layer.0.\S+` and 15 more, which would be random"),
    ],
)
def test_weights_that_the_files_lack_are_no_pretrained_weights(lost: str, problem: str, tmp_path: Path) -> None:
    transformers.BertForSequenceClassification(tiny_bert()).save_pretrained(tmp_path / "mine")
    file = tmp_path / "mine/model.safetensors"
    save_file({name: values for name, values in load_file(file).items() if lost not in name}, file, {"format": "pt"})
    with pytest.raises(HubError, match=problem) as raised:
        load(Request(model_info(f"hf:{tmp_path / 'mine'}"), "pretrained", 0, None, tmp_path / "export"))
    assert "@seeded" in raised.value.hint


@pytest.mark.parametrize(
    "model",
    [
        lambda: transformers.BertModel(tiny_bert(), add_pooling_layer=False),
        lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=1, n_head=2)
        ),
    ],
    ids=["no pooler", "one tensor for both embeddings"],
)
def test_weights_that_are_tied_or_not_read_are_not_missed(model: Callable[[], Any], tmp_path: Path) -> None:
    assert of_folder(tmp_path, model()).weight_source


def small_bart() -> Any:
    halves = {"encoder": 1, "decoder": 1}
    return transformers.BartConfig(
        vocab_size=40,
        d_model=16,
        decoder_start_token_id=2,
        **{f"{half}_layers": layers for half, layers in halves.items()},
        **{f"{half}_attention_heads": 2 for half in halves},
        **{f"{half}_ffn_dim": 32 for half in halves},
    )


def test_a_translator_answers_with_the_next_token_after_its_own_first(tmp_path: Path) -> None:
    loaded = of_folder(tmp_path, transformers.BartForConditionalGeneration(small_bart()))
    assert loaded.input_names == ("input_ids", "attention_mask", "decoder_input_ids")
    ids = torch.arange(10).reshape(2, 5)
    module = loaded.require_module()
    whole = transformers.BartForConditionalGeneration.from_pretrained(tmp_path / "mine").eval()
    with torch.inference_mode():
        ours = module(ids, torch.ones_like(ids), ids)
        theirs = whole(input_ids=ids, decoder_input_ids=ids).logits[:, -1]
    torch.testing.assert_close(ours, theirs)
    assert first_token(small_bart()) == 2
    assert first_token(transformers.T5Config(decoder_start_token_id=None)) == 0


def test_the_encoder_of_a_translator_needs_no_decoder(tmp_path: Path) -> None:
    config = transformers.T5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    loaded = of_folder(tmp_path, transformers.T5EncoderModel(config))
    assert loaded.input_names == ("input_ids", "attention_mask")
    ids = torch.zeros(2, 5, dtype=torch.int64)
    assert loaded.require_module()(ids, torch.ones_like(ids)).shape == (2, 5, 16)


def test_a_model_without_a_limit_of_positions_has_none(tmp_path: Path) -> None:
    config = transformers.XLNetConfig(vocab_size=40, d_model=16, n_layer=1, n_head=2, d_inner=32)
    assert of_folder(tmp_path, transformers.XLNetModel(config)).max_sequence is None


def test_a_model_of_pictures_and_texts_is_refused(tmp_path: Path) -> None:
    text = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32, "patch_size": 16}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    processor.save_pretrained(tmp_path / "mine")
    with pytest.raises(ConfigError, match="A CLIPModel takes more than one tensor"):
        of_folder(tmp_path, transformers.CLIPModel(config))
