"""transformers' models: encoders and decoders of text, and models of pictures and sounds with one input."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from harness.core.errors import ConfigError, MalformedFileError
from harness.core.layout import ModelFolder
from harness.core.padding import MASK
from harness.core.safe_files import SizeLimit, read_text
from harness.core.schemas import Answer, ProcessorPreparation, TextPreparation
from harness.zoo import ModelInfo
from harness.zoo.construct import frozen_module
from harness.zoo.families import hub
from harness.zoo.families.hub import Tokenizer
from harness.zoo.identity import artifact
from harness.zoo.input_files import Arrays
from harness.zoo.inputs import images, sounds
from harness.zoo.inputs.preprocessing import processor_of
from harness.zoo.inputs.sentences import SOURCE, passages, token_ids
from harness.zoo.loaded import Inputs, Loaded, Raw, Request
from harness.zoo.model_files import PROCESSOR, Media, media_of, media_of_config

_HEADS: Mapping[str, tuple[str, Answer, str]] = {
    "ForImageClassification": ("AutoModelForImageClassification", "top-5", "logits"),
    "ForImageClassificationWithTeacher": ("AutoModelForImageClassification", "top-5", "logits"),
    "ForSemanticSegmentation": ("AutoModelForSemanticSegmentation", "outputs", "logits"),
    "ForDepthEstimation": ("AutoModelForDepthEstimation", "outputs", "predicted_depth"),
    "ForAudioClassification": ("AutoModelForAudioClassification", "top-5", "logits"),
    "ForSequenceClassification": ("AutoModelForAudioClassification", "top-5", "logits"),
    "ForCTC": ("AutoModelForCTC", "outputs", "logits"),
}
"""By the end of the architecture's name: the library's class, the answer, and the output's name."""


class FirstOutput(nn.Module):
    """One tensor → the model's first output."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(batch, …), as the processor gives it."""
        tensor: torch.Tensor = self.model(values, return_dict=True)[0]
        return tensor


def load_media(config: Any, media: Media, origin: str | None, request: Request) -> Loaded:
    """A model of pictures or sounds, with its configuration and processor saved into the folder.

    Raises HubError where the weights or the processor cannot be read, ConfigError where the model needs more tensors.
    """
    auto, answer, output = _class_of(config)
    processor = hub.processor(media, origin, request)
    if request.weights == "pretrained":
        model, source = hub.weights(auto, origin, request, {}), request.info.weight_source
    else:
        torch.manual_seed(request.seed)
        model, source = auto.from_config(config), f"random, seed {request.seed}"
    config.save_pretrained(request.folder)
    processor.save_pretrained(ModelFolder(request.folder).processor)
    name = str(model.main_input_name)
    if name not in processor.model_input_names:  # CLIP has texts beside its pictures
        raise _several_tensors(type(model).__name__)
    prepare = functools.partial(_media_raw, media, answer, request.folder)
    return Loaded(
        module=frozen_module(FirstOutput(model)),
        weight_source=source,
        classifier=answer == "top-5",
        input_names=(name,),
        output_names=(output,),
        make_inputs=functools.partial(_media_inputs, media, name, request.folder),
        make_raw=prepare,
        input_types={name: np.dtype(np.float32)},
        kind="image" if media == "image" else "tensor",
    )


def media_architecture(config: Any) -> nn.Module:
    """The model without weights."""
    from transformers.initialization import no_init_weights  # noqa: PLC0415

    auto, _, _ = _class_of(config)
    with no_init_weights():
        model = auto.from_config(config)
    model.tie_weights()
    return FirstOutput(model)


def _class_of(config: Any) -> tuple[Any, Answer, str]:
    import transformers  # noqa: PLC0415 - seconds, and only these models need it

    name = (getattr(config, "architectures", None) or [""])[0]
    head_class = next((head for end, head in _HEADS.items() if name.endswith(end)), None)
    if head_class is not None:
        return getattr(transformers, head_class[0]), head_class[1], head_class[2]
    if getattr(config, "is_encoder_decoder", False) or "For" in name:
        raise _several_tensors(name or config.model_type)
    return transformers.AutoModel, "outputs", "last_hidden_state"


