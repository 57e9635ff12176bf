"""A model that generates: loaded from its source, saved for the backends, rebuilt from its folder; and what it answers
to prompts in fp32 eager, greedily (tokens, margins and logits of every step), with how far the rounding of another
precision takes these logits."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import nn

from harness.core.errors import CaseError, ConfigError, HubError, reason
from harness.core.schemas import DecoderKind, DecoderShape, Device, Precision
from harness.zoo.construct import frozen_module, load_weights
from harness.zoo.families import hub
from harness.zoo.families.hub import Tokenizer
from harness.zoo.generation import MOST_WITH_LOGITS
from harness.zoo.loaded import Request
from harness.zoo.model_files import EXAMPLES, facts_of_config
from harness.zoo.quiet import quiet


@dataclass(frozen=True)
class Generative:
    """module: fp32, eval, of transformers. tokenizer: the model's own; None where it has none here.

    gguf: the file that its weights were de-quantised from; None for other weights.
    """

    module: Any
    shape: DecoderShape
    weight_source: str
    tokenizer: Tokenizer | None
    gguf: Path | None


def load_generative(request: Request) -> Generative:
    """The model, with its configuration saved into the request's folder.

    Raises HubError where its source is out of reach, ConfigError where it cannot generate with a cache.
    """
    origin = hub.origin_of(request)
    config = hub.configuration(origin, request)
    kind = _kind_of(request.info.name, config)
    auto = _auto(kind)
    # No option of the configuration may turn the cache off, and none may sample.
    config.use_cache = True
    if request.weights == "pretrained":
        with quiet():
            model = hub.weights(auto, origin, request, {})
        source = request.info.weight_source
    else:
        torch.manual_seed(request.seed)
        model = auto.from_config(config)
        source = f"random, seed {request.seed}"
    config.save_pretrained(request.folder)
    return Generative(
        module=frozen_module(model),
        shape=shape_of(config, kind),
        weight_source=source,
        tokenizer=_own_tokenizer(origin, request),
        gguf=hub.gguf_of(origin) if request.weights == "pretrained" else None,
    )


def rebuild_generative(folder: Path) -> Any:
    """The exported model with its weights: fp32, eval. Raises CaseError where the folder does not hold one."""
    from transformers import AutoConfig  # noqa: PLC0415 - seconds, and only these models need it
    from transformers.initialization import no_init_weights  # noqa: PLC0415

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        with no_init_weights():
            model = _auto(_kind_of(folder.name, config)).from_config(config)
        model.tie_weights()
        load_weights(model, folder / "weights.safetensors")
    except (OSError, RuntimeError, ValueError, KeyError, SafetensorError) as error:
        raise CaseError(
            f"The model could not be rebuilt from {folder}: {reason(error)}",
            "Export it again: `make export FORCE=1`.",
        ) from error
    return frozen_module(model)


def shape_of(config: Any, kind: DecoderKind) -> DecoderShape:
    """The sizes of the decoder, whatever the configuration calls them."""
    of_decoder = kind == "seq2seq"
    layers = _first(config, *(("num_decoder_layers", "decoder_layers") if of_decoder else ()), "num_hidden_layers")
    heads = _first(config, *(("decoder_attention_heads",) if of_decoder else ()), "num_attention_heads")
    hidden = _first(config, "hidden_size", "d_model")
    start = getattr(config, "decoder_start_token_id", None)
    return DecoderShape(
        kind=kind,
        layers=layers,
        heads=heads,
        kv_heads=_first(config, "num_key_value_heads", default=heads),
        head_dim=_first(config, "head_dim", "d_kv", default=hidden // heads),
        hidden=hidden,
        vocabulary=int(config.vocab_size),
        longest=None
        if config.model_type in ("t5", "mt5", "umt5")
        else getattr(config, "max_position_embeddings", None),
        start_token=(config.pad_token_id if start is None else start) if of_decoder else None,
    )


def cache_argument(module: nn.Module) -> str:
    """The name of forward's parameter for the cache: transformers renamed it in version 5."""
    return "cache" if "cache" in inspect.signature(module.forward).parameters else "past_key_values"


