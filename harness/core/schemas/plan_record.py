"""results/plan.json: every case to be measured, and how it is measured."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.core.schemas.generation_record import GenerationCase, GenerationOptions
from harness.core.schemas.load_record import LoadCase
from harness.core.schemas.vocabulary import (
    Boundary,
    Device,
    Exporter,
    FileName,
    Format2,
    Identified,
    Kind,
    ModeName,
    Precision,
    Record,
    Weights,
)

MOST_S = 30 * 86_400.0
"""A month: no intended wait is longer, and clocks can still count it."""
MOST_THREADS = 9_999
"""As in the settings `2-threads` to `9999-threads`."""
MOST_SAMPLES = 2_000_000


class Measurement(Record):
    """How each case is measured (warm-up until steady, stop rule, fresh process per case and round)."""

    rounds: Annotated[int, Field(ge=1, le=100)] = 3
    """Fresh processes per case; the confidence interval is taken over them."""
    max_rounds: Annotated[int, Field(ge=1, le=100)] | None = None
    """Most rounds for cases whose interval is wider than `target_interval`; None: no further rounds."""
    target_interval: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """Relative half-width of the 95% CI over processes at which a case needs no further round."""
    budget_s: Annotated[float, Field(gt=0, le=MOST_S)] | None = None
    """No further round starts after so many seconds of the command, exports included (of the run stage, where that is
    the command); the first `rounds` are always measured."""
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 20261127
    """Seed of the order of cases within a round, and of random (`seeded`) weights."""
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] | None = None
    """Threads of every backend; None: as many as affinity and the cgroup quota allow."""
    warmup_min_s: Annotated[float, Field(ge=0, le=MOST_S)] = 0.2
    warmup_min_iterations: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] = 10
    warmup_max_s: Annotated[float, Field(ge=0, le=MOST_S)] = 20.0
    window_s: Annotated[float, Field(gt=0, le=MOST_S)] = 0.05
    """Length of one of the three windows whose medians must agree before measuring starts."""
    steady_tolerance: Annotated[float, Field(gt=0, lt=1)] = 0.01
    block_s: Annotated[float, Field(gt=0, le=MOST_S)] = 0.1
    block_iterations: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] = 20
    target_ci: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """Relative half-width of the 95% CI over block medians at which a process stops."""
    min_samples: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] = 100
    max_samples: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] = 20_000
    min_s: Annotated[float, Field(ge=0, le=MOST_S)] = 1.0
    """Shortest warm-up and timed part together: CPU time is counted in ticks of 10 ms, too coarse for a shorter window.
    `max_s` and `warmup_max_s` still end it; a shorter row is not judged by shares of CPU time, and says so."""
    max_s: Annotated[float, Field(gt=0, le=MOST_S)] = 10.0
    """Longest measurement phase of one process; a case that reaches it keeps its samples and says so."""
    timeout_s: Annotated[float, Field(gt=0, le=MOST_S)] = 600.0
    """Longest lifetime of one process, compile time included; after it the case is a `Failed` row."""
    export_timeout_s: Annotated[float, Field(gt=0, le=MOST_S)] = 3600.0
    """Longest export of one model, downloads included; after it the model's cases are `Failed` rows."""
    parity_samples: Annotated[int, Field(ge=8, le=100_000)] = 64
    """Number of different inputs: all are compared with the reference before timing, and they rotate while timing."""


class Tolerance(Record):
    """Tolerance: the largest allowed distance of any sample from the fp32 reference for one precision."""

    relative_l2: Annotated[float, Field(gt=0)]
    top1_agreement: Annotated[float, Field(gt=0, le=1)] | None = None
    """Smallest share of equal arg-max answers; required only of classifiers with trained weights."""
    cosine: Annotated[float, Field(gt=0, le=1)] | None = None
    """Smallest cosine between the outputs for one sample and their reference: the measure for embeddings."""


