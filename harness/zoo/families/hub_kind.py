"""The kind of input of a transformers model, from its saved files alone: no library is imported to plan."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from harness.core.errors import MalformedFileError
from harness.core.safe_files import Limit, read, read_text

Media = Literal["text", "image", "audio"]

PROCESSOR = "preprocessor_config.json"
_IMAGES = ("image_processor_type", "image_mean", "crop_size")
_OF_IMAGES = ("image_size", "num_channels")
_OF_SOUNDS = ("num_mel_bins", "feat_extract_norm", "feat_extract_activation", "sampling_rate")
_OF_TEXT = "max_position_embeddings"
"""Not vocab_size: BEiT has it too, for image patches."""


def media_of(reference: str) -> Media:
    """Of a folder, or of a hub id whose configuration is in the hub's cache; text where neither says."""
    folder = folder_of(reference)
    if folder is None:
        return "text"
    return media(_json(folder / "config.json"), _json(folder / PROCESSOR))


def media(config: Mapping[str, Any], processor: Mapping[str, Any]) -> Media:
    """The kind of input, from a model's configuration and its preprocessor's.

    >>> media({"architectures": ["ViTForImageClassification"], "image_size": 224, "num_channels": 3}, {})
    'image'
    >>> media({"vocab_size": 32, "feat_extract_norm": "group"}, {"sampling_rate": 16000})
    'audio'
    >>> media({"architectures": ["BeitModel"], "vocab_size": 8192, "image_size": 224}, {})
    'image'
    >>> media({"vocab_size": 30522, "max_position_embeddings": 512}, {})
    'text'
    """
    if "sampling_rate" in processor or any(key in config for key in _OF_SOUNDS):
        return "audio"
    pictures = any(key in processor for key in _IMAGES) or any(key in config for key in _OF_IMAGES)
    return "image" if pictures and _OF_TEXT not in config else "text"


def folder_of(reference: str) -> Path | None:
    """The folder itself, or the hub's cache of that id; None where there is neither."""
    if Path(reference).is_dir():
        return Path(reference)
    home = Path(
        os.environ.get("HF_HOME", Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "huggingface"))
    )
    cached = Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / f"models--{reference.replace('/', '--')}"
    main = cached / "refs" / "main"
    try:
        return cached / "snapshots" / read_text(main, Limit.TEXT).strip()
    except (OSError, UnicodeDecodeError, MalformedFileError):
        return None


def _json(path: Path) -> Mapping[str, Any]:
    """Empty where the file is missing or damaged; the export reports that."""
    try:
        content = json.loads(read(path, Limit.TEXT))
    except (OSError, ValueError, MalformedFileError):
        return {}
    return content if isinstance(content, dict) else {}
