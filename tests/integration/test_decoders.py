"""PyTorch's decoders on tiny seeded models: the tokens of transformers' generate, and the cache by formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

from harness.aggregation.generation_rows import ROUNDINGS
from harness.backends.decoder import Decoder, DecoderJob
from harness.backends.torch.decoder import EagerDecoder, SlotDecoder
from harness.core.errors import CaseError
from harness.core.schemas import DecoderKind, Precision
from harness.core.schemas.profile_record import GenerationPhase
from harness.timing.token_batching import left_padded
from harness.zoo.construct import save_weights
from harness.zoo.cost.counting import counts_of_phase
from harness.zoo.generation.generative import greedy, read_parameters, rebuild_generative, rounding_of, shape_of
from tests.fixtures.smollm2 import needs_smollm2
from tests.fixtures.tiny_decoders import joined

PROMPT, NEW, BATCH, VOCABULARY = 7, 6, 3, 97

TINY: Mapping[str, tuple[DecoderKind, str, dict[str, Any]]] = {
    "gpt2": ("causal", "GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "llama": (
        "causal",
        "LlamaForCausalLM",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 64,
        },
    ),
    "t5": (
        "seq2seq",
        "T5ForConditionalGeneration",
        {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0},
    ),
}


@dataclass(frozen=True)
class Tiny:
    """A tiny model in a folder. generated: the tokens of transformers' generate."""

    kind: DecoderKind
    folder: Path
    model: Any
    prompts: NDArray[np.int64]
    generated: NDArray[np.int64]

    def job(self, precision: Precision = "fp32") -> DecoderJob:
        shape = shape_of(self.model.config, self.kind)
        return DecoderJob("tiny", self.folder, shape, "cpu", precision, BATCH, PROMPT, NEW, 1, self.folder / "cache")


