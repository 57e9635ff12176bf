"""timm's image models, `timm:<name>`: their weights and preprocessing by the optional package timm."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from harness.core.errors import ConfigError, HubError, InferometerError, UnavailableError, reason
from harness.core.schemas import ImagePreparation
from harness.core.text import unknown_name
from harness.zoo import ModelInfo
from harness.zoo.construct import Uninitialised, frozen_module, seeded_module
from harness.zoo.families.hub import tensors_only
from harness.zoo.inputs.images import (
    SOURCE,
    jpegs,
    photographs,
    pixels_of,
)
from harness.zoo.loaded import Inputs, Loaded, Raw, Request
from harness.zoo.quiet import quiet


def load(request: Request) -> Loaded:
    """A timm model. Raises UnavailableError without timm, ConfigError for an unknown name, HubError without weights."""
    name = request.info.reference
    library = _timm()
    if not library.is_model(name):
        raise ConfigError(*unknown_name("timm model", name, library.list_models()))
    how = _preparation(library, name)
    if request.weights == "pretrained":
        module, source = _pretrained(library, request), f"{request.info.weight_source}, {name}"
    else:
        build = functools.partial(library.create_model, name)
        module, source = seeded_module(build, request.seed, functools.partial(_pixels, how))
    classes = int(getattr(module, "num_classes", 0))
    return Loaded(
        module=frozen_module(module),
        weight_source=source,
        classifier=classes > 0,
        input_names=("pixel_values",),
        output_names=("logits" if classes else "features",),
        make_inputs=functools.partial(_inputs, how, name),
        make_raw=functools.partial(_raw, how, classes > 0),
        input_types={"pixel_values": np.dtype(np.float32)},
    )


def architecture(info: ModelInfo, folder: Path) -> nn.Module:
    """The network without weights; it needs only timm's code."""
    del folder
    with Uninitialised():
        module: nn.Module = _timm().create_model(info.reference)
    return module


def _timm() -> ModuleType:
    try:
        import timm  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise UnavailableError(
            "timm is not installed, which models named `timm:<name>` come from.",
            "Install it where the stages run: `pip install 'inferometer[timm]'`; in an image it is not.",
        ) from error
    return timm


def _pretrained(library: ModuleType, request: Request) -> nn.Module:
    name = request.info.reference
    cache = {} if request.cache is None else {"cache_dir": request.cache}
    try:
        with quiet(), tensors_only(request.info.name):
            module: nn.Module = library.create_model(name, pretrained=True, **cache)
    except InferometerError:
        raise
    except Exception as error:  # timm, the hub's client and the network may raise anything
        raise HubError(
            f"The pretrained weights of {request.info.name} could not be fetched: {reason(error)}",
            f"Set `weights: seeded` for it (MODELS={request.info.name}@seeded), or run once where the hub is in reach.",
        ) from error
    return module


def _preparation(library: ModuleType, name: str) -> ImagePreparation:
    """The preprocessing of the model's own evaluation. Raises ConfigError for anything but a square RGB picture."""
    config: Mapping[str, Any] = library.data.resolve_data_config(
        {}, pretrained_cfg=library.get_pretrained_cfg(name).to_dict(), use_test_size=False
    )
    channels, height, width = config["input_size"]
    if channels != 3 or height != width or config.get("crop_mode", "center") != "center":
        raise ConfigError(
            f"timm:{name} takes {channels} x {height} x {width}, cropped as `{config.get('crop_mode')}`, and no "
            "square RGB pictures from the centre.",
            "Wrap it in a function with example inputs: `module:<python path>:<function>`.",
        )
    return ImagePreparation(
        resize=math.floor(height / config["crop_pct"]),
        crop=height,
        resample="bicubic" if config["interpolation"] == "bicubic" else "bilinear",
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )


def _pixels(how: ImagePreparation, samples: int) -> NDArray[np.float32]:
    return photographs(samples, pixels_of(how))


def _inputs(how: ImagePreparation, name: str, samples: int, sequence_length: int | None) -> Inputs:
    del sequence_length  # an image has none
    return Inputs({"pixel_values": _pixels(how, samples)}, f"{SOURCE}; as timm prepares them for {name}")


def _raw(how: ImagePreparation, classifier: bool, samples: int, sequence_length: int | None) -> Raw:
    del sequence_length
    return Raw(jpegs(samples), how, "top-5" if classifier else "outputs")
