"""The types that all file formats share, and the base class of every record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from harness.core import text as sanitize
from harness.core.safe_paths import FileName

Device = Literal["cpu", "cuda"]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4"]
"""int8 and int4 are the type of most weights; int4 is of generation alone (docs/decisions/0035-decoders.md).
`tf32`: fp32 tensors whose products a GPU may compute with 10-bit mantissas; with `fp32` it may not. `fp8`: linear
layers multiply in float8_e4m3fn, everything between them in bf16."""
ELEMENT_BYTES: Mapping[Precision, int] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
"""Bytes of a float in memory. int8 and fp8 are absent: which tensors are quantised differs from model to model."""
Boundary = Literal["compute", "transfer", "e2e"]
Mode = Literal["sync", "pipelined", "offline"]
Weights = Literal["pretrained", "seeded", "own"]
"""`pretrained`: published weights; `seeded`: random from a fixed seed; `own`: the user's module or ONNX file."""
Quantisation = Literal["dynamic", "static"]
"""How int8 activations get their scale: at run time, or in advance from calibration inputs (zoo/onnx/int8.py)."""
Kind = Literal["image", "text", "tensor"]
"""Kind of a model's samples, and so the unit of throughput: images, sequences, samples."""
Exporter = Literal["dynamo", "torchscript"]
"""Exporter from a module to an ONNX file: torch's current or its older exporter."""
Status = Literal["measured", "skipped", "failed", "missing"]
Grade = Literal["A", "B", "C", "F"]
Verdict = Literal["FASTER", "SLOWER", "SAME", "AMBIGUOUS", "NEW", "GONE", "NOT COMPARABLE"]
"""Change of a row since the baseline; rows NEW and GONE are in only one of the two summaries."""
Quantity = Literal["ns", "per_s", "bytes", "ratio"]
Stopped = Literal["planned rounds", "interval reached", "round limit", "time budget", "failed round", "interrupted"]
"""Why a case has no more rounds."""
Limit = Literal["compute", "memory", "launch", "kernels", "host"]
"""What bounds a row on a GPU: arithmetic or memory near its limit, a time that does not grow with the batch, kernels
that reach neither limit, or the submitting host (harness/aggregation/roofline.py)."""

Situation = Literal["alone", "together"]
"""Whether a device works alone on its host, or together with the others (LAYOUT=copies)."""

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


MessageText = Annotated[str, AfterValidator(lambda text: sanitize.shortened(sanitize.one_line(text), 4_000))]
"""One line of text from a library or a model's code, made safe to show; a long line loses its middle."""
MessageLines = Annotated[str, AfterValidator(lambda text: sanitize.shortened(sanitize.lines(text), 64_000))]
"""The same for several lines."""


class Record(BaseModel):
    """Base of every stored record: immutable, no unknown fields, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Format2 = Annotated[Literal[1, 2], AfterValidator(lambda _: 2)]
"""The schema_version of a format 2 whose reader also accepts format 1. After reading, a record has format 2."""
Format3 = Annotated[Literal[1, 2, 3], AfterValidator(lambda _: 3)]
"""The same for a format 3."""

SettingsId = Annotated[str, Field(validation_alias=AliasChoices("settings_id", "plan_id"))]
"""The settings_id of the plan with which a file was measured. Format 1 had no other id and called it plan_id."""


class Identified(Record):
    """The two ids of a plan, at the start of its file and of its summary."""

    schema_version: int
    plan_id: FileName
    """Hash of the whole plan: two runs with the same id have the same cases and judge them by the same limits."""
    settings_id: FileName
    """Hash of the device and of the measurement settings that define a sample: samples with the same id may be
    joined."""

    @model_validator(mode="before")
    @classmethod
    def _read_format_1(cls, data: Any) -> Any:
        # There plan_id was the hash of the settings: every plan with the same ones shared it.
        if isinstance(data, dict) and data.get("schema_version") == 1 and "plan_id" in data:
            return {"settings_id": data["plan_id"], **data}
        return data