def last_logits_only(module: nn.Module) -> dict[str, int]:
    """The argument with which only the last position of a prompt meets the vocabulary, where the model has it."""
    return {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(module.forward).parameters else {}


def read_parameters(module: Any, kind: DecoderKind) -> int:
    """Elements that one decode step reads: no lookup tables unless they are the output layer too, and of a
    seq2seq model only its decoder, without the layers whose results are cached."""
    output = module.get_output_embeddings().weight
    part = module.get_decoder() if kind == "seq2seq" else module
    tables = {id(part_module.weight) for part_module in part.modules() if isinstance(part_module, nn.Embedding)} - {
        id(output)
    }
    made_once = ("EncDecAttention.k.", "EncDecAttention.v.", "encoder_attn.k_proj.", "encoder_attn.v_proj.")
    counts = {
        id(weight): weight.numel()
        for name, weight in part.named_parameters()
        if id(weight) not in tables and not any(word in name for word in made_once)
    }
    return sum({**counts, id(output): output.numel()}.values())


def _own_tokenizer(origin: str | None, request: Request) -> Tokenizer | None:
    if origin is None:
        return None
    try:
        tokenizer = hub.tokenizer(origin, request)
    except HubError:
        return None
    return tokenizer if tokenizer.source == hub.OWN_TOKENIZER else None


def _kind_of(name: str, config: Any) -> DecoderKind:
    facts = facts_of_config(name, {**config.to_dict(), "architectures": config.architectures, "use_cache": True})
    if isinstance(facts, str):
        raise ConfigError(f"{facts}.", f"Choose a model that generates: {EXAMPLES}.")
    return facts.kind


def _auto(kind: DecoderKind) -> Any:
    import transformers  # noqa: PLC0415 - seconds, and only these models need it

    return transformers.AutoModelForSeq2SeqLM if kind == "seq2seq" else transformers.AutoModelForCausalLM


def _first(config: Any, *names: str, default: int | None = None) -> int:
    first = next((value for name in names if (value := getattr(config, name, None)) is not None), default)
    if first is None:
        raise ConfigError(f"A {config.model_type} model does not say its {names[0]}.", f"Choose one of: {EXAMPLES}.")
    return int(first)


LOGITS_BYTES = 64 << 20
"""Of the stored logits of one prompt length: they are compared step by step and travel with the export."""


@dataclass(frozen=True)
class Greedy:
    """tokens: (prompts, steps) int64. margins: (prompts, steps) float32, top-1 less top-2 logit.

    logits: (stored, steps, vocabulary) float32 of the first prompts.
    """

    tokens: NDArray[np.int64]
    margins: NDArray[np.float32]
    logits: NDArray[np.float32]


def stored_prompts(prompts: int, steps: int, vocabulary: int) -> int:
    """Number of prompts whose logits are kept: as many as fit into LOGITS_BYTES, at least one."""
    return max(1, min(prompts, MOST_WITH_LOGITS, LOGITS_BYTES // (4 * steps * vocabulary)))


def greedy(
    module: Any,
    kind: DecoderKind,
    ids: NDArray[np.int64],
    steps: int,
    start_token: int | None,
    after_token: Callable[[], None] | None = None,
) -> Greedy:
    """Generate `steps` tokens for each prompt, one batch, without an end token.

    ids: (prompts, length). start_token: first input of a seq2seq decoder. after_token: called after each step.
    """
    prompts, vocabulary = len(ids), int(module.config.vocab_size)
    stored = stored_prompts(prompts, steps, vocabulary)
    tokens = np.empty((prompts, steps), np.int64)
    margins = np.empty((prompts, steps), np.float32)
    logits = np.empty((stored, steps, vocabulary), np.float32)
    name, last = cache_argument(module), last_logits_only(module)
    prompt = torch.from_numpy(ids)
    with torch.inference_mode():
        given: dict[str, Any] = {"input_ids": prompt}
        if kind == "seq2seq":
            hidden = module.get_encoder()(input_ids=prompt)
            given = {"encoder_outputs": hidden, "decoder_input_ids": torch.full((prompts, 1), start_token or 0)}
        answer = module(**given, use_cache=True, **last)
        for step in range(steps):
            final = answer.logits[:, -1].float()
            top = final.topk(2, dim=-1)
            tokens[:, step] = final.argmax(dim=-1).numpy()
            margins[:, step] = (top.values[:, 0] - top.values[:, 1]).numpy()
            logits[:, step] = final[:stored].numpy()
            if after_token is not None:
                after_token()
            if step + 1 < steps:
                following = torch.from_numpy(tokens[:, step : step + 1].copy())
                given = {"encoder_outputs": given["encoder_outputs"]} if kind == "seq2seq" else {}
                given["decoder_input_ids" if kind == "seq2seq" else "input_ids"] = following
                answer = module(**given, **{name: getattr(answer, name)}, use_cache=True, **last)
    return Greedy(tokens, margins, logits)


_DTYPES: dict[Precision, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16}


def rounding_of(
    module: Any,
    kind: DecoderKind,
    ids: NDArray[np.int64],
    reference: Greedy,
    precision: Precision,
    start_token: int | None,
    device: Device = "cpu",
) -> float:
    """The largest relative L2 distance of a step's logits from the reference, when a copy of the module computes prompt
    and reference tokens in `precision`, in one pass.

    There is no cache and no loop of ours in this pass: it shows what rounding alone does, and shares no fault with a
    decoder. ids: (stored, length), of the prompts whose logits the reference has; a prompt at a time.
    """
    where = torch.device(device if torch.cuda.is_available() else "cpu")
    rounded = copy.deepcopy(module).to(_DTYPES[precision]).to(where)
    worst = 0.0
    with torch.inference_mode():
        for prompt, tokens, wanted in zip(ids, reference.tokens, reference.logits, strict=False):
            inputs = torch.from_numpy(tokens[:-1].astype(np.int64))
            if kind == "seq2seq":
                following = torch.cat([torch.tensor([start_token or 0]), inputs])
                given = {"input_ids": torch.from_numpy(prompt)[None], "decoder_input_ids": following[None]}
            else:
                given = {"input_ids": torch.cat([torch.from_numpy(prompt), inputs])[None]}
            answer = rounded(**{name: value.to(where) for name, value in given.items()}, use_cache=False).logits
            expected = torch.from_numpy(wanted).double()
            moved = answer[0, -len(wanted) :].double().cpu() - expected
            distance = float((moved.norm(dim=-1) / expected.norm(dim=-1)).max())
            # Where it overflows, a row's own check of finite logits speaks.
            worst = max(worst, distance if math.isfinite(distance) else 0.0)
    return worst
