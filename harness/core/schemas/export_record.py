"""export.json and engines/<name>.json: the files that `export` and `engines` made for one model."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from harness.core.schemas.raw_record import Parity
from harness.core.schemas.vocabulary import (
    Boundary,
    FileName,
    Kind,
    MessageText,
    Precision,
    Record,
    RelativePath,
    Weights,
)


class Artifact(Record):
    """A file below the model's folder."""

    path: RelativePath
    sha256: str
    size_bytes: int


class OnnxArtifact(Artifact):
    exporter: str
    opset: int
    dtype_census: dict[str, int]
    """Number of weight elements by ONNX element type, which shows the real precision of the file."""
    value_census: dict[str, int] = {}
    """For a file without floating-point weights: number of its nodes' output tensors by element type, without casts and
    constants."""
    external_data: Artifact | None = None
    """Weights in a separate file beside it, where one file would exceed protobuf's limit of 2 GiB."""
    quantisation: str | None = None
    """How an int8 file was quantised, and its calibration data, in words; None for other files."""

    def files(self) -> tuple[Artifact, ...]:
        """The file, and the file of its weights where there is one."""
        return (self,) if self.external_data is None else (self, self.external_data)


class TensorSpec(Record):
    """One input or output; a string dimension is dynamic and names its axis (`batch`, `sequence`)."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    batch_axis: int | None = 0
    """The batch axis; None for one that all samples share. Stored arrays have it first."""


class ImagePreparation(Record):
    """JPEG bytes → float32 (3, crop, crop): decode, resize the short side, cut the centre, scale to 0…1, normalise."""

    kind: Literal["image"] = "image"
    resize: Annotated[int, Field(ge=1)]
    crop: Annotated[int, Field(ge=1)]
    resample: Literal["bilinear", "bicubic"]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class TextPreparation(Record):
    """Text → token ids with special tokens, cut to the set's sequence length, and their attention mask."""

    kind: Literal["text"] = "text"
    tokenizer: Artifact
    """The model's own, as the `tokenizers` library reads it."""


class ProcessorPreparation(Record):
    """JPEG or WAV files → the output of the model's own processor of the transformers library."""

    kind: Literal["processor"] = "processor"
    media: Literal["image", "audio"]
    processor: Artifact
    """The configuration file of the processor."""


Preparation = Annotated[ImagePreparation | TextPreparation | ProcessorPreparation, Field(discriminator="kind")]
Answer = Literal["top-5", "embedding", "next token", "outputs"]
"""Result of post-processing: the five most likely classes, a sentence embedding, the next token, or the unchanged
outputs."""


class RawInputs(Record):
    """The samples of an input set as a caller has them, for the e2e boundary."""

    items: Artifact
    """UTF-8 texts, JPEG or WAV files, one after the other (harness/zoo/inputs/preprocessing.py)."""
    reference: Artifact
    """fp32 reference outputs for these samples, prepared as the case prepares them."""
    preparation: Preparation
    answer: Answer


class NewSamples(Record):
    """A new sample for each of the first samples of an input set, and the fp32 reference outputs for them."""

    inputs: Artifact
    reference: Artifact


class InputSet(Record):
    """Real inputs of one sequence length (None for images) and the fp32 reference outputs for them."""

    sequence_length: int | None
    samples: int
    inputs: Artifact
    reference: Artifact
    source: str
    """Origin of the inputs, in words."""
    complete: bool = False
    """True where these are all the samples that the user gave: then fewer than the plan asks for are enough."""
    raw: RawInputs | None = None
    """None where no e2e case asked for them, or the model's preprocessing is unknown."""
    exchanged: Parity | None = None
    """Distance of the reference from itself where each sample has the answer of the sample before it, of the output
    with the smallest one: a comparison cannot distinguish what is near enough there from a wrong answer. None for one
    sample, and in older records."""
    new: NewSamples | None = None
    new_missing: str | None = None
    """Why there are no new samples; None where there are, and in older records."""
    sample_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds of a sample in the fastest call of the reference, from which the time of a plan is expected. None in
    older records."""
    text_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the tokens that the attention mask shows, of all samples; None where nothing is padding."""

    def files(self, boundary: Boundary | None = None) -> tuple[Artifact, ...]:
        """The files that a case of that boundary loads; None: all."""
        new = () if self.new is None or boundary == "e2e" else (self.new.inputs, self.new.reference)
        plain = (self.inputs, self.reference, *new)
        if self.raw is None or boundary not in ("e2e", None):
            return plain
        how = self.raw.preparation
        own = {"text": "tokenizer", "processor": "processor"}.get(how.kind)
        return (*plain, self.raw.items, self.raw.reference, *([getattr(how, own)] if own else []))


