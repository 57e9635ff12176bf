"""Real images: crops of scikit-learn's two sample photographs, different from each other and the same every time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from harness.core.errors import UnavailableError

_SEED = 7
"""Of the crops only; apart from the measurement's seed, so that the inputs stay what they are when that changes."""

SOURCE = "crops and flips of scikit-learn's sample photographs china.jpg and flower.jpg"


def photographs(samples: int, preprocess: Callable[[Image.Image], NDArray[np.float32]]) -> NDArray[np.float32]:
    """`samples` different photographs through a model's own preprocessing, float32 (samples, 3, height, width)."""
    originals = _originals()
    random = np.random.default_rng(_SEED)
    crops = (_crop(originals[index % len(originals)], index < len(originals), random) for index in range(samples))
    return np.stack([preprocess(crop) for crop in crops])


def preprocessing(
    mean: tuple[float, float, float], std: tuple[float, float, float], size: int, margin: float = 0.875
) -> Callable[[Image.Image], NDArray[np.float32]]:
    """The usual ImageNet evaluation: resize the short side to size / margin, centre crop, scale to 0…1, normalise.

    `mean` and `std` are by channel, in units of the 0…1 scale; margin 0.875 is 224 of 256 pixels.
    """

    mean_of, std_of = np.asarray(mean, dtype=np.float32), np.asarray(std, dtype=np.float32)

    def apply(picture: Image.Image) -> NDArray[np.float32]:
        scale = round(size / margin) / min(picture.size)
        width, height = (round(extent * scale) for extent in picture.size)
        resized = picture.resize((width, height), Image.Resampling.BICUBIC)
        left, top = (width - size) // 2, (height - size) // 2
        pixels = np.asarray(resized.crop((left, top, left + size, top + size)), dtype=np.float32) / np.float32(255)
        normalised: NDArray[np.float32] = (pixels - mean_of) / std_of
        return normalised.transpose(2, 0, 1)

    return apply


IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Channel statistics of ImageNet's training set, as torchvision documents them."""


def _crop(photograph: Image.Image, whole: bool, random: np.random.Generator) -> Image.Image:
    """A square of 50 to 100% of the height somewhere in the picture, flipped half of the time.

    The first pass over the photographs shows them as they are, so that their labels can be recognised.
    """
    if whole:
        return photograph
    side = int(photograph.height * random.uniform(0.5, 1.0))
    left = int(random.integers(0, photograph.width - side + 1))
    top = int(random.integers(0, photograph.height - side + 1))
    square = photograph.crop((left, top, left + side, top + side))
    return square.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else square


def _originals() -> list[Image.Image]:
    try:
        from sklearn.datasets import load_sample_images  # noqa: PLC0415 - slow, and only export needs it
    except ImportError as error:
        raise UnavailableError(
            "scikit-learn is not installed; its sample photographs are the image inputs.",
            "Install it: `pip install scikit-learn`.",
        ) from error
    return [Image.fromarray(picture) for picture in load_sample_images().images]
