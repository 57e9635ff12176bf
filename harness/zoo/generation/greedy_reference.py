"""What PyTorch eager in fp32 answers to prompts, greedily: tokens, margins and logits of every step; and how far the
rounding of another precision takes these logits."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.core.schemas import DecoderKind, Device, Precision
from harness.zoo.generation.generative import cache_argument, last_logits_only

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
    """Number of prompts whose logits are kept: as many as fit into LOGITS_BYTES, at least one, at most four."""
    return max(1, min(prompts, 4, LOGITS_BYTES // (4 * steps * vocabulary)))


def greedy(module: Any, kind: DecoderKind, ids: NDArray[np.int64], steps: int, start_token: int | None) -> Greedy:
    """Generate `steps` tokens for each prompt, one batch, without an end token.

    ids: (prompts, length). start_token: first input of a seq2seq decoder.
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
            theirs = torch.from_numpy(wanted).double()
            moved = answer[0, -len(wanted) :].double().cpu() - theirs
            distance = float((moved.norm(dim=-1) / theirs.norm(dim=-1)).max())
            # Where it overflows, a row's own check of finite logits speaks.
            worst = max(worst, distance if math.isfinite(distance) else 0.0)
    return worst
