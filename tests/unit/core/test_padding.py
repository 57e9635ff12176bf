"""Which tokens an attention mask shows, and what is no such mask: then everything is compared."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.padding import applies, cut, mask_of

PADDED = [[1, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("kind", ["int64", "int32", "bool", "uint8"])
def test_a_padded_batch_has_a_mask_of_its_own(kind: str) -> None:
    given = np.array(PADDED, dtype=kind)
    mask = mask_of({"input_ids": np.ones((2, 3)), "attention_mask": given})
    assert mask is not None
    assert (mask.dtype, mask.tolist()) == (np.bool_, [[True, True, False], [True, False, False]])
    given[:] = 0
    assert mask.sum() == 3, "a backend that writes into its inputs must not hide its answers"


@pytest.mark.parametrize(
    "mask",
    [
        np.ones((2, 3), np.int64),
        np.zeros((2, 3), np.int64),
        np.array([[1, 2, 0], [1, 1, 1]]),
        np.array([[0, -1, 0], [0, 0, 0]]),
        np.array(PADDED, np.float32),
        np.array([1, 0, 1]),
        np.zeros((2, 1, 3, 3), np.int64),
    ],
    ids=["no padding", "samples without tokens", "a 2", "added to scores", "floats", "one axis", "four axes"],
)
def test_an_input_that_is_no_mask_of_padding_hides_nothing(mask: np.ndarray) -> None:  # type: ignore[type-arg]
    assert mask_of({"attention_mask": mask}) is None


def test_a_sample_without_tokens_is_compared_whole_and_the_others_as_their_mask_shows() -> None:
    mask = mask_of({"attention_mask": np.array([[1, 1, 0], [0, 0, 0]])})
    assert mask is not None
    assert mask.tolist() == [[True, True, False], [True, True, True]]


def test_inputs_are_cut_with_their_mask_and_others_stay() -> None:
    ids, pixels = np.arange(6).reshape(2, 3), np.ones((2, 4))
    mask = np.array(PADDED, dtype=bool)[:, ::-1]
    shorter = cut({"ids": ids, "pixels": pixels, "attention_mask": mask.astype(np.int64)}, mask, 2)
    assert {name: values.tolist() for name, values in shorter.items()} == {
        "ids": [[0, 1], [3, 4]],
        "pixels": pixels.tolist(),
        "attention_mask": [[1, 1], [1, 1]],
    }
    assert shorter["attention_mask"].dtype == np.int64


def test_inputs_without_a_mask_have_none() -> None:
    assert mask_of({"mask": np.array(PADDED)}) is None
    assert mask_of({}) is None


def test_only_values_of_tokens_are_hidden() -> None:
    mask = np.array(PADDED, dtype=bool)
    assert [applies(mask, shape) for shape in ((2, 3, 8), (2, 3, 4, 4), (2, 3), (2, 8), (2, 4, 3), (3, 3, 8), ())] == [
        True,
        True,
        False,  # an embedding of three numbers, or logits of three classes
        False,
        False,
        False,
        False,
    ]
    assert not applies(None, (2, 3, 8))
