"""Arithmetic of a prefill and of a decode step, for one sequence, and the parameters of the model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from harness.core.schemas import DecoderShape
from harness.core.schemas.profile_record import Counts, Phase
from harness.zoo.cost import torch_counts
from harness.zoo.cost.torch_counts import flops_of
from harness.zoo.generation.generative import cache_argument, last_logits_only, rebuild_generative

_NOT_ESTIMATED = "not estimated: of generation, a row has the bytes of its cache"


def counts_of_phase(folder: Path, shape: DecoderShape, prompt_length: int, new_tokens: int, phase: Phase) -> Counts:
    """Counts of one sequence. folder: of the model's files for generation.

    A decode step is counted at the mean context of its steps: what grows with the context grows linearly.
    """
    module = rebuild_generative(folder)
    call = (
        _prefill(module, shape, prompt_length)
        if phase == "prefill"
        else _step(module, shape, prompt_length, new_tokens)
    )
    flops, uncounted = flops_of(call)
    parameters = torch_counts.parameters_of(module)
    return Counts(
        parameters=parameters.total,
        trainable_parameters=None,
        parameters_by_type=dict(parameters.by_type),
        macs=flops // 2,
        flops=flops,
        counted_by="torch's FlopCounterMode, attention in separate products",
        uncounted=uncounted,
        onnx_count=None,
        count_notes=(),
        weight_bytes=torch_counts.weight_bytes(module),
        activation_bytes=None,
        activation_bytes_by=_NOT_ESTIMATED,
    )


def _prefill(module: Any, shape: DecoderShape, prompt_length: int) -> Any:
    prompt = torch.zeros((1, prompt_length), dtype=torch.int64)
    if shape.kind == "seq2seq":
        return partial(_seq2seq, module, prompt, _start(shape, 1))
    return partial(module, input_ids=prompt, use_cache=True, **last_logits_only(module))


def _step(module: Any, shape: DecoderShape, prompt_length: int, new_tokens: int) -> Any:
    """A step after the prompt and half of the answer, which are computed here."""
    name = cache_argument(module)
    with torch.no_grad():
        if shape.kind == "seq2seq":
            encoded = module.get_encoder()(input_ids=torch.zeros((1, prompt_length), dtype=torch.int64))
            given = {"encoder_outputs": encoded}
            before = module(**given, decoder_input_ids=_start(shape, max(1, new_tokens // 2)), use_cache=True)
            given["decoder_input_ids"] = _start(shape, 1)
        else:
            context = torch.zeros((1, prompt_length + (new_tokens - 2) // 2), dtype=torch.int64)
            before = module(input_ids=context, use_cache=True, **last_logits_only(module))
            given = {"input_ids": torch.zeros((1, 1), dtype=torch.int64)}
    return partial(module, **given, **{name: getattr(before, name)}, use_cache=True)


def _seq2seq(module: Any, prompt: torch.Tensor, start: torch.Tensor) -> None:
    module(encoder_outputs=module.get_encoder()(input_ids=prompt), decoder_input_ids=start, use_cache=True)


def _start(shape: DecoderShape, length: int) -> torch.Tensor:
    return torch.full((1, length), shape.start_token or 0, dtype=torch.int64)
