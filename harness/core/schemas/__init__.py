"""Every file on disk, typed and versioned. Times are integers in nanoseconds, sizes integers in bytes.

A `schema_version` is raised when a reader of the old version would misread the new file. A reader refuses an unknown
field, such as the seal, with an error of two lines (docs/decisions/0001-files-between-stages.md).
The reader of a format 2 or 3 also accepts the earlier formats. Every file but a raw record ends with a seal
(core/seal.py); files of older versions have none and are read without it:

    Plan          2  plan_id is a hash of the whole plan; settings_id, plan_id in format 1, a hash of the settings;
                     export, generation and the inputs of a model came later, the defaults in older
                     files
    ExportRecord  1  first format
    ExportFailure 1  first format
    EngineRecord  1  first format
    Roof          1  first format
    CpuRoof       1  first format
    Environment   1  first format
    RawRecord     2  Measured | Failed, sealed with a checksum (core/store.py); settings_id was plan_id in format 1;
                     cpu_use and stops came later, None in older files; windows too, empty in older files;
                     Failed.refused too, false there
    Usage         2  settings_id was plan_id in format 1; the use of the allowed CPUs and of their siblings, `stopped`
                     and `busiest` came later, None or empty in older files
    Running       1  first format
    Exporting     1  first format
    Copies        1  first format
    NeighbourCheck 1 first format
    Energy        2  settings_id was plan_id in format 1
    ModelProfile  2  settings_id was plan_id in format 1; activation_alone_bytes came later, None in older files
    PartsProfile  1  first format; launch_gaps, ratios, steady, usage, grade and flags came later, None or empty before
    MemoryProfile 1  first format
    SelfTest      1  first format; rate and kinds came later, None and empty in older files
    Generated     2  first format, with the number of RawRecord, whose store it shares
    GenerationExport 1  first format
    Summary       3  the figures of a row of grade F are in Row.void, in formats 1 and 2 in the row itself;
                     plan_id and settings_id as in Plan since format 2; throughput_ci95 came later, None in older files,
                     whose percentiles pool samples; Row.checks, inputs and Latency.process_rounds came later, empty in
                     older files; copies and loads too, and neighbours, None there
    PackedSummary 4  a Summary whose rows are in summary.parquet; the JSON files of raw records may be in
                     raw/<slug>.parquet (core/packed.py)
    ServiceRun    1  first format
    Replication   1  first format
    LoadFailure   1  first format
    Prediction    1  first format
    LoadEnergy    1  first format
    Comparison    1  first format; p_rank_holm, rounds, Side.config, design, ComparedRow.relative came later, absent in
                     older files
    States        1  first format
    HistoryRun, Decision, History  1  first format
    UnitRequest, AttemptReport, Attempt, Fleet  1  first format
    Reproduction  1  first format
    Written       1  first format
    Bundle        1  first format
"""

from __future__ import annotations