@pytest.fixture(scope="module", params=list(TINY))
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    kind, architecture, sizes = TINY[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(1)
    config = AutoConfig.for_model(request.param, vocab_size=VOCABULARY, bos_token_id=1, eos_token_id=2, **sizes)
    config.architectures = [architecture]
    auto = AutoModelForSeq2SeqLM if kind == "seq2seq" else AutoModelForCausalLM
    model = auto.from_config(config).eval()
    config.save_pretrained(folder)
    save_weights(model, folder / "weights.safetensors")
    prompts = np.random.default_rng(0).integers(3, VOCABULARY, (BATCH, PROMPT))
    ids = torch.from_numpy(prompts)
    wanted = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    answer = model.generate(ids, attention_mask=torch.ones_like(ids), **wanted).numpy()
    return Tiny(kind, folder, model, prompts, answer[:, -NEW:])


def run(decoder: Decoder, prompts: NDArray[np.int64], forced: NDArray[np.int64] | None = None) -> tuple[Any, Any]:
    decoder.prefill(prompts)
    tokens, logits = [decoder.tokens().copy()], [decoder.logits()]
    for step in range(1, NEW):
        if forced is not None:
            decoder.force(forced[:, step - 1])
        decoder.step()
        tokens.append(decoder.tokens().copy())
        logits.append(decoder.logits())
    return np.stack(tokens, axis=1), np.stack(logits, axis=1)


def test_the_reference_has_the_tokens_of_generate(tiny: Tiny) -> None:
    result = greedy(tiny.model, tiny.kind, tiny.prompts, NEW, tiny.model.config.pad_token_id)
    assert np.array_equal(result.tokens, tiny.generated)
    assert np.array_equal(result.logits.argmax(axis=2), tiny.generated)
    top = np.sort(result.logits, axis=2)
    assert result.margins == pytest.approx(top[..., -1] - top[..., -2], abs=1e-6)


def test_eager_has_the_tokens_of_generate_after_other_prompts_too(tiny: Tiny) -> None:
    decoder = EagerDecoder(tiny.job())
    decoder.load()
    try:
        first, _ = run(decoder, tiny.prompts[::-1].copy())
        second, logits = run(decoder, tiny.prompts)
        assert np.array_equal(first, tiny.generated[::-1])
        assert np.array_equal(second, tiny.generated)
        shape = decoder.job.shape
        assert decoder.cache_bytes() == shape.cache_elements(PROMPT, NEW) * BATCH * 4
        _, forced = run(decoder, tiny.prompts, tiny.generated)
        assert forced == pytest.approx(logits, abs=1e-5)
        placed = decoder.placement()
        assert (placed.device, placed.precision, placed.settings["cache"]) == ("cpu", "fp32", "dynamic")
    finally:
        decoder.close()


def test_padding_is_masked_so_that_each_prompt_has_the_tokens_that_it_has_alone(tiny: Tiny) -> None:
    decoder = EagerDecoder(tiny.job())
    decoder.load()
    try:
        lengths = np.array([PROMPT, 3, 5])
        ids, result = left_padded([row[:length] for row, length in zip(tiny.prompts, lengths, strict=True)], BATCH)
        assert result.tolist() == lengths.tolist()
        if tiny.kind == "seq2seq":
            with pytest.raises(CaseError, match="masks no padding"):
                decoder.prefill_padded(ids, lengths)
            return
        decoder.prefill_padded(ids, lengths)
        tokens = [decoder.tokens().copy()]
        for _ in range(1, NEW):
            decoder.step()
            tokens.append(decoder.tokens().copy())
        for row, length in enumerate(lengths):
            wanted = greedy(tiny.model, tiny.kind, tiny.prompts[row : row + 1, :length], NEW, 0)
            assert np.stack(tokens, axis=1)[row].tolist() == wanted.tokens[0].tolist()
        # The next request of equal prompts has no mask.
        again, _ = run(decoder, tiny.prompts)
        assert np.array_equal(again, tiny.generated)
    finally:
        decoder.close()


def test_requests_that_join_have_the_tokens_that_they_have_alone(tiny: Tiny) -> None:
    if tiny.kind == "seq2seq":
        with pytest.raises(CaseError, match="has an encoder"):
            SlotDecoder(tiny.job())
        return
    decoder = SlotDecoder(tiny.job())
    decoder.load()
    try:
        # Seven requests in three slots, so that each slot is used again by a shorter or longer prompt, and is empty
        # between others for some steps.
        lengths, counts = [7, 3, 5, 2, 7, 4, 6], [6, 2, 5, 1, 3, 6, 4]
        prompts = [tiny.prompts[number % BATCH, :length] for number, length in enumerate(lengths)]
        wanted = [
            greedy(tiny.model, tiny.kind, prompt[None], count, 0).tokens[0].tolist()
            for prompt, count in zip(prompts, counts, strict=True)
        ]
        assert joined(decoder, prompts, counts) == wanted
        assert joined(decoder, prompts[::-1], counts[::-1]) == wanted[::-1]
        decoder.prefill(tiny.prompts)  # as one batch
        tokens = [decoder.tokens().copy()]
        for _ in range(1, NEW):
            decoder.step()
            tokens.append(decoder.tokens().copy())
        assert np.array_equal(np.stack(tokens, axis=1), tiny.generated)
        shape = decoder.job.shape
        assert decoder.cache_bytes() == BATCH * 4 * shape.cache_elements(PROMPT, NEW + 1)
        assert (decoder.placement().settings["cache"], decoder.placement().precision) == ("slots", "fp32")
    finally:
        decoder.close()


def test_eager_in_bf16_says_so_and_halves_the_cache(tiny: Tiny) -> None:
    decoder = EagerDecoder(tiny.job("bf16"))
    decoder.load()
    try:
        run(decoder, tiny.prompts)
        assert decoder.placement().precision == "bf16"
        assert decoder.cache_bytes() == decoder.job.shape.cache_elements(PROMPT, NEW) * BATCH * 2
    finally:
        decoder.close()


def test_a_rebuilt_model_is_the_saved_one(tiny: Tiny) -> None:
    again = rebuild_generative(tiny.folder)
    ours, theirs = tiny.model.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert read_parameters(again, tiny.kind) < sum(parameter.numel() for parameter in again.parameters())


def test_a_folder_without_a_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="could not be rebuilt"):
        rebuild_generative(tmp_path)


@pytest.mark.slow
def test_compiled_is_one_graph_with_the_same_tokens(tiny: Tiny) -> None:
    from harness.backends.torch.decoder_compile import CompiledDecoder

    decoder = CompiledDecoder(tiny.job())
    decoder.load()
    try:
        decoder.compile()
        first, _ = run(decoder, tiny.prompts[::-1].copy())
        second, _ = run(decoder, tiny.prompts)
        assert np.array_equal(first, tiny.generated[::-1])
        assert np.array_equal(second, tiny.generated)
        settings = decoder.placement().settings
        assert (settings["graphs"], settings["graph_breaks"], settings["max_cache_len"]) == (1, 0, 64)
    finally:
        decoder.close()


