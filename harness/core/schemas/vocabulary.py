"""The types that all file formats share: words, the base class of every record, and what every row may have (intervals,
flags, checks, the machine load while it was timed)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from harness.core import text as sanitize
from harness.core.safe_files import FILE_NAME, relative_name

FileName = Annotated[str, StringConstraints(pattern=rf"^{FILE_NAME.pattern}$", max_length=200)]
"""One component of a path (`safe_files.FILE_NAME`)."""
RelativePath = Annotated[str, StringConstraints(max_length=400), AfterValidator(relative_name)]
"""A path with `/` whose text stays below the folder that it is joined to; `safe_files.inside` follows links."""
Device = Literal["cpu", "cuda"]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4"]
"""int8 and int4 are the type of most weights; int4 is of generation alone (docs/decisions/0035-decoders.md). Of a
user's ONNX file int8 is the type that its products multiply in: the file may store weights in fewer bits.
`tf32`: fp32 tensors whose products a GPU may compute with 10-bit mantissas; with `fp32` it may not. `fp8`: linear
layers multiply in float8_e4m3fn, everything between them in bf16."""
ELEMENT_BYTES: Mapping[Precision, int] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
"""Bytes of a float in memory. int8 and fp8 are absent: which tensors are quantised differs from model to model."""
Boundary = Literal["compute", "transfer", "e2e"]
ModeName = Literal["sync", "pipelined", "offline"]
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
Bottleneck = Literal["compute", "memory", "launch", "kernels", "host"]
"""What bounds a row on a GPU: arithmetic or memory near its limit, a time that does not grow with the batch, kernels
that reach neither limit, or the submitting host (harness/aggregation/roofline.py)."""

Situation = Literal["alone", "together"]
"""Whether a device works alone on its host, or together with the others (LAYOUT=copies)."""

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

Count = Annotated[int, Field(ge=1)]
Amount = Annotated[int, Field(ge=0)]
"""A number of things, bytes, or nanoseconds between two readings of a clock that never goes back."""
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


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


class Interval(Record):
    low: float
    high: float


OLD_FLAGS = {"CI_NOT_MET": "NOT_CONVERGED", "COTENANT": "CPU_SHARED", "NOT_STEADY": "NOT_WARMED_UP"}
"""Names in older versions. COTENANT was for CPUs and GPUs; the detail of the flag shows which."""


class Flag(Record):
    """Why a row is not grade A, and how to change that."""

    name: str
    detail: str
    remedy: str
    caps_at: Grade | None = None
    """Best possible grade of a row with this flag; None in older summaries."""

    @model_validator(mode="after")
    def _renamed(self) -> Flag:
        # Not a validator of the field, which could not see `detail`; nor one before, which is slow for JSON.
        if self.name in OLD_FLAGS:
            of_a_gpu = self.name == "COTENANT" and re.search("card|GPU", self.detail)
            self.__dict__["name"] = "GPU_SHARED" if of_a_gpu else OLD_FLAGS[self.name]
        return self

    @property
    def is_note(self) -> bool:
        """True where it costs no grade: information, not a reason for doubt."""
        return self.caps_at == "A"


class Check(Record):
    """In how many rounds of a row an applicable check was made (harness/aggregation/checks.py)."""

    rounds: int
    of: int
    missing: str | None = None
    """Why not in the other rounds; None where it was made in all."""


def _renamed(checks: dict[str, Check]) -> dict[str, Check]:
    if OLD_FLAGS.keys().isdisjoint(checks):
        return checks
    return {OLD_FLAGS.get(name, name): check for name, check in checks.items()}


Checks = Annotated[dict[str, Check], AfterValidator(_renamed)]
"""By the name of the flag."""


class BusyProcess(Record):
    """Another process that used CPU time while a case was warmed up and timed."""

    pid: int
    name: str
    """The kernel's name of the process, 15 characters at most, without control characters: the process chose it."""
    cpu_percent: float
    """Mean; 100 is one CPU."""


class GpuUsage(Record):
    """Use of the GPU while a row was timed, over all its rounds."""

    sm_mhz_min: int | None
    sm_mhz_mean: float | None
    sm_mhz_max: int | None
    memory_mhz_mean: float | None
    temperature_c_max: int | None
    power_w_mean: float | None
    power_w_max: float | None
    utilisation_percent_mean: float | None
    memory_peak_bytes: int | None
    """Growth of the memory in use on the whole GPU since before the process: NVML cannot see into PID namespaces."""
    reasons: dict[str, float]
    """Share of the samples in which the clock was reduced, by reason."""
    other_processes_max: int | None
    samples: int = 0
    """Readings of the GPU in all timed windows."""
    memory_before_bytes: int | None = None
    """Memory in use on the whole GPU before the case's process used it; the largest of all rounds."""


class UsageSummary(Record):
    """Machine load while a row was warmed up and timed, which is the same work, over all its rounds.

    100% is one CPU.
    """

    rounds: int
    """Rounds that were monitored."""
    watched_ns: int
    """Total length of the windows, each with warm-up and timed part."""
    cpu_percent_mean: float
    cpu_percent_peak: float | None
    """Peaks are None where no single sample was long enough (the kernel counts in ticks of 10 ms)."""
    others_percent_mean: float
    others_percent_peak: float | None
    steal_percent_mean: float | None
    steal_percent_peak: float | None
    rss_peak_bytes: int
    pss_peak_bytes: int | None
    major_faults: int
    minor_faults: int
    read_bytes: int | None
    written_bytes: int | None
    frequency_mhz_min: float | None
    frequency_mhz_mean: float | None
    frequency_mhz_max: float | None
    temperature_c_max: float | None
    throttled_periods: int | None
    thermal_events: int | None
    unavailable: dict[str, str]
    """Why a figure is None, by the name of the counter."""
    monitor_share: float
    """CPU time of the monitor itself, as a share of the monitored time; the largest of the rounds."""
    gpu: GpuUsage | None = None
    process_ns: int | None = None
    """Lifetime of a process, loading and checks included: the median of the rounds. None in older files."""
    allowed_cpus: int | None = None
    """CPUs that the process could use; the fewest of all samples."""
    allowed_cores: int | None = None
    allowed_others_percent_mean: float | None = None
    """CPU time of everything else on those CPUs."""
    siblings_percent_mean: float | None = None
    """CPU time on SMT siblings of those CPUs that the process may not use."""
    busiest: tuple[BusyProcess, ...] = ()
    """Other processes, the busiest first; over several rounds each with its largest share."""
    longest_look_ns: int | None = None
    """Longest time between two readings of the monitor. None in older files."""
    look_interval_ns: int | None = None
    """Planned time between two readings of the monitor."""
    stopped_looks: int | None = None
    """Readings at which the process was stopped or traced; None where that was not checked."""