def _several_tensors(kind: str) -> ConfigError:
    return ConfigError(
        f"A {kind} takes more than one tensor, or answers with more than one.",
        "Choose a classifier, an encoder, CTC, segmentation or depth, or wrap it: `module:<path>:<function>`.",
    )


def _media_inputs(media: Media, name: str, folder: Path, samples: int, sequence_length: int | None) -> Inputs:
    del sequence_length
    prepare = processor_of(_preparation(media, folder), folder, name)
    if media == "image":
        arrays = prepare(list(images.pictures(samples)))
        return Inputs(arrays, f"{images.SOURCE}; the model's own processor")
    return Inputs(
        prepare(sounds.wav_files(samples, sounds.rate_of(folder))), f"{sounds.SOURCE}; the model's own processor"
    )


def _media_raw(media: Media, answer: Answer, folder: Path, samples: int, sequence_length: int | None) -> Raw:
    del sequence_length
    how = _preparation(media, folder)
    files = images.jpegs(samples) if media == "image" else sounds.wav_files(samples, sounds.rate_of(folder))
    return Raw(tuple(files), how, answer)


def _preparation(media: Media, folder: Path) -> ProcessorPreparation:
    saved = ModelFolder(folder).processor / PROCESSOR
    entry = artifact(saved).model_copy(update={"path": f"{saved.parent.name}/{PROCESSOR}"})
    return ProcessorPreparation(media="image" if media == "image" else "audio", processor=entry)


class EncoderDecoder(nn.Module):
    """(input_ids, attention_mask, decoder_input_ids) → logits of the next token (batch, vocabulary); no cache."""

    output = "next_token_logits"
    answer: Answer = "next token"
    inputs = ("input_ids", "attention_mask", "decoder_input_ids")

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        model.lm_head = _LastPosition(model.get_submodule("lm_head"))
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, decoder_input_ids: torch.Tensor
    ) -> torch.Tensor:
        """One pass of both halves."""
        answer = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            use_cache=False,
            return_dict=True,
        )
        logits: torch.Tensor = answer.logits
        return logits[:, -1, :]


class _LastPosition(nn.Module):
    """Only the last position meets the vocabulary, as when serving: the model's own head multiplies every position."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden (batch, sequence, hidden) → logits (batch, 1, vocabulary)."""
        logits: torch.Tensor = self.head(hidden[:, -1:])
        return logits


def with_decoder_ids(made: Inputs, start: int) -> Inputs:
    """The inputs of an encoder with `decoder_input_ids` of the same shape: its ids one place later, after the start
    token, as a decoder that repeats its input has them."""
    ids: NDArray[np.generic] = np.roll(made.arrays["input_ids"], 1, axis=1)
    ids[:, 0] = start
    return Inputs(
        {**made.arrays, "decoder_input_ids": ids}, f"{made.source}; the decoder gets the same, shifted by one"
    )


class Encoder(nn.Module):
    """(input_ids, attention_mask) → last_hidden_state (batch, sequence, hidden)."""

    output = "last_hidden_state"
    answer: Answer = "embedding"
    inputs = ("input_ids", "attention_mask")

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """One pass; no pooling."""
        hidden: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask)[0]
        return hidden


class Classifier(Encoder):
    """(input_ids, attention_mask) → logits (batch, classes)."""

    output = "logits"
    answer = "top-5"


class TokenClassifier(Encoder):
    """(input_ids, attention_mask) → logits (batch, sequence, classes)."""

    output = "logits"
    answer = "outputs"


class CausalLanguageModel(Encoder):
    """(input_ids, attention_mask) → logits of the next token (batch, vocabulary), without a cache."""

    output = "next_token_logits"
    answer = "next token"

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """One pass over the prompt; only the last position meets the vocabulary, as when serving."""
        answer = self.model(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False, logits_to_keep=1, return_dict=True
        )
        logits: torch.Tensor = answer.logits
        return logits[:, -1, :]


