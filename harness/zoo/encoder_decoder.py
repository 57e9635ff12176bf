"""T5's encoder and decoder as one forward pass: what is read, what was written so far, the next token's logits."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from harness.core.schemas import Answer
from harness.zoo.loaded import Inputs


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
    """Only the last position meets the vocabulary, as when serving: T5's own head multiplies every one."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden (batch, sequence, hidden) → logits (batch, 1, vocabulary)."""
        logits: torch.Tensor = self.head(hidden[:, -1:])
        return logits


def with_decoder_ids(made: Inputs, start: int) -> Inputs:
    """The inputs of an encoder with `decoder_input_ids` of the same shape: its ids one place later, behind the start
    token, as a decoder that repeats its input has them."""
    ids: NDArray[np.generic] = np.roll(made.arrays["input_ids"], 1, axis=1)
    ids[:, 0] = start
    return Inputs(
        {**made.arrays, "decoder_input_ids": ids}, f"{made.source}; the decoder gets the same, shifted by one"
    )
