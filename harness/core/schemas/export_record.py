"""export.json and engines/<name>.json: what `export` and `engines` made of one model."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from harness.core.safe_paths import FileName, RelativePath
from harness.core.schemas.raw_record import Parity
from harness.core.schemas.vocabulary import Boundary, Kind, Precision, Record, Told, Weights


class Artifact(Record):
    """A file below the model's folder."""

    path: RelativePath
    sha256: str
    size_bytes: int


class OnnxArtifact(Artifact):
    exporter: str
    opset: int
    dtype_census: dict[str, int]
    """Number of weight elements by ONNX element type: what precision the file really holds."""
    value_census: dict[str, int] = {}
    """Of a file without floating-point weights: number of tensors by element type that its nodes give, casts and
    constants apart."""
    external_data: Artifact | None = None
    """Weights in a file of their own beside it, where one file would pass protobuf's limit of 2 GiB."""
    quantisation: str | None = None
    """How an int8 file was quantised and on what calibrated, in words; None for other files."""

    def files(self) -> tuple[Artifact, ...]:
        """The file, and the one beside it where there is one."""
        return (self,) if self.external_data is None else (self, self.external_data)


class TensorSpec(Record):
    """One input or output; a string dimension is dynamic and names its axis (`batch`, `sequence`)."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    batch_axis: int | None = 0
    """Which axis is the batch; None for an input that all items share. Stored arrays have it first."""


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
    """JPEG or WAV files → what the model's own processor of the transformers library makes of them."""

    kind: Literal["processor"] = "processor"
    media: Literal["image", "audio"]
    processor: Artifact
    """Its configuration."""


Preparation = Annotated[ImagePreparation | TextPreparation | ProcessorPreparation, Field(discriminator="kind")]
Answer = Literal["top-5", "embedding", "next token", "outputs"]
"""What post-processing makes of the outputs: the five likeliest classes, a sentence embedding, the next token, or
nothing."""


class RawInputs(Record):
    """The samples of an input set as a caller has them, for the e2e boundary."""

    items: Artifact
    """UTF-8 texts, JPEG or WAV files, one after the other (harness/zoo/inputs/preprocessing.py)."""
    reference: Artifact
    """fp32 reference outputs for these items, prepared as the case prepares them."""
    preparation: Preparation
    answer: Answer


class InputSet(Record):
    """Real inputs of one sequence length (None for images) and the fp32 reference outputs for them."""

    sequence_length: int | None
    samples: int
    inputs: Artifact
    reference: Artifact
    source: str
    """Where the inputs come from, in words."""
    complete: bool = False
    """True where these are all items that the user gave: fewer than the plan's samples are enough then."""
    raw: RawInputs | None = None
    """None where no e2e case asked for them, or the model's preprocessing is not known."""

    def files(self, boundary: Boundary | None = None) -> tuple[Artifact, ...]:
        """What a case of that boundary loads; None: all."""
        plain = (self.inputs, self.reference)
        if self.raw is None or boundary not in ("e2e", None):
            return plain
        how = self.raw.preparation
        own = {"text": "tokenizer", "processor": "processor"}.get(how.kind)
        return (*plain, self.raw.items, self.raw.reference, *([getattr(how, own)] if own else []))


class OnnxCheck(Record):
    """One run of an exported file against torch."""

    precision: Precision
    batch_size: int
    sequence_length: int | None
    relative_l2: float
    max_abs: float


class Work(Record):
    """Arithmetic and memory traffic of one forward pass, for the roofline."""

    sequence_length: int | None
    flops_per_item: int
    """2 per multiply-add, counted by torch's FlopCounterMode with the attention's products included."""
    parameters: int
    """Weights that every pass reads at least once, whatever the batch: lookup tables are not among them."""
    input_bytes_per_item: int
    output_elements_per_item: int
    winograd_flops_per_item: int = 0
    """Of flops_per_item, in convolutions that Winograd's algorithm can do with fewer products."""
    uncounted: tuple[str, ...] = ()
    """Operators that the counter does not know, by name."""


class ExportRequest(Record):
    """How an export was asked for, besides the model, its weights and what the record itself lists."""

    seed: int
    """Of `seeded` weights, and of random numbers while a user's module is built."""
    exporter: str
    opset: int
    output_name: str | None
    max_length: int | None
    attention: str