def load(request: Request) -> Loaded:
    """A text model with its configuration saved into the folder.

    Raises HubError where the hub is out of reach, ConfigError where the source is no text model that we can run.
    """
    origin = hub.origin_of(request)
    config = hub.configuration(origin, request)
    kind = media_of_config(config.to_dict(), {})
    if kind == "text" and origin is not None:
        kind = media_of(origin)  # by its processor as well
    if kind != "text":
        return load_media(config, kind, origin, request)
    auto, wrapper = _classes(config)
    if request.weights == "pretrained":
        model = hub.weights(auto, origin, request, _options(auto, config))
        source = request.info.weight_source
    else:
        torch.manual_seed(request.seed)
        model = auto.from_config(config, **_options(auto, config))
        source = f"random, seed {request.seed}"
    saved = (getattr(config, "architectures", None) or [""])[0]
    if wrapper is Encoder and "For" in saved:
        source += f"; its encoder, without the head of {saved}"
    if left_out := _modules_after(origin):
        source += f"; its transformer, without {' and '.join(left_out)} of modules.json"
    config.save_pretrained(request.folder)
    # Read where it is needed: the user's own inputs are ids already.
    tokenizer = functools.cache(functools.partial(hub.tokenizer, origin, request))
    start = first_token(config) if wrapper is EncoderDecoder else None
    return Loaded(
        module=frozen_module(wrapper(model)),
        weight_source=source,
        classifier=wrapper is not Encoder,
        input_names=wrapper.inputs,
        output_names=(wrapper.output,),
        make_inputs=functools.partial(_inputs, tokenizer, int(config.vocab_size), request.info.name, start),
        make_raw=functools.partial(_raw, tokenizer, wrapper.answer, request) if start is None else None,
        pad_texts=functools.partial(_padded, tokenizer, int(config.vocab_size), request.info.name)
        if wrapper.answer != "next token"
        else None,
        kind="text",
        input_types=dict.fromkeys(wrapper.inputs, np.dtype(np.int64)),
        sequence_inputs=wrapper.inputs,
        max_sequence=_positions(config),
        attention=str(model.config._attn_implementation),
        set_attention=model.set_attn_implementation,
        # ONNX Runtime fuses the attention of encoders: T5's adds a bias by distance to its scores.
        heads=getattr(config, "num_attention_heads", None) if start is None else None,
        hidden_size=getattr(config, "hidden_size", None) if start is None else None,
    )


def _modules_after(origin: str | None) -> list[str]:
    """Names of the modules that a folder of sentence-transformers has after its transformer, as Pooling: they are no
    part of transformers' model. Empty for other sources."""
    file = Path(origin or "") / "modules.json"
    if origin is None or not file.is_file():
        return []
    try:
        modules = json.loads(read_text(file, SizeLimit.TEXT))
        return [str(module["type"]).rpartition(".")[2] for module in modules[1:]]
    except (ValueError, TypeError, KeyError, MalformedFileError):
        return ["the modules"]


def architecture(info: ModelInfo, folder: Path) -> nn.Module:
    """The model without weights, from the configuration that load() saved."""
    from transformers import AutoConfig  # noqa: PLC0415 - seconds, and only these models need it
    from transformers.initialization import no_init_weights  # noqa: PLC0415

    del info
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if (folder / "processor").is_dir():
        return media_architecture(config)
    auto, wrapper = _classes(config)
    with no_init_weights():
        model = auto.from_config(config, **_options(auto, config))
    # Without initialisation the library leaves shared weights (GPT-2's embedding and output) apart as well.
    model.tie_weights()
    return wrapper(model)


def _classes(config: Any) -> tuple[Any, type[Encoder] | type[EncoderDecoder]]:
    """The library's class and our wrapper, from the class that the configuration names for the saved weights."""
    import transformers  # noqa: PLC0415

    architecture_name = (getattr(config, "architectures", None) or [""])[0]
    translators = transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
    if type(config) in translators and translators[type(config)].__name__ == architecture_name:
        return transformers.AutoModelForSeq2SeqLM, EncoderDecoder
    if architecture_name.endswith("EncoderModel"):
        return transformers.AutoModelForTextEncoding, Encoder
    if getattr(config, "is_encoder_decoder", False) or not hasattr(config, "vocab_size"):
        raise ConfigError(
            f"A {config.model_type} model does not take one text and answer in one pass.",
            "Choose an encoder, a classifier, a decoder or a translator, or wrap it: `module:<path>:<function>`.",
        )
    if architecture_name.endswith(("ForCausalLM", "LMHeadModel")):
        return transformers.AutoModelForCausalLM, CausalLanguageModel
    if architecture_name.endswith("ForSequenceClassification"):
        return transformers.AutoModelForSequenceClassification, Classifier
    if architecture_name.endswith("ForTokenClassification"):
        return transformers.AutoModelForTokenClassification, TokenClassifier
    return transformers.AutoModel, Encoder


