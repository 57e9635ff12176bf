"""t5-small: an encoder and a decoder in one pass, with the arithmetic that its sizes give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.zoo import MODELS
from harness.zoo.loaded import Inputs, Loaded, Request

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.stages

LAYERS, HIDDEN, FEED_FORWARD, VOCABULARY = 6, 512, 2048, 32128


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    from harness.zoo.families import transformer

    request = Request(MODELS["t5-small"], "seeded", seed=0, cache=None, folder=tmp_path_factory.mktemp("t5"))
    return transformer.load(request)


def macs(length: int) -> int:
    """By hand: attention is four projections and two products of length x length x hidden; the decoder has two of
    them, because it also looks at the encoder; the vocabulary meets the last position alone."""
    attention = 4 * length * HIDDEN**2 + 2 * length**2 * HIDDEN
    mlp = 2 * length * HIDDEN * FEED_FORWARD
    return LAYERS * (attention + mlp) + LAYERS * (2 * attention + mlp) + HIDDEN * VOCABULARY


def test_multiply_adds_are_those_of_its_sizes(t5: Loaded) -> None:
    from harness.zoo.cost.torch_counts import work_of

    assert t5.make_inputs is not None
    inputs = {length: t5.make_inputs(2, length) for length in (32, 128)}
    for work, length in zip(work_of(t5, inputs), (32, 128), strict=True):
        assert work.flops_per_item == 2 * macs(length)
        assert work.uncounted == ()
        assert work.input_bytes_per_item == 3 * 8 * length
    assert MODELS["t5-small"].flops == pytest.approx(2 * macs(128), rel=0.001)


def test_parameters_are_counted_once(t5: Loaded) -> None:
    # One table of 32,128 x 512 serves both embeddings and the output layer.
    total = sum(parameter.numel() for parameter in t5.require_module().parameters())
    assert total == MODELS["t5-small"].parameters == 60_506_624


def test_the_decoder_gets_the_text_one_place_later(t5: Loaded) -> None:
    made = t5.make_inputs(4, 16)
    ids, shifted = made.arrays["input_ids"], made.arrays["decoder_input_ids"]
    assert (shifted[:, 1:] == ids[:, :-1]).all()
    assert (shifted[:, 0] == 0).all()
    assert not np.shares_memory(ids, shifted)
    assert "shifted by one" in made.source
    assert t5.make_raw is None
    assert not MODELS["t5-small"].preprocessing


def test_the_last_position_is_answered_as_the_library_answers_it(t5: Loaded) -> None:
    made = t5.make_inputs(2, 16)
    tensors = {name: torch.from_numpy(values) for name, values in made.arrays.items()}
    module: Any = t5.require_module()
    with torch.inference_mode():
        ours = module(*(tensors[name] for name in t5.input_names))
        own = module.model
        whole, own.lm_head = own.lm_head, own.lm_head.head
        theirs = own(**tensors, use_cache=False).logits[:, -1]
        own.lm_head = whole
    assert ours.shape == (2, VOCABULARY)
    torch.testing.assert_close(ours, theirs)
    assert not torch.equal(ours[0], ours[1])
    assert 1e-2 < float(ours.std()) < 1e2


def test_both_halves_matter(t5: Loaded) -> None:
    module = t5.require_module()
    ids, mask, decoder = (torch.from_numpy(t5.make_inputs(2, 16).arrays[name]) for name in t5.input_names)
    with torch.inference_mode():
        answer = module(ids, mask, decoder)
        for changed in ((ids.flip(0), mask, decoder), (ids, mask, decoder.flip(0))):
            assert not torch.allclose(module(*changed), answer, rtol=1e-3)


def test_the_saved_folder_rebuilds_it(t5: Loaded, tmp_path: Path) -> None:
    from safetensors.torch import load_model

    from harness.zoo.construct import frozen_module, save_weights
    from harness.zoo.families import transformer

    assert t5.module is not None
    t5.module.model.config.save_pretrained(tmp_path)  # type: ignore[operator,union-attr]
    save_weights(t5.module, tmp_path / "weights.safetensors")
    rebuilt = transformer.architecture(MODELS["t5-small"], tmp_path)
    load_model(rebuilt, tmp_path / "weights.safetensors", strict=True)
    inputs = [torch.from_numpy(t5.make_inputs(1, 16).arrays[name]) for name in t5.input_names]
    with torch.inference_mode():
        assert torch.equal(frozen_module(rebuilt)(*inputs), t5.module(*inputs))


def test_an_encoder_decoder_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    from transformers import BartConfig

    from harness.core.errors import ConfigError
    from harness.zoo.families import transformer

    BartConfig(architectures=["BartModel"]).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="bart") as caught:
        transformer.architecture(MODELS["t5-small"], tmp_path)
    assert "a translator" in caught.value.hint


def test_inputs_of_an_encoder_are_not_touched() -> None:
    from harness.zoo.families.transformer import with_decoder_ids

    ids = np.array([[5, 6, 7]])
    made = with_decoder_ids(Inputs({"input_ids": ids}, "three ids"), start=9)
    assert made.arrays["decoder_input_ids"].tolist() == [[9, 5, 6]]
    assert ids.tolist() == [[5, 6, 7]]


def test_its_onnx_file_answers_alike_in_every_library(tmp_path: Path) -> None:
    """A T5 of two layers from a local folder: the same way as t5-small's, in less time."""
    import onnxruntime
    import openvino
    from transformers import T5Config

    from harness.zoo import model_info
    from harness.zoo.cost.onnx_counts import open_graph, products_of
    from harness.zoo.cost.torch_counts import work_of
    from harness.zoo.families import transformer
    from harness.zoo.identity import ExportChoices
    from harness.zoo.onnx.torch_to_onnx import write_fp32

    source = tmp_path / "source"
    small = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
    T5Config(architectures=["T5ForConditionalGeneration"], **small).save_pretrained(source)
    loaded = transformer.load(Request(model_info(f"hf:{source}"), "seeded", seed=0, cache=None, folder=tmp_path))
    file = tmp_path / "model.onnx"
    options = ExportChoices(exporter="dynamo", opset=20, output_name=None, max_length=None, cache=None)
    write_fp32(loaded, loaded.make_inputs(2, 16).arrays, file, options)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    compiled = openvino.compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for samples, length in ((1, 24), (3, 16)):
        arrays = loaded.make_inputs(samples, length).arrays
        with torch.inference_mode():
            wanted = loaded.require_module()(*(torch.from_numpy(arrays[name]) for name in loaded.input_names)).numpy()
        (of_session,) = session.run(None, arrays)
        for answer in (of_session, compiled(arrays)[0]):
            assert answer.shape == (samples, VOCABULARY)
            assert np.linalg.norm(answer - wanted) < 1e-4 * np.linalg.norm(wanted)
    graph = open_graph(file, dict.fromkeys(loaded.input_names, (1, 24)))
    (work,) = work_of(loaded, {24: loaded.make_inputs(1, 24)})
    assert products_of(graph).total == work.flops_per_item // 2
