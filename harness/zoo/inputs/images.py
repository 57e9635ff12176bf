"""Real images: crops of scikit-learn's two sample photographs, different from each other and the same every time."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from harness.core.errors import UnavailableError
from harness.core.schemas import ImagePreparation

_SEED = 7
"""Of the crops only; independent of the measurement's seed, so that a new seed does not change the inputs."""

_QUALITY = 95
"""A camera's, rather than a web page's: the decoded picture stays close to the original."""

Channels = tuple[float, float, float]

SOURCE = "crops and flips of scikit-learn's sample photographs china.jpg and flower.jpg"


def photographs(samples: int, preprocess: Callable[[Image.Image], NDArray[np.float32]]) -> NDArray[np.float32]:
    """`samples` different photographs through a model's own preprocessing, float32 (samples, 3, height, width)."""
    return np.stack([preprocess(picture) for picture in pictures(samples)])


def jpegs(samples: int) -> tuple[bytes, ...]:
    """The photographs of photographs() as JPEG files."""
    return tuple(_jpeg(picture) for picture in pictures(samples))


def preprocessing(mean: Channels, std: Channels, size: int) -> Callable[[Image.Image], NDArray[np.float32]]:
    """The usual ImageNet evaluation, as a function of a picture."""
    return pixels_of(usual_preparation(mean, std, size))


def usual_preparation(mean: Channels, std: Channels, size: int) -> ImagePreparation:
    """The usual ImageNet evaluation: short side to size / 0.875 (256 for 224), centre crop, 0…1, normalise.

    `mean` and `std` are by channel, in units of the 0…1 scale.
    """
    return ImagePreparation(resize=round(size / 0.875), crop=size, resample="bicubic", mean=mean, std=std)


def pixels_of(how: ImagePreparation) -> Callable[[Image.Image], NDArray[np.float32]]:
    """RGB picture → float32 (3, crop, crop), step by step as torchvision's ImageClassification preset does it."""
    resample = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}[how.resample]
    mean, std = np.asarray(how.mean, dtype=np.float32), np.asarray(how.std, dtype=np.float32)

    def apply(picture: Image.Image) -> NDArray[np.float32]:
        short = min(picture.size)
        # torchvision cuts the long side to whole pixels (transforms/functional.py, _compute_resized_output_size) …
        width, height = (int(how.resize * extent / short) for extent in picture.size)
        resized = picture.resize((width, height), resample)
        # … and rounds the margins half to even (center_crop).
        left, top = round((width - how.crop) / 2), round((height - how.crop) / 2)
        cut = resized.crop((left, top, left + how.crop, top + how.crop))
        pixels = np.asarray(cut, dtype=np.float32) / np.float32(255)
        normalised: NDArray[np.float32] = (pixels - mean) / std
        return np.ascontiguousarray(normalised.transpose(2, 0, 1))

    return apply


IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Channel statistics of ImageNet's training set, as torchvision documents them."""


def pictures(samples: int) -> Iterator[Image.Image]:
    """`samples` different pictures, as a camera has them."""
    originals = _originals()
    random = np.random.default_rng(_SEED)
    for index in range(samples):
        yield _crop(originals[index % len(originals)], index < len(originals), random)


def _jpeg(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, format="JPEG", quality=_QUALITY)
    return file.getvalue()


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
