"""Real text at an exact length, with a tokenizer of one token a word."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.errors import UsageError
from harness.zoo.inputs.sentences import sentences, token_ids

WORDS: dict[str, int] = {}
START, END = 0, 1


def encode(text: str, length: int) -> list[int]:
    ids = [WORDS.setdefault(word, 2 + len(WORDS)) for word in text.split()]
    return [START, *ids[: length - 2], END]


def test_sentences_are_many_and_all_different() -> None:
    results = sentences()
    assert len(results) >= 80
    assert len(set(results)) == len(results)
    assert all(text == text.strip() and text.endswith(".") for text in results)


@pytest.mark.parametrize(("samples", "length"), [(64, 8), (64, 128), (3, 512), (250, 128)])
def test_rows_have_the_length_keep_special_tokens_and_differ(samples: int, length: int) -> None:
    ids = token_ids(encode, samples, length)
    assert ids.shape == (samples, length)
    assert ids.dtype == np.int64
    assert (ids[:, 0] == START).all()
    assert (ids[:, -1] == END).all()
    assert len(np.unique(ids, axis=0)) == samples


def test_rows_are_the_same_every_time() -> None:
    assert (token_ids(encode, 16, 32) == token_ids(encode, 16, 32)).all()


def test_rows_read_on_into_the_next_sentence() -> None:
    ids = token_ids(encode, 1, 64)
    expected = encode(" ".join(sentences()[:10]), 64)
    assert ids[0].tolist() == expected


def test_too_short_for_different_texts_is_an_error() -> None:
    with pytest.raises(UsageError) as caught:
        token_ids(encode, 64, 3)
    assert "64 different texts of 3 tokens" in caught.value.problem
    assert "longer" in caught.value.hint


def test_a_tokenizer_that_cannot_fill_the_length_is_an_error() -> None:
    with pytest.raises(UsageError):
        token_ids(lambda text, length: [0] * (length - 1), 8, 16)