@pytest.mark.slow
@needs_smollm2
def test_smollm2_has_the_tokens_of_generate(tmp_path: Path) -> None:
    from harness.zoo import model_info
    from harness.zoo.generation.generative import load_generative
    from harness.zoo.loaded import Request

    model = load_generative(Request(model_info("smollm2-135m"), "pretrained", 0, None, tmp_path))
    assert model.tokenizer is not None
    assert model.gguf is not None
    ids = torch.tensor([model.tokenizer.encode("The capital of France is", 64)])
    wanted = {"max_new_tokens": 32, "min_new_tokens": 32, "do_sample": False, "eos_token_id": None}
    answer = model.module.generate(ids, attention_mask=torch.ones_like(ids), **wanted).numpy()[:, ids.shape[1] :]
    save_weights(model.module, tmp_path / "weights.safetensors")
    job = DecoderJob("x", tmp_path, model.shape, "cpu", "fp32", 1, ids.shape[1], 32, 2, tmp_path)
    decoder = EagerDecoder(job)
    decoder.load()
    decoder.prefill(ids.numpy())
    tokens = [int(decoder.tokens()[0])]
    for _ in range(31):
        decoder.step()
        tokens.append(int(decoder.tokens()[0]))
    assert tokens == answer[0].tolist()
    assert decoder.cache_bytes() == model.shape.cache_elements(ids.shape[1], 32) * 4


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_rounding_alone_explains_a_right_decoder_and_no_wrong_one(tiny: Tiny, precision: Precision) -> None:
    """The tolerance of a row is ROUNDINGS times what one pass without a cache makes."""
    start = tiny.model.config.pad_token_id
    reference = greedy(tiny.model, tiny.kind, tiny.prompts, NEW, start)
    allowed = ROUNDINGS * rounding_of(tiny.model, tiny.kind, tiny.prompts, reference, precision, start)
    assert allowed > 0

    def distance(prompts: NDArray[np.int64] = tiny.prompts, wrong: Callable[[EagerDecoder], object] = bool) -> float:
        decoder = EagerDecoder(tiny.job(precision))
        decoder.load()
        try:
            wrong(decoder)
            _, logits = run(decoder, prompts, reference.tokens)
        finally:
            decoder.close()
        moved = np.linalg.norm(logits.astype(np.float64) - reference.logits, axis=-1)
        return float((moved / np.linalg.norm(reference.logits, axis=-1)).max())

    assert distance() <= allowed
    # Keys and values of other prompts: a stale cache.
    assert distance(prompts=tiny.prompts[::-1].copy()) > allowed
    assert distance(wrong=_without_last_mlp) > allowed
    if tiny.kind == "causal":  # with random weights, T5's attention to its own few tokens moves nothing
        assert distance(wrong=_forgets_a_position) > allowed


def _without_last_mlp(decoder: EagerDecoder) -> None:
    names = ("mlp.c_proj", "mlp.down_proj", "DenseReluDense.wo")
    last = [part for name, part in decoder.module.named_modules() if name.endswith(names)][-1]
    last.weight.data.zero_()


def _forgets_a_position(decoder: EagerDecoder) -> None:
    """Each step drops the oldest keys and values of the decoder's own cache once more."""
    step = decoder.step

    def forgetful() -> None:
        for layer in decoder._caches()[0].layers:
            if layer.keys.shape[-2] > 1:
                layer.keys, layer.values = layer.keys[..., 1:, :], layer.values[..., 1:, :]
        step()

    decoder.step = forgetful  # type: ignore[method-assign]


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_phase_of_eager_is_profiled_by_module_and_operator(
    tiny: Tiny, phase: GenerationPhase, tmp_path: Path
) -> None:
    from harness.backends.torch import profile  # not above, or each process would import torch.compile to collect

    result = profile.eager_decoder(tiny.job(), tiny.prompts, phase, tmp_path, 6)
    layers = {row.name: row for row in result.layers}
    root = layers["(model)"]
    assert {row.group for row in result.layers} >= {"attention", "mlp", "normalisation"}
    assert sum(row.self_ns for row in result.layers) <= result.window_ns
    # One token a sequence passes the vocabulary in both phases; the other layers see the whole prompt in a prefill.
    head = layers["lm_head"]
    assert head.output_shapes[0][-2:] == (1, VOCABULARY)
    encoder = layers.get("encoder")
    assert (encoder is not None) == (tiny.kind == "seq2seq" and phase == "prefill")
    if encoder is not None:
        assert encoder.flops
        assert encoder.output_shapes[0][1] == PROMPT
    shape = tiny.job().shape
    counted = counts_of_phase(tiny.folder, shape, PROMPT, NEW, phase)
    whole = (root.flops or 0) + ((encoder.flops or 0) if encoder else 0)
    # The rows are of BATCH sequences, at another place of the answer than the mean context.
    assert whole / BATCH == pytest.approx(counted.flops, rel=0.1)
    assert result.operator_gaps is not None
    assert 0 < result.operator_gaps.busy_ns <= result.operator_gaps.window_ns
    assert any(row.name.startswith("aten::") for row in result.operators)
    assert all((tmp_path / name).is_file() for name in result.traces)


@pytest.mark.slow
def test_the_compiled_step_is_profiled_by_operator(tiny: Tiny, tmp_path: Path) -> None:
    from harness.backends.torch import profile

    result = profile.compiled_decoder(tiny.job(), tiny.prompts, "decode", tmp_path, 4)
    assert result.layers == ()
    assert any("cpp" in row.name or row.name.startswith(("graph", "aten::")) for row in result.operators)
    assert profile.compiled_decoder(tiny.job(), tiny.prompts, "prefill", tmp_path, 4).layers
