"""torchvision's classifiers: published or random weights, inputs through the weights' own transforms."""

from __future__ import annotations

import functools
import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from harness.core.errors import ConfigError, HubError
from harness.core.schemas import ImagePreparation
from harness.core.text import unknown_name
from harness.zoo import ModelInfo
from harness.zoo.construct import Uninitialised, frozen_module, seeded_module
from harness.zoo.families.hub import tensors_only
from harness.zoo.inputs.images import SOURCE, jpegs, photographs
from harness.zoo.loaded import Inputs, Loaded, Raw, Request


def load(request: Request) -> Loaded:
    """A torchvision classifier. Raises HubError where weights cannot be fetched, ConfigError for an unknown name."""
    weights = published_weights(request.info.reference)
    if request.weights == "pretrained":
        module = architecture(request.info, request.folder)
        module.load_state_dict(_download(weights, request))
        source = f"{request.info.weight_source}, {weights}"
    else:
        build = functools.partial(_network, request.info.reference)
        module, source = seeded_module(build, request.seed, functools.partial(_pixels, weights))
    return Loaded(
        module=frozen_module(module),
        weight_source=source,
        classifier=True,
        input_names=("pixel_values",),
        output_names=("logits",),
        make_inputs=functools.partial(_inputs, weights),
        make_raw=functools.partial(_raw, weights),
    )


def architecture(info: ModelInfo, folder: Path) -> nn.Module:
    """The network without weights; it needs only torchvision's code."""
    del folder
    with Uninitialised():
        return _network(info.reference)


def _network(name: str) -> nn.Module:
    from torchvision import models  # noqa: PLC0415 - seconds, and only these models need it

    # GoogLeNet and Inception would initialise with SciPy for half a minute and return auxiliary outputs while training.
    options = {"init_weights": True} if name in {"googlenet", "inception_v3"} else {}
    network: nn.Module = models.get_model(name, weights=None, **options)
    return network


def published_weights(name: str) -> Any:
    """The enum entry of the best published weights: where they are, and how their inputs are prepared."""
    from torchvision import models  # noqa: PLC0415

    classifiers = models.list_models(module=models)
    if name not in classifiers:
        raise ConfigError(*unknown_name("torchvision classifier", name, classifiers))
    return models.get_model_weights(name).DEFAULT


def _download(weights: Any, request: Request) -> dict[str, torch.Tensor]:
    folder = None if request.cache is None else str(request.cache / "torch" / "checkpoints")
    try:
        with tensors_only(request.info.name):
            state: dict[str, torch.Tensor] = torch.hub.load_state_dict_from_url(
                weights.url, model_dir=folder, map_location="cpu", progress=False, check_hash=True, weights_only=True
            )
    except (urllib.error.URLError, OSError, RuntimeError) as error:
        raise HubError(
            f"The pretrained weights of {request.info.name} could not be fetched from {weights.url}: {error}",
            f"Set `weights: seeded` for {request.info.name}, or put the file into torch's checkpoint folder.",
        ) from error
    return state


def _inputs(weights: Any, samples: int, sequence_length: int | None) -> Inputs:
    del sequence_length  # an image has none
    return Inputs({"pixel_values": _pixels(weights, samples)}, f"{SOURCE}; transforms of {weights}")


def _raw(weights: Any, samples: int, sequence_length: int | None) -> Raw:
    del sequence_length
    return Raw(jpegs(samples), preparation_of(weights), "top-5")


def preparation_of(weights: Any) -> ImagePreparation:
    """The weights' own transforms as plain numbers, so that a case needs no torchvision to apply them."""
    preset = weights.transforms()
    return ImagePreparation(
        resize=preset.resize_size[0],
        crop=preset.crop_size[0],
        resample=preset.interpolation.value,
        mean=tuple(preset.mean),
        std=tuple(preset.std),
    )


def _pixels(weights: Any, samples: int) -> NDArray[np.float32]:
    transform = weights.transforms()

    def preprocess(picture: Image.Image) -> NDArray[np.float32]:
        pixels: NDArray[np.float32] = transform(picture).numpy()
        return pixels

    return photographs(samples, preprocess)