from harness.core.schemas.claim_record import (
    Claim,
    ClaimedModel,
    ClaimedRatio,
    ClaimedValue,
    Differing,
    PublishedCase,
    PublishedSource,
    Reproduced,
    ReproducedRow,
    Reproduction,
    Substitute,
)
from harness.core.schemas.comparison_record import (
    ComparedLoad,
    ComparedRow,
    Comparison,
    Design,
    Difference,
    Judgement,
    Side,
    State,
    States,
)
from harness.core.schemas.copies_record import (
    Copies,
    CopyFailure,
    CopyProcess,
    CopyTimes,
    DeviceSlot,
    NeighbourCheck,
    NeighbourSample,
)
from harness.core.schemas.energy_record import Energy
from harness.core.schemas.environment_record import (
    Environment,
    Gpu,
    Limits,
    Machine,
    Software,
    Unavailable,
)
from harness.core.schemas.export_record import (
    SOURCES,
    Answer,
    Artifact,
    EngineRecord,
    EngineRequest,
    ExportFailure,
    ExportRecord,
    ExportRequest,
    ImagePreparation,
    InputSet,
    OnnxArtifact,
    OnnxCheck,
    Preparation,
    ProcessorPreparation,
    RawInputs,
    ShapeProfile,
    TensorSpec,
    TextPreparation,
    Work,
)
from harness.core.schemas.fleet_record import (
    Attempt,
    AttemptReport,
    Fleet,
    FleetUnit,
    UnitFile,
    UnitRequest,
)
from harness.core.schemas.folder_records import Bundle, BundledFile, Exporting, Running, Written
from harness.core.schemas.generation_record import (
    DecoderKind,
    DecoderShape,
    Generated,
    GeneratedRequest,
    GenerationCase,
    GenerationExport,
    GenerationOptions,
    PromptSet,
    ReuseCheck,
    TimedRecord,
    TokenParity,
)
from harness.core.schemas.generation_row import (
    CacheSize,
    ContextTimes,
    GenerationRow,
    TokenEnergy,
    TokenRates,
    TokenTimes,
    VoidGeneration,
)
from harness.core.schemas.history_record import (
    Decision,
    EnvironmentChange,
    History,
    HistoryPoint,
    HistoryRun,
    SeriesState,
    Shift,
    ShiftState,
)
from harness.core.schemas.load_record import (
    GeneratedBatches,
    Guard,
    GuardTimes,
    JoinedPasses,
    JudgedBound,
    LatencyBound,
    LoadBase,
    LoadCase,
    LoadedPoint,
    LoadEnergy,
    LoadFailure,
    LoadGenResult,
    LoadMethod,
    LoadPercentile,
    LoadRow,
    LoadVerdict,
    MapCell,
    PointEnergy,
    PredictedPoint,
    Prediction,
    Replication,
    Scenario,
    ServiceRun,
    TokenLoad,
)
from harness.core.schemas.plan_record import (
    Case,
    EngineOptions,
    ExportOptions,
    GivenInputs,
    Measurement,
    Plan,
    PlannedModel,
    ReportOptions,
    Tolerance,
)
from harness.core.schemas.raw_record import (
    FIXED_WHEN_TRACED,
    NO_FLOATS,
    Block,
    BusyProcess,
    Clock,
    ColdCosts,
    CpuUse,
    DeviceSamples,
    Failed,
    GpuSample,
    Measured,
    Memory,
    OutputsTime,
    Parity,
    Placement,
    RawBase,
    RawRecord,
    Repeats,
    SplitSamples,
    Stops,
    TimedWindow,
    Usage,
    UsageSample,
)
from harness.core.schemas.roof_record import CpuLimits, CpuRoof, Roof
from harness.core.schemas.row_parts import Check, Flag, GpuUsage, Interval, UsageSummary
from harness.core.schemas.selftest_record import SelfTest, SelfTestKind, SelfTestRow
from harness.core.schemas.summary_record import (
    Better,
    CustomMetric,
    DeviceTimes,
    Latency,
    PackedSummary,
    Part,
    Roofline,
    Row,
    RowGroup,
    Speedup,
    Split,
    Summary,
    Void,
)
from harness.core.schemas.vocabulary import (
    ELEMENT_BYTES,
    Boundary,
    Device,
    Exporter,
    Grade,
    Kind,
    Limit,
    Mode,
    Precision,
    Quantisation,
    Quantity,
    Record,
    SettingsId,
    Situation,
    Status,
    Stopped,
    Verdict,
    Weights,
)

