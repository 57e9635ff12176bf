"""Every file on disk, typed and versioned. Times are integers in nanoseconds, sizes integers in bytes.

A `schema_version` is raised when a reader of the old version would misread or refuse the new file:

    Plan          1  first format
    ExportRecord  1  first format
    ExportFailure 1  first format
    EngineRecord  1  first format
    Roof          1  first format
    Environment   1  first format
    RawRecord     1  first format: Measured | Failed, sealed with a checksum (core/store.py)
    Usage         1  first format
    Running       1  first format
    Energy        1  first format
    ModelProfile  1  first format; activation_alone_bytes came later, None in older files
    PartsProfile  1  first format
    MemoryProfile 1  first format
    SelfTest      1  first format
    Summary       1  first format
    Comparison    1  first format
    Reproduction  1  first format
    Bundle        1  first format
"""

from __future__ import annotations

from harness.core.schemas.bundle import Bundle, BundledFile
from harness.core.schemas.claim import (
    Cell,
    Claim,
    ClaimedModel,
    ClaimedRatio,
    ClaimedValue,
    Differing,
    Source,
    Substitute,
)
from harness.core.schemas.comparison import ComparedRow, Comparison, Difference, Judgement, Side
from harness.core.schemas.custom import Better, CustomMetric
from harness.core.schemas.energy import Energy
from harness.core.schemas.engine import EngineRecord, EngineRequest, Profile
from harness.core.schemas.environment import Environment, Gpu, Limits, Machine, Software, Unavailable
from harness.core.schemas.export import (
    Answer,
    Artifact,
    ExportFailure,
    ExportRecord,
    ImagePreparation,
    InputSet,
    OnnxArtifact,
    OnnxCheck,
    Preparation,
    RawInputs,
    TensorSpec,
    TextPreparation,
    Work,
)
from harness.core.schemas.plan import Case, EngineOptions, Gate, Measurement, Plan, PlannedModel, ReportOptions
from harness.core.schemas.raw import (
    NO_FLOATS,
    Block,
    Clock,
    ColdCosts,
    DeviceSamples,
    Failed,
    Measured,
    Memory,
    Parity,
    Placement,
    RawBase,
    RawRecord,
    SplitSamples,
)
from harness.core.schemas.reproduction import Reproduced, ReproducedRow, Reproduction
from harness.core.schemas.roof import Roof
from harness.core.schemas.running import Running
from harness.core.schemas.selftest import SelfTest, SelfTestRow
from harness.core.schemas.summary import (
    DeviceTimes,
    Flag,
    Interval,
    Latency,
    Part,
    Roofline,
    Row,
    Speedup,
    Split,
    Summary,
)
from harness.core.schemas.usage import GpuSample, Usage, UsageSample
from harness.core.schemas.usage_summary import GpuUsage, UsageSummary
from harness.core.schemas.vocabulary import (
    ELEMENT_BYTES,
    Boundary,
    Device,
    Grade,
    Kind,
    Limit,
    Mode,
    Precision,
    Quantisation,
    Quantity,
    Record,
    Status,
    Stopped,
    Verdict,
    Weights,
)

__all__ = [
    "ELEMENT_BYTES",
    "NO_FLOATS",
    "Answer",
    "Artifact",
    "Better",
    "Block",
    "Boundary",
    "Bundle",
    "BundledFile",
    "Case",
    "Cell",
    "Claim",
    "ClaimedModel",
    "ClaimedRatio",
    "ClaimedValue",
    "Clock",
    "ColdCosts",
    "ComparedRow",
    "Comparison",
    "CustomMetric",
    "Device",
    "DeviceSamples",
    "DeviceTimes",
    "Difference",
    "Differing",
    "Energy",
    "EngineOptions",
    "EngineRecord",
    "EngineRequest",
    "Environment",
    "ExportFailure",
    "ExportRecord",
    "Failed",
    "Flag",
    "Gate",
    "Gpu",
    "GpuSample",
    "GpuUsage",
    "Grade",
    "ImagePreparation",
    "InputSet",
    "Interval",
    "Judgement",
    "Kind",
    "Latency",
    "Limit",
    "Limits",
    "Machine",
    "Measured",
    "Measurement",
    "Memory",
    "Mode",
    "OnnxArtifact",
    "OnnxCheck",
    "Parity",
    "Part",
    "Placement",
    "Plan",
    "PlannedModel",
    "Precision",
    "Preparation",
    "Profile",
    "Quantisation",
    "Quantity",
    "RawBase",
    "RawInputs",
    "RawRecord",
    "Record",
    "ReportOptions",
    "Reproduced",
    "ReproducedRow",
    "Reproduction",
    "Roof",
    "Roofline",
    "Row",
    "Running",
    "SelfTest",
    "SelfTestRow",
    "Side",
    "Software",
    "Source",
    "Speedup",
    "Split",
    "SplitSamples",
    "Status",
    "Stopped",
    "Substitute",
    "Summary",
    "TensorSpec",
    "TextPreparation",
    "Unavailable",
    "Usage",
    "UsageSample",
    "UsageSummary",
    "Verdict",
    "Weights",
    "Work",
]
