"""results/profiles/<case_id>/model.json: what one case's model costs, counted, and what of it is reached."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.vocabulary import Format2, Precision, Record, SettingsId

CONVENTION = "2 FLOPs a multiply-add; activations, normalisations and poolings are left out"


class OnnxCount(Record):
    """Products of the exported fp32 graph, of one item: what torch's count is held against."""

    file: str
    macs: int
    macs_by_operator: dict[str, int]
    uncounted: tuple[str, ...]
    """Nodes that consist of products and are not in `macs`, in words."""


class Counts(Record):
    """What can be told of a model and a shape without measuring. Per item: one image, sequence or sample."""

    parameters: int | None
    """Elements; a tensor that is used twice counts once. None for an ONNX file, whose constants are not told apart."""
    trainable_parameters: int | None
    parameters_by_type: dict[str, int]
    """By class of the module that owns them."""
    macs: int | None
    """Multiply-adds of one item, at least so many where something is `uncounted`. None where nothing could be counted;
    then `count_notes` or `uncounted` say why."""
    flops: int | None
    counted_by: str | None
    uncounted: tuple[str, ...]
    """Operators that consist of products and that this counter does not know."""
    onnx_count: OnnxCount | None
    count_notes: tuple[str, ...]
    """Where the two counts disagree, what was left out and why."""
    weight_bytes: dict[Precision, int]
    """Parameters and buffers in memory."""
    activation_bytes: int | None
    """Estimate, of one item in the case's precision: tensors of one pass that are alive at the same time."""
    activation_bytes_by: str
    """How it was estimated; or why it was not."""


class MeasuredMemory(Record):
    """Peak of what one pass allocates, as the library's own allocator tells; memory.json has the whole story."""

    peak_bytes: int | None
    activations_bytes: int | None = None
    """Peak of activations alone, without what operators use inside themselves; None where these are not told apart."""
    by: str
    """How it was measured; or why it was not."""
    environment_id: str


class FileSize(Record):
    """A file that a backend can load this model from."""

    kind: Literal["weights", "onnx", "engine"]
    name: str
    """The precision; of an ONNX variant `<precision>-<variant>`."""
    path: str
    size_bytes: int


class Achieved(Record):
    """The counted work over the time that `run` measured for the same case."""

    latency_ns: float | None
    device_ns: float | None
    """On a GPU: what flops_per_s is taken over, where it is known."""
    items_per_s: float | None
    tokens_per_s: float | None
    """items_per_s times the sequence length; None where an item is no text."""
    flops_per_s: float | None
    peak_share: float | None
    """Of the best measured matrix product in that precision."""
    notes: tuple[str, ...]
    """Why a figure is None."""


class _Head(Record):
    schema_version: Format2 = 2
    case_id: str
    settings_id: SettingsId
    created_at: str
    environment_id: str
    """Where the memory was measured."""
    model: str
    backend: str
    setting: str
    precision: Precision
    batch_size: int
    sequence_length: int | None
    convention: str = CONVENTION


class ModelProfile(Counts, _Head):
    """The model level of one case: its fields are those of Counts, and what follows from the batch and from time."""

    files: tuple[FileSize, ...]
    macs_per_batch: int | None
    flops_per_batch: int | None
    least_bytes: int | None
    """Of one batch: weights, inputs and outputs once, in the case's precision; of int8 with one byte a weight."""
    flops_per_byte: float | None
    """Arithmetic intensity: flops_per_batch / least_bytes."""
    activation_estimated_bytes: int | None
    """activation_bytes times the batch."""
    activation_measured_bytes: int | None
    """Most bytes that a pass of the case's batch allocates at once, operators' temporaries included."""
    activation_alone_bytes: int | None = None
    """Without those temporaries: what the estimate is of. None where they are not told apart, as in older files."""
    activation_measured_by: str
    memory_files: tuple[str, ...] = ()
    """Beside this one: memory.json and what was made from it."""
    export_sha256: str | None = None
    """request_sha256 of the export that was profiled; None in files from before it was told."""
    achieved: Achieved