def first_token(config: Any) -> int:
    """The token that a decoder beside an encoder begins with: by default, as T5's, the padding token."""
    start = getattr(config, "decoder_start_token_id", None)
    return int(config.pad_token_id if start is None else start)


def _positions(config: Any) -> int | None:
    """The longest sequence that a model has positions for; XLNet, which has no limit, says -1."""
    longest = getattr(config, "max_position_embeddings", None)
    return longest if longest and longest > 0 else None


def _options(auto: Any, config: Any) -> dict[str, Any]:
    """Leave out a pooler whose output is not read: eager would compute it, the graph backends would not."""
    import transformers  # noqa: PLC0415

    if auto is not transformers.AutoModel:
        return {}
    built = transformers.MODEL_MAPPING[type(config)]
    return {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(built).parameters else {}


def _raw(
    get_tokenizer: Callable[[], Tokenizer], answer: Answer, request: Request, samples: int, sequence_length: int | None
) -> Raw:
    folder, tokenizer = ModelFolder(request.folder).tokenizer, get_tokenizer()
    tokenizer.save(folder)
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ConfigError(
            f"The tokenizer of {request.info.name} has no tokenizer.json, which the e2e boundary reads.",
            "Leave `boundaries: [e2e]` out for it, or save a fast tokenizer into its folder.",
        )
    saved = artifact(file).model_copy(update={"path": f"{folder.name}/{file.name}"})
    texts = tuple(text.encode() for text in passages(samples, sequence_length or 0))
    return Raw(texts, TextPreparation(tokenizer=saved), answer)


def _inputs(
    get_tokenizer: Callable[[], Tokenizer],
    vocabulary: int,
    model: str,
    start: int | None,
    samples: int,
    sequence_length: int | None,
) -> Inputs:
    """start: the token that a decoder beside the encoder begins with; None without such a decoder."""
    tokenizer, length = get_tokenizer(), _required(sequence_length, model)
    ids = token_ids(tokenizer.encode, samples, length)
    _require_embeddings(ids, vocabulary, model)
    arrays: Arrays = {"input_ids": ids, MASK: np.ones_like(ids)}
    made = Inputs(arrays, f"{SOURCE}; {tokenizer.source}; no padding")
    return made if start is None else with_decoder_ids(made, start)


def _padded(
    get_tokenizer: Callable[[], Tokenizer],
    vocabulary: int,
    model: str,
    texts: Sequence[str],
    sequence_length: int | None,
) -> Inputs:
    tokenizer, length = get_tokenizer(), _required(sequence_length, model)
    if tokenizer.padding is None:
        raise ConfigError(
            f"The tokenizer of {model} has no padding token, so that texts of different lengths make no batch.",
            "Set `pad_token` in it and save it again, or give ids as arrays: INPUTS=<file>.npz.",
        )
    ids = np.full((len(texts), length), tokenizer.padding, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(texts):
        tokens = tokenizer.encode(text, length)
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    _require_embeddings(ids, vocabulary, model)
    return Inputs({"input_ids": ids, MASK: mask}, tokenizer.source)


def _required(sequence_length: int | None, model: str) -> int:
    if sequence_length is None:
        raise ConfigError(f"{model} reads text and has no sequence length.", "Set `sequence_lengths: [128]` for it.")
    return sequence_length


def _require_embeddings(ids: NDArray[np.int64], vocabulary: int, model: str) -> None:
    if int(ids.max()) >= vocabulary:
        raise ConfigError(
            f"The tokenizer gives ids up to {ids.max()}, {model} has {vocabulary} embeddings.",
            "Save the model's own tokenizer into its folder.",
        )
