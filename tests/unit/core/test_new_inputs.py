"""New samples that an export makes of its stored ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.new_inputs import new_samples

SAMPLES = 12


def stored() -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(0)
    mask = np.ones((SAMPLES, 6), np.int64)
    mask[:, 4:] = 0
    return {
        "ids": random.integers(1, 1000, (SAMPLES, 6)) * mask,
        "attention_mask": mask,
        "pixels": random.normal(size=(SAMPLES, 2, 3)).astype(np.float32),
        "table": np.tile(np.linspace(0, 1, 5, dtype=np.float32), (SAMPLES, 1)),
    }


def test_each_of_the_first_samples_has_a_new_one_that_equals_none() -> None:
    arrays = stored()
    made = new_samples(arrays, 8, np.random.default_rng(1))
    assert made is not None
    assert {name: (values.shape, values.dtype) for name, values in made.items()} == {
        name: ((8, *values.shape[1:]), values.dtype) for name, values in arrays.items()
    }
    for name in ("ids", "pixels"):
        rows = {values.tobytes() for values in (*arrays[name], *made[name])}
        assert len(rows) == SAMPLES + 8
    assert np.isin(made["ids"], arrays["ids"]).all()


def test_masks_padding_and_inputs_that_all_samples_share_stay() -> None:
    arrays = stored()
    made = new_samples(arrays, 8, np.random.default_rng(1))
    assert made is not None
    for name in ("attention_mask", "table"):
        assert np.array_equal(made[name], arrays[name][:8])
    assert not made["ids"][:, 4:].any()


def test_samples_that_are_alike_give_no_new_one() -> None:
    assert new_samples({"x": np.tile(np.arange(5.0), (SAMPLES, 1))}, 8, np.random.default_rng(1)) is None
    assert new_samples({"mask": np.eye(SAMPLES)}, 8, np.random.default_rng(1)) is None
    assert new_samples({name: values[:1] for name, values in stored().items()}, 8, np.random.default_rng(1)) is None