__all__ = [
    "ELEMENT_BYTES",
    "FIXED_WHEN_TRACED",
    "NO_FLOATS",
    "SOURCES",
    "Answer",
    "Artifact",
    "Attempt",
    "AttemptReport",
    "Better",
    "Block",
    "Boundary",
    "Bundle",
    "BundledFile",
    "BusyProcess",
    "CacheSize",
    "Case",
    "Check",
    "Claim",
    "ClaimedModel",
    "ClaimedRatio",
    "ClaimedValue",
    "Clock",
    "ColdCosts",
    "ComparedLoad",
    "ComparedRow",
    "Comparison",
    "ContextTimes",
    "Copies",
    "CopyFailure",
    "CopyProcess",
    "CopyTimes",
    "CpuLimits",
    "CpuRoof",
    "CpuUse",
    "CustomMetric",
    "Decision",
    "DecoderKind",
    "DecoderShape",
    "Design",
    "Device",
    "DeviceSamples",
    "DeviceSlot",
    "DeviceTimes",
    "Difference",
    "Differing",
    "Energy",
    "EngineOptions",
    "EngineRecord",
    "EngineRequest",
    "Environment",
    "EnvironmentChange",
    "ExportFailure",
    "ExportOptions",
    "ExportRecord",
    "ExportRequest",
    "Exporter",
    "Exporting",
    "Failed",
    "Flag",
    "Fleet",
    "FleetUnit",
    "Generated",
    "GeneratedBatches",
    "GeneratedRequest",
    "GenerationCase",
    "GenerationExport",
    "GenerationOptions",
    "GenerationRow",
    "GivenInputs",
    "Gpu",
    "GpuSample",
    "GpuUsage",
    "Grade",
    "Guard",
    "GuardTimes",
    "History",
    "HistoryPoint",
    "HistoryRun",
    "ImagePreparation",
    "InputSet",
    "Interval",
    "JoinedPasses",
    "JudgedBound",
    "Judgement",
    "Kind",
    "Latency",
    "LatencyBound",
    "Limit",
    "Limits",
    "LoadBase",
    "LoadCase",
    "LoadEnergy",
    "LoadFailure",
    "LoadGenResult",
    "LoadMethod",
    "LoadPercentile",
    "LoadRow",
    "LoadVerdict",
    "LoadedPoint",
    "Machine",
    "MapCell",
    "Measured",
    "Measurement",
    "Memory",
    "Mode",
    "NeighbourCheck",
    "NeighbourSample",
    "OnnxArtifact",
    "OnnxCheck",
    "OutputsTime",
    "PackedSummary",
    "Parity",
    "Part",
    "Placement",
    "Plan",
    "PlannedModel",
    "PointEnergy",
    "Precision",
    "PredictedPoint",
    "Prediction",
    "Preparation",
    "ProcessorPreparation",
    "PromptSet",
    "PublishedCase",
    "PublishedSource",
    "Quantisation",
    "Quantity",
    "RawBase",
    "RawInputs",
    "RawRecord",
    "Record",
    "Repeats",
    "Replication",
    "ReportOptions",
    "Reproduced",
    "ReproducedRow",
    "Reproduction",
    "ReuseCheck",
    "Roof",
    "Roofline",
    "Row",
    "RowGroup",
    "Running",
    "Scenario",
    "SelfTest",
    "SelfTestKind",
    "SelfTestRow",
    "SeriesState",
    "ServiceRun",
    "SettingsId",
    "ShapeProfile",
    "Shift",
    "ShiftState",
    "Side",
    "Situation",
    "Software",
    "Speedup",
    "Split",
    "SplitSamples",
    "State",
    "States",
    "Status",
    "Stopped",
    "Stops",
    "Substitute",
    "Summary",
    "TensorSpec",
    "TextPreparation",
    "TimedRecord",
    "TimedWindow",
    "TokenEnergy",
    "TokenLoad",
    "TokenParity",
    "TokenRates",
    "TokenTimes",
    "Tolerance",
    "Unavailable",
    "UnitFile",
    "UnitRequest",
    "Usage",
    "UsageSample",
    "UsageSummary",
    "Verdict",
    "Void",
    "VoidGeneration",
    "Weights",
    "Work",
    "Written",
]