class OnnxCheck(Record):
    """Outputs of one run of an exported file compared with torch."""

    precision: Precision
    batch_size: int
    sequence_length: int | None
    relative_l2: float
    max_abs: float


class Work(Record):
    """Arithmetic and memory traffic of one forward pass, for the roofline."""

    sequence_length: int | None
    flops_per_item: int
    """2 per multiply-add, counted by torch's FlopCounterMode, products of attention included."""
    parameters: int
    """Weights that every pass reads at least once, at any batch size: lookup tables are not counted."""
    input_bytes_per_item: int
    output_elements_per_item: int
    winograd_flops_per_item: int = 0
    """The part of flops_per_item in convolutions that Winograd's algorithm can compute with fewer products."""
    uncounted: tuple[str, ...] = ()
    """Names of operators that the counter does not know."""
    text_flops_per_item: int | None = None
    """flops_per_item of padded texts without their padding, which a backend may skip; None where nothing is padding."""

    @property
    def least_flops_per_item(self) -> int:
        """The arithmetic that no backend can do without, but for Winograd's algorithm."""
        return self.flops_per_item if self.text_flops_per_item is None else self.text_flops_per_item


class ExportRequest(Record):
    """The options of an export, besides the model, its weights and what the record itself lists."""

    seed: int
    """Seed of random (`seeded`) weights, and of random numbers while a user's module is built."""
    exporter: str
    opset: int
    output_name: str | None
    max_length: int | None
    attention: str


class ExportFailure(Record):
    """Why an export failed: for one file (ExportRecord.refused), or for a whole model in
    results/exports/<slug>/export-failed.json, which the next successful export deletes."""

    schema_version: Literal[1] = 1
    error: MessageText
    hint: MessageText


SOURCES = "sources"
"""Name of the sources of a user's module among the artifacts of a raw record, whose other names are files."""