class ReportOptions(Record):
    title: str = "Inferometer report"
    baseline_backend: str = "torch-eager"
    """Speed-ups are over this backend in fp32, at the same model, batch and sequence length."""
    latency_limit_ms: Annotated[float, Field(gt=0)] | None = None
    """Longest latency that a caller accepts; recommendations name the batch size with the most throughput within it."""
    charts: bool = True


class ExportOptions(Record):
    """How the ONNX file of every module of a plan is written."""

    exporter: Exporter = "dynamo"
    """docs/decisions/0002-exporter.md."""


class EngineOptions(Record):
    """How every TensorRT engine of a plan is built; None leaves it to TensorRT."""

    workspace_mib: Annotated[int, Field(ge=1, le=1 << 24)] | None = None
    """Most memory that a kernel may use as scratch space while it is chosen and run."""
    optimization_level: Annotated[int, Field(ge=0, le=5)] | None = None
    """How long the builder searches; TensorRT's default is 3."""
    hardware_compatible: bool = False
    """For every GPU from Ampere on, which costs speed."""
    version_compatible: bool = False
    """For later TensorRT versions as well, which costs speed."""


class GivenInputs(Record):
    """A file of the user's own inputs, in its state at planning."""

    path: str
    sha256: str
    sequence_length: int | None = None
    """Tokens of a text model; for other models with several files, the dimension that distinguishes their shapes. None
    for a file of texts, which are padded to every length of the plan."""

    @property
    def holds_texts(self) -> bool:
        """Whether it has a text in each line, and no arrays."""
        return self.path.lower().endswith(".txt")


class PlannedModel(Record):
    """A model of the plan: what to load, and its folder below `models/`."""

    name: str
    slug: FileName
    weights: Weights
    kind: Kind
    sequence_lengths: tuple[int, ...] = ()
    exported: bool = True
    """False where none of its cases loads a file, so that there is nothing to export."""
    onnx_precisions: tuple[Precision, ...] = ()
    """ONNX files that the cases of this plan need."""
    onnx_variants: tuple[str, ...] = ()
    """Further ONNX files that settings of this plan load, such as `fp16-fused` (ExportRecord.onnx_variants)."""
    gates: dict[Precision, Tolerance] = {}
    """Tolerances of this model in place of the plan's, which random weights may need."""
    raw_inputs: bool = False
    """True where a case of this plan has the e2e boundary and needs texts or JPEG files."""
    inputs: tuple[GivenInputs, ...] = ()
    """The user's own inputs; empty where the model's usual inputs are used."""


class Case(Record):
    """One case: a model on a backend, with its precision, shape and way of measuring."""

    case_id: FileName
    model: str
    slug: FileName
    backend: str
    device: Device
    precision: Precision
    batch_size: Annotated[int, Field(ge=1)]
    sequence_length: Annotated[int, Field(ge=1)] | None
    boundary: Boundary
    mode: ModeName
    weights: Weights
    setting: str = "default"
    """Name of the backend's setting, from its entry in the table of backends (harness/backends/__init__.py)."""
    tuned: bool = False
    """True where several settings are tried: only the fastest of round 1 gets the other rounds."""
    skip_reason: str | None = None
    """Set where the combination cannot run; such a case is reported and never started."""


class Plan(Identified):
    """Every case to be measured, and how."""

    schema_version: Format2 = 2
    config: str
    config_sha256: str
    device: Device
    models: tuple[PlannedModel, ...]
    measurement: Measurement
    gates: dict[Precision, Tolerance]
    report: ReportOptions
    export: ExportOptions = ExportOptions()
    engines: EngineOptions = EngineOptions()
    cases: tuple[Case, ...]
    loads: tuple[LoadCase, ...] = ()
    """What `load` measures; empty in older files."""
    generation: GenerationOptions = GenerationOptions()
    generations: tuple[GenerationCase, ...] = ()
    """Cases of `generate`, which no row of `run` mixes with."""

    def tolerance(self, model: str, precision: Precision) -> Tolerance | None:
        """The tolerance for a model in a precision; None where none is set."""
        own = next((planned.gates for planned in self.models if planned.name == model), {})
        return own.get(precision) or self.gates.get(precision)
