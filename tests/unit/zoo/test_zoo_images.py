"""Photographs through a preprocessing: different, deterministic, normalised."""

from __future__ import annotations

import numpy as np
from PIL import Image

from harness.zoo.inputs.images import photographs, preprocessing


def test_photographs_differ_and_repeat() -> None:
    prepare = preprocessing((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), size=32)
    first, second = photographs(24, prepare), photographs(24, prepare)
    assert first.shape == (24, 3, 32, 32)
    assert first.dtype == np.float32
    assert (first == second).all()
    assert len({image.tobytes() for image in first}) == 24


def test_fewer_photographs_are_the_first_of_more() -> None:
    prepare = preprocessing((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), size=16)
    assert (photographs(4, prepare) == photographs(9, prepare)[:4]).all()


def test_preprocessing_normalises_by_channel() -> None:
    picture = Image.new("RGB", (300, 200), (255, 127, 0))
    pixels = preprocessing((127 / 255,) * 3, (128 / 255,) * 3, size=64)(picture)
    assert pixels.shape == (3, 64, 64)
    assert np.allclose(pixels.reshape(3, -1).T, [1.0, 0.0, -127 / 128])


def test_preprocessing_crops_the_centre() -> None:
    pixels = np.zeros((100, 200, 3), dtype=np.uint8)
    pixels[:, 50:150] = 255
    prepared = preprocessing((0.0,) * 3, (1.0,) * 3, size=56)(Image.fromarray(pixels))
    assert prepared.min() == 1.0
