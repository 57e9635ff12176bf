"""Prompts of given lengths: our sentences, the user's texts, or seeded ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import ConfigError
from harness.zoo.families.hub import Tokenizer
from harness.zoo.input_files import prompt_lines
from harness.zoo.inputs.sentences import SOURCE, token_ids


@dataclass(frozen=True)
class Prompts:
    """ids: (samples, length) int64, every row different. source: in words. real_text: not random ids."""

    ids: NDArray[np.int64]
    source: str
    real_text: bool


def make_prompts(
    tokenizer: Tokenizer | None, vocabulary: int, samples: int, length: int, seed: int, own: Path | None
) -> Prompts:
    """That many different prompts of exactly that length.

    own: the user's texts, one a line, cut to the length and taken in turn. Raises ConfigError where they are too short
    or there is no tokenizer for them, UsageError where our sentences cannot give so few tokens.
    """
    if own is not None:
        return _text_prompts(tokenizer, prompt_lines(own), length, own)
    if tokenizer is None:
        generator = np.random.default_rng([seed, length])
        ids = generator.integers(0, vocabulary, (samples, length), dtype=np.int64)
        return Prompts(ids, f"seeded random ids (seed {seed}): the model has no tokenizer here", real_text=False)
    ids = token_ids(tokenizer.encode, samples, length)
    if int(ids.max()) >= vocabulary:
        raise ConfigError(
            f"The tokenizer gives ids up to {ids.max()}, the model has {vocabulary} embeddings.",
            "Save the model's own tokenizer into its folder.",
        )
    return Prompts(ids, f"{SOURCE}; {tokenizer.source}", real_text=True)


def _text_prompts(tokenizer: Tokenizer | None, texts: list[str], length: int, path: Path) -> Prompts:
    if tokenizer is None:
        raise ConfigError(
            f"{path} has texts, and the model has no tokenizer here.",
            "Save its tokenizer into its folder, or give lengths: PROMPTS=128,1024.",
        )
    rows = [tokenizer.encode(text, length) for text in texts]
    short = next(((number, len(row)) for number, row in enumerate(rows, 1) if len(row) < length), None)
    if short is not None:
        raise ConfigError(
            f"{path}: prompt {short[0]} has {short[1]} tokens, and {length} are asked for.",
            "Give longer prompts, or a shorter length.",
        )
    ids = np.unique(np.asarray(rows, dtype=np.int64), axis=0)
    if len(ids) < 2:
        raise ConfigError(
            f"{path} gives {len(ids)} different prompt of {length} tokens, and two are needed.",
            "Prompts differ in every iteration: add lines.",
        )
    return Prompts(ids, f"{path.name}; {tokenizer.source}", real_text=True)
