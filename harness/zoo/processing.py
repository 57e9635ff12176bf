"""A model's own processor of pictures or sounds, by the transformers library, from the files of its export."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import UnavailableError
from harness.core.schemas import ProcessorPreparation
from harness.zoo.loaded import Arrays
from harness.zoo.sounds import decoded


def processor_of(how: ProcessorPreparation, folder: Path, name: str) -> Callable[[Sequence[Any]], Arrays]:
    """Items (JPEG or WAV files, or pictures) → the input `name`. Raises UnavailableError without transformers."""
    try:
        import transformers  # noqa: PLC0415 - seconds, and only these models need it
    except ImportError as error:
        raise UnavailableError(
            "The transformers library is not installed here, whose processor prepares this model's inputs.",
            "Leave `boundaries: [e2e]` out for this backend, or install transformers for its Python.",
        ) from error
    place = (folder / how.processor.path).parent
    if how.media == "image":
        pictures = transformers.AutoImageProcessor.from_pretrained(place, backend="pil", local_files_only=True)
        return lambda items: _one(pictures(images=[_picture(item) for item in items], return_tensors="np"), name)
    sounds = transformers.AutoFeatureExtractor.from_pretrained(place, local_files_only=True)
    rate = int(getattr(sounds, "sampling_rate", 16_000))

    def prepare(items: Sequence[Any]) -> Arrays:
        return _one(sounds([decoded(item) for item in items], sampling_rate=rate, return_tensors="np"), name)

    return prepare


def _picture(item: Any) -> Any:
    from PIL import Image  # noqa: PLC0415 - only images need it

    return Image.open(io.BytesIO(item)).convert("RGB") if isinstance(item, bytes) else item


def _one(prepared: Any, name: str) -> Arrays:
    return {name: np.ascontiguousarray(prepared[name], dtype=np.float32)}
