"""transformers' models of pictures and sounds: one input tensor, one output; the model's own processor prepares."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from harness.core.errors import ConfigError
from harness.core.layout import ModelFolder
from harness.core.schemas import Answer, ProcessorPreparation
from harness.zoo.construct import frozen
from harness.zoo.export_request import artifact
from harness.zoo.families import hub
from harness.zoo.families.hub_kind import PROCESSOR, Media
from harness.zoo.inputs import images, sounds
from harness.zoo.inputs.preprocessing import processor_of
from harness.zoo.loaded import Inputs, Loaded, Raw, Request

_HEADS: Mapping[str, tuple[str, Answer, str]] = {
    "ForImageClassification": ("AutoModelForImageClassification", "top-5", "logits"),
    "ForImageClassificationWithTeacher": ("AutoModelForImageClassification", "top-5", "logits"),
    "ForSemanticSegmentation": ("AutoModelForSemanticSegmentation", "outputs", "logits"),
    "ForDepthEstimation": ("AutoModelForDepthEstimation", "outputs", "predicted_depth"),
    "ForAudioClassification": ("AutoModelForAudioClassification", "top-5", "logits"),
    "ForSequenceClassification": ("AutoModelForAudioClassification", "top-5", "logits"),
    "ForCTC": ("AutoModelForCTC", "outputs", "logits"),
}
"""By the end of the architecture's name: the library's class, the answer, and the output's name."""


class FirstOutput(nn.Module):
    """One tensor → the model's first output."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(batch, …), as the processor gives it."""
        tensor: torch.Tensor = self.model(values, return_dict=True)[0]
        return tensor


def load(config: Any, media: Media, origin: str | None, request: Request) -> Loaded:
    """A model of pictures or sounds, with its configuration and processor saved into the folder.

    Raises HubError where the weights or the processor cannot be read, ConfigError where the model needs more tensors.
    """
    auto, answer, output = _class_of(config)
    processor = hub.processor(media, origin, request)
    if request.weights == "pretrained":
        model, source = hub.weights(auto, origin, request, {}), request.info.weight_source
    else:
        torch.manual_seed(request.seed)
        model, source = auto.from_config(config), f"random, seed {request.seed}"
    config.save_pretrained(request.folder)
    processor.save_pretrained(ModelFolder(request.folder).processor)
    name = str(model.main_input_name)
    prepare = functools.partial(_raw, media, answer, request.folder)
    return Loaded(
        module=frozen(FirstOutput(model)),
        weight_source=source,
        classifier=answer == "top-5",
        input_names=(name,),
        output_names=(output,),
        make_inputs=functools.partial(_inputs, media, name, request.folder),
        make_raw=prepare,
        input_types={name: np.dtype(np.float32)},
        kind="image" if media == "image" else "tensor",
    )


def architecture(config: Any) -> nn.Module:
    """The model without weights."""
    from transformers.initialization import no_init_weights  # noqa: PLC0415

    auto, _, _ = _class_of(config)
    with no_init_weights():
        model = auto.from_config(config)
    model.tie_weights()
    return FirstOutput(model)


def _class_of(config: Any) -> tuple[Any, Answer, str]:
    import transformers  # noqa: PLC0415 - seconds, and only these models need it

    name = (getattr(config, "architectures", None) or [""])[0]
    head_class = next((head for end, head in _HEADS.items() if name.endswith(end)), None)
    if head_class is not None:
        return getattr(transformers, head_class[0]), head_class[1], head_class[2]
    if getattr(config, "is_encoder_decoder", False) or "For" in name:
        raise ConfigError(
            f"A {name or config.model_type} takes more than one tensor, or answers with more than one.",
            "Choose a classifier, an encoder, CTC, segmentation or depth, or wrap it: `module:<path>:<function>`.",
        )
    return transformers.AutoModel, "outputs", "last_hidden_state"


def _inputs(media: Media, name: str, folder: Path, samples: int, sequence_length: int | None) -> Inputs:
    del sequence_length
    prepare = processor_of(_preparation(media, folder), folder, name)
    if media == "image":
        arrays = prepare(list(images.pictures(samples)))
        return Inputs(arrays, f"{images.SOURCE}; the model's own processor")
    return Inputs(
        prepare(sounds.wav_files(samples, sounds.rate_of(folder))), f"{sounds.SOURCE}; the model's own processor"
    )


def _raw(media: Media, answer: Answer, folder: Path, samples: int, sequence_length: int | None) -> Raw:
    del sequence_length
    how = _preparation(media, folder)
    files = images.jpegs(samples) if media == "image" else sounds.wav_files(samples, sounds.rate_of(folder))
    return Raw(tuple(files), how, answer)


def _preparation(media: Media, folder: Path) -> ProcessorPreparation:
    saved = ModelFolder(folder).processor / PROCESSOR
    entry = artifact(saved).model_copy(update={"path": f"{saved.parent.name}/{PROCESSOR}"})
    return ProcessorPreparation(media="image" if media == "image" else "audio", processor=entry)