class ExportRecord(Record):
    """The export of one model."""

    schema_version: Literal[1] = 1
    request_sha256: str
    """Hash of the request, the model's bytes included; an unchanged request with intact files is not exported again."""
    request: ExportRequest | None = None
    """None in records of versions that did not store it."""
    folder: FileName | None = None
    """Folder of the files below models/<slug>/: a hash of their content. None in records of earlier versions, whose
    files are in models/<slug>/ itself."""
    sources: dict[str, str] = {}
    """For a user's module: sha256 by name of the Python modules it was built from, without installed packages."""
    model: str
    slug: FileName
    weights: Weights
    weight_source: str
    kind: Kind
    classifier: bool
    """True where output 0 is (batch, classes) logits, so that top-1 has a meaning."""
    parameters: int | None
    converted: tuple[str, ...] = ()
    """Element types of weights of a user's module that the export made fp32, as `fp16`; empty in older records."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    written_inputs: tuple[str, ...] = ()
    """Inputs that the module changes in place: each call of a PyTorch backend copies them first, in the timed part."""
    nested_outputs: bool = False
    """True where the module returns neither a tensor nor a tuple of tensors, but for example a dictionary."""
    module: Artifact | None
    """Weights for the PyTorch backends; None for a user's ONNX file, which has no module."""
    onnx: dict[Precision, OnnxArtifact]
    onnx_variants: dict[str, OnnxArtifact] = {}
    """Variants of those files by `<precision>-<variant>`: `fp16-fused` (attention and normalisations as ONNX Runtime's
    own operators), which only some backends read."""
    refused: dict[str, ExportFailure] = {}
    """ONNX files that could not be made or do not agree with the model, by their name in `onnx` or `onnx_variants`:
    rows that need such a file fail with its reason."""
    work: tuple[Work, ...] = ()
    """Least work of one sample, by sequence length; empty where nothing could be counted."""
    input_sets: tuple[InputSet, ...]
    checks: tuple[OnnxCheck, ...]
    versions: dict[str, str]
    seconds: dict[str, float]
    """Wall seconds by step: load, inputs, reference, work, onnx, onnx-fp16, calibration, onnx-int8, check."""

    @property
    def sources_sha256(self) -> str | None:
        """One hash of all sources; None without sources."""
        lines = "\n".join(f"{name} {digest}" for name, digest in sorted(self.sources.items()))
        return hashlib.sha256(lines.encode()).hexdigest() if lines else None

    @property
    def conversion(self) -> str | None:
        """What the export did to the weights of a user's module, as a sentence; None where they were fp32."""
        if not self.converted:
            return None
        kinds = " and ".join(self.converted)
        return f"The module's {kinds} weights were converted to fp32, for the export and the reference."

    @property
    def why_uncounted(self) -> str | None:
        """Why the work of a pass, its FLOPs and least traffic, is unknown; None where it was counted."""
        if self.work:
            return None
        if self.module is None:
            return "an ONNX file has no module that PyTorch's counter could run"
        return "the module does not run below PyTorch's counter"

    @property
    def onnx_artifacts(self) -> tuple[OnnxArtifact, ...]:
        """Every ONNX file: by precision, then the variants."""
        return (*self.onnx.values(), *self.onnx_variants.values())

    def files_of_model(self) -> tuple[Artifact, ...]:
        """ONNX files, those of their weights, and the weights for the PyTorch backends."""
        onnx = (file for artifact in self.onnx_artifacts for file in artifact.files())
        return (*onnx, *((self.module,) if self.module else ()))

    def files(self) -> tuple[Artifact, ...]:
        """Every file of the export: of the model, and of all input sets."""
        return (*self.files_of_model(), *(file for inputs in self.input_sets for file in inputs.files()))


class ShapeProfile(Record):
    """Range of one input's shapes that an engine accepts, and the shape it was tuned for."""

    minimum: tuple[int, ...]
    optimum: tuple[int, ...]
    maximum: tuple[int, ...]


class EngineRequest(Record):
    """The options that determine an engine, apart from the machine that builds it."""

    onnx: FileName
    """Name of the ONNX file in the model's folder."""
    onnx_sha256: str
    precision: Precision
    profiles: dict[str, ShapeProfile]
    """By input name."""
    dynamic: bool = False
    """True: for all shapes of a plan, even if the plan has only one; False: for exactly one shape."""
    workspace_bytes: int | None = None
    optimization_level: int | None = None
    hardware_compatible: bool = False
    version_compatible: bool = False
    fp16_io: bool = False
    """Inputs and outputs in fp16, which saves the casts and half of their memory traffic."""


class EngineRecord(Record):
    """A TensorRT engine, which may run only on the GPU, driver and TensorRT that it was built with."""

    schema_version: Literal[1] = 1
    key: str
    """Hash of the request and the fields after it up to `driver`: an engine is built again only when it changes."""
    request: EngineRequest
    tensorrt: str
    gpu: str
    sm: str
    """Compute capability, `9.0`."""
    driver: str
    engine: Artifact
    """Path below the model's folder: `engines/<name>.plan`."""
    build_s: float
    parity: Parity
    """Of the finished engine against the fp32 reference, over all inputs of its optimum shape."""
    kept_fp32: tuple[str, ...]
    """Layers kept in fp32 because their fp16 form failed the parity check; empty where there are none."""
    layers: int
    precisions: dict[str, int]
    """Layers by the precision of their output, as the engine's own inspector reports it."""
    timing_cache_sha256: str | None
    builder: dict[str, str]
    """Flags and tactic sources of the builder, in words."""
