"""An output with as many values a sample as tokens, but not one for each token: a mask of padding would hide some."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.errors import ConfigError, ExportError
from harness.zoo.input_files import Arrays
from harness.zoo.reference import check_token_axes

TOKENS = 6
PADDED: Arrays = {
    "input_ids": np.arange(2 * TOKENS).reshape(2, TOKENS),
    "attention_mask": np.array([[1] * TOKENS, [1, 1, 0, 0, 0, 0]]),
}


def hidden(inputs: Arrays) -> Arrays:
    return {"y": np.repeat(inputs["input_ids"][:, :, None].astype(np.float32), 3, axis=2)}


def latents(inputs: Arrays) -> Arrays:
    return {"y": np.ones((len(inputs["input_ids"]), TOKENS, 3), np.float32)}


def of_one_length(inputs: Arrays) -> Arrays:
    if inputs["input_ids"].shape[1] != TOKENS:
        raise ConfigError("It takes six tokens.", "Give six.")
    return latents(inputs)


def test_an_output_that_does_not_follow_the_tokens_is_refused() -> None:
    with pytest.raises(ExportError, match="Output `y` of m has 6 values for each sample at any length") as caught:
        check_token_axes("m", latents, PADDED, latents(PADDED), None)
    assert caught.value.hint == "Give inputs of another length (SEQ_LENGTHS=…), or inputs without padding."


def test_an_output_of_tokens_is_right_and_one_without_padding_is_not_asked() -> None:
    check_token_axes("m", hidden, PADDED, hidden(PADDED), None)
    check_token_axes("m", hidden, PADDED, hidden(PADDED), 2)
    whole = {**PADDED, "attention_mask": np.ones((2, TOKENS), np.int64)}
    check_token_axes("m", latents, whole, latents(whole), None)


def test_a_model_of_one_length_is_judged_by_its_shapes() -> None:
    check_token_axes("m", of_one_length, PADDED, of_one_length(PADDED), None)
