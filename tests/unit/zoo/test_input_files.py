"""Arrays on disk, whatever the model calls its tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.zoo.input_files import read_arrays, write_arrays


@pytest.mark.parametrize("name", ["file", "allow_pickle", "model/in:0", "a.b", "x.npy", "my input", "modèle"])
def test_no_name_of_a_tensor_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    write_arrays(path, {name: np.arange(6).reshape(2, 3), "other": np.ones((2, 1), np.float16)})
    arrays = read_arrays(path)
    assert set(arrays) == {name, "other"}
    assert np.array_equal(arrays[name], np.arange(6).reshape(2, 3))
    assert arrays["other"].dtype == np.float16