class ExportFailure(Record):
    """Why an export failed: of a file (ExportRecord.refused), or of a whole model in
    results/exports/<slug>/export-failed.json, which is gone once one succeeds."""

    schema_version: Literal[1] = 1
    error: Told
    hint: Told


SOURCES = "sources"
"""Name that the sources of a user's module have among the artifacts of a raw record, beside names of files."""


class ExportRecord(Record):
    """What `export` made of one model."""

    schema_version: Literal[1] = 1
    request_sha256: str
    """Hash of what was asked for, the model's bytes included; an unchanged request with intact files is not exported
    again."""
    request: ExportRequest | None = None
    """None in records from before it was kept."""
    folder: FileName | None = None
    """Of the files, below models/<slug>/: a hash of their content. None in records of earlier versions, whose files lie
    in models/<slug>/ itself."""
    sources: dict[str, str] = {}
    """Of a user's module: sha256 by name of the modules outside installed packages that it was built from."""
    model: str
    slug: FileName
    weights: Weights
    weight_source: str
    kind: Kind
    classifier: bool
    """True where output 0 is (batch, classes) logits, so that top-1 means something."""
    parameters: int | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    written_inputs: tuple[str, ...] = ()
    """Inputs that the module works on in place: each call of a PyTorch backend copies them first, inside the clock."""
    nested_outputs: bool = False
    """True where the module answers otherwise than with a tensor or a tuple of tensors: with a dictionary, say."""
    module: Artifact | None
    """Weights for the PyTorch backends; None for a user's ONNX file, which has no module."""
    onnx: dict[Precision, OnnxArtifact]
    onnx_variants: dict[str, OnnxArtifact] = {}
    """Further forms of those files by `<precision>-<variant>`: `fp16-fused` (attention and normalisations as ONNX
    Runtime's own operators), which only some backends read."""
    refused: dict[str, ExportFailure] = {}
    """ONNX files that could not be made or are not what the model is, by the name they would have in `onnx` or
    `onnx_variants`: rows that need one of them fail with its reason."""
    work: tuple[Work, ...] = ()
    """What one item costs at least, by sequence length; empty where nothing could be counted."""
    input_sets: tuple[InputSet, ...]
    checks: tuple[OnnxCheck, ...]
    versions: dict[str, str]
    seconds: dict[str, float]
    """Wall seconds by step: load, inputs, reference, work, onnx, onnx-fp16, calibration, onnx-int8, check."""

    @property
    def sources_sha256(self) -> str | None:
        """One hash of all sources; None where there are none."""
        lines = "\n".join(f"{name} {digest}" for name, digest in sorted(self.sources.items()))
        return hashlib.sha256(lines.encode()).hexdigest() if lines else None


class ShapeProfile(Record):
    """Range of one input's shapes that an engine takes, and the one it was tuned for."""

    minimum: tuple[int, ...]
    optimum: tuple[int, ...]
    maximum: tuple[int, ...]


class EngineRequest(Record):
    """What decides an engine, apart from where it is built."""

    onnx: FileName
    """Name of the ONNX file in the model's folder."""
    onnx_sha256: str
    precision: Precision
    profiles: dict[str, ShapeProfile]
    """By input name."""
    dynamic: bool = False
    """For all shapes of a plan, though there may be only one; else for exactly one."""
    workspace_bytes: int | None = None
    optimization_level: int | None = None
    hardware_compatible: bool = False
    version_compatible: bool = False
    fp16_io: bool = False
    """Inputs and outputs in fp16, so that no cast and half the traffic is needed at the ends."""


class EngineRecord(Record):
    """A TensorRT engine and where it may run: only on the GPU, driver and TensorRT that it was built with."""

    schema_version: Literal[1] = 1
    key: str
    """Hash of the request and of all that follows up to `driver`: an engine is built anew only when it changes."""
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
    """Layers that were kept in fp32 because their fp16 form failed the parity check; empty where none had to be."""
    layers: int
    precisions: dict[str, int]
    """Layers by the precision of their output, as the engine's own inspector tells."""
    timing_cache_sha256: str | None
    builder: dict[str, str]
    """Flags and tactic sources that the builder was given, in words."""
