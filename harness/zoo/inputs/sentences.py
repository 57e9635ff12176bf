"""Real text: windows over our own sentences, tokenised to exactly the requested length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError

_FILE = Path(__file__).with_name("sentences.txt")
Encode = Callable[[str, int], list[int]]
"""(text, longest length) → token ids with the model's special tokens, cut to that length."""
SOURCE = "English sentences written for this project (harness/zoo/inputs/sentences.txt)"


def sentences() -> list[str]:
    """The sentences, in order."""
    return _FILE.read_text(encoding="utf-8").split("\n")[:-1]


def token_ids(encode: Encode, samples: int, sequence_length: int) -> NDArray[np.int64]:
    """Token ids, int64 (samples, sequence_length): no padding, special tokens kept, every row different.

    Row i reads on from sentence i; after the last sentence, rows start again one word later. Raises UsageError where
    the requested length is too short for a word, or for that many different texts.
    """
    rows = [_row(encode, text, sequence_length) for text in passages(samples, sequence_length)]
    ids = np.asarray(rows, dtype=np.int64)
    if len(np.unique(ids, axis=0)) < samples:
        raise UsageError(
            f"{samples} different texts of {sequence_length} tokens could not be made.",
            "Ask for longer sequences, or for fewer `parity_samples`.",
        )
    return ids


def passages(samples: int, words: int) -> list[str]:
    """That many texts, each of at least that many words, for token_ids()."""
    texts = sentences()
    return [_passage(texts, index, words) for index in range(samples)]


def _passage(texts: list[str], index: int, length: int) -> str:
    first, words = index % len(texts), index // len(texts)
    opening = texts[first].split()[words:]
    # A word is at least one token, so `length` words are enough for any tokenizer.
    following = iter(texts[first + 1 :] + texts * (1 + length // 100))
    while len(opening) < length:
        opening += next(following).split()
    return " ".join(opening)


def _row(encode: Encode, text: str, length: int) -> list[int]:
    ids = encode(text, length)
    if len(ids) != length:
        raise UsageError(
            f"A sequence of {length} tokens cannot be made with this tokenizer (it gave {len(ids)}).",
            "Ask for a longer sequence.",
        )
    return ids
