"""Raw inputs: stored and read back, pictures prepared as the weights ask, answers from outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.core.schemas import ImagePreparation
from harness.zoo.inputs.images import (
    jpegs,
    photographs,
    pixels_of,
    usual_preparation,
)
from harness.zoo.inputs.preprocessing import (
    answer_of,
    load_samples,
    prepare_of,
    samples_in_memory,
    save_samples,
)

HALF = usual_preparation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), size=64)
FLOAT = {"pixels": np.dtype(np.float32)}


@pytest.mark.parametrize("items", [(b"a", b"", b"three"), (b"\x00\xff" * 500,), ("späte Äpfel".encode(), b"x")])
def test_samples_come_back_as_they_were_and_make_the_same_file(tmp_path: Path, items: tuple[bytes, ...]) -> None:
    save_samples(items, tmp_path / "one.npz")
    save_samples(items, tmp_path / "two.npz")
    assert load_samples(tmp_path / "one.npz") == list(items)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_jpegs_are_the_photographs_and_the_same_every_time() -> None:
    files = jpegs(6)
    assert files == jpegs(6)
    assert all(file.startswith(b"\xff\xd8") for file in files)
    direct = photographs(6, pixels_of(HALF))
    prepared = prepare_of(HALF, Path(), FLOAT, None)(samples_in_memory(files, HALF))["pixels"]
    assert prepared.shape == direct.shape
    assert prepared.dtype == np.float32
    assert prepared.flags.c_contiguous
    assert 0 < np.abs(prepared - direct).mean() < 0.02


def test_gray_and_transparent_pictures_become_three_channels(tmp_path: Path) -> None:
    for mode in ("L", "CMYK"):
        Image.new(mode, (80, 100)).save(tmp_path / "picture.jpg")
        item = (tmp_path / "picture.jpg").read_bytes()
        assert prepare_of(HALF, Path(), FLOAT, None)([item])["pixels"].shape == (1, 3, 64, 64)


def test_the_centre_is_cut_out_and_channels_are_normalised() -> None:
    how = ImagePreparation(resize=50, crop=20, resample="bilinear", mean=(0.0, 0.5, 1.0), std=(1.0, 0.5, 0.25))
    pixels = np.zeros((100, 200, 3), dtype=np.uint8)
    pixels[30:70, 80:120] = 255
    result = pixels_of(how)(Image.fromarray(pixels))
    assert result.shape == (3, 20, 20)
    assert np.allclose(result[:, 5:15, 5:15].reshape(3, -1).T, [1.0, 1.0, 0.0])


def test_top_five_are_the_likeliest_in_order_with_their_probabilities() -> None:
    logits = np.log(np.array([[1, 2, 30, 4, 5, 6, 52], [7, 6, 5, 4, 3, 2, 1]], dtype=np.float32)) + 900
    classes, probabilities = answer_of("top-5")({"logits": logits}, {})
    assert classes.tolist() == [[6, 2, 5, 4, 3], [0, 1, 2, 3, 4]]
    assert probabilities[0] == pytest.approx(np.array([52, 30, 6, 5, 4]) / 100, rel=1e-3)
    assert probabilities[1].sum() == pytest.approx(25 / 28, rel=1e-3)


def test_fewer_classes_than_five_are_all_named() -> None:
    classes, probabilities = answer_of("top-5")({"logits": np.array([[0.0, 3.0]], dtype=np.float32)}, {})
    assert classes.tolist() == [[1, 0]]
    assert probabilities.sum() == pytest.approx(1.0)


def test_an_embedding_is_the_mean_over_the_mask_at_length_one() -> None:
    hidden = np.array([[[3.0, 0.0], [3.0, 8.0], [99.0, 99.0]]], dtype=np.float32)
    result = answer_of("embedding")({"last_hidden_state": hidden}, {"attention_mask": np.array([[1, 1, 0]])})
    assert result == pytest.approx(np.array([[0.6, 0.8]]))


def test_the_next_token_is_the_likeliest() -> None:
    result = answer_of("next token")({"logits": np.array([[0.1, 0.9, 0.3], [2.0, 1.0, 0.0]], dtype=np.float32)}, {})
    assert result.tolist() == [1, 0]
