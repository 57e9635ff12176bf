"""results/raw/<case_id>/<round>.json: what one process measured. No statistic is stored here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.schemas.vocabulary import Record


class Clock(Record):
    name: str
    resolution_ns: float
    overhead_ns: int
    """Median of two reads back to back."""


class Block(Record):
    """One stretch of the timed loop without anything but inferences in it."""

    iterations: int
    wall_ns: int
    device_ns: int | None = None
    """Offline mode on a GPU: between events before the first and behind the last inference of the block."""
    enqueue_ns: int | None = None
    """Offline mode on a GPU: host time until the last submission returned."""


class Parity(Record):
    """Distance of a case's outputs from the fp32 reference (harness/parity.py)."""

    samples: int
    relative_l2: float | None
    """None when an output is not finite."""
    max_abs: float | None
    cosine: float | None
    top1_agreement: float | None
    """Share of equal arg-max answers; None where the model is no classifier."""
    nonfinite: int


NO_FLOATS = "integers"
"""Placement.precision of a model in which nothing is a floating-point number: no precision is a wrong label of it."""


class Placement(Record):
    """What really ran, read from the session, graph or module; never from the request."""

    device: str
    precision: str
    """One of the plan's words, several of them joined by `+`, NO_FLOATS, or in words what ran instead."""
    provider: str
    settings: dict[str, str | int | float | bool]
    """Settings that decide speed: threads, streams, layout, graph breaks, …"""
    dtype_census: dict[str, int]
    """Operators or weight elements by element type."""


class Memory(Record):
    peak_rss_bytes: int
    """Peak resident set of the process: interpreter, libraries, model, inputs."""
    baseline_rss_bytes: int
    """Resident set after imports and before load."""


class ColdCosts(Record):
    """Time until the first answer; `None` where the backend has no such step."""

    load: int
    compile: int | None
    compile_cached: bool | None
    """True when a compile cache of an earlier process was found, so that `compile` is not the full cost."""
    first_inference: int


class RawBase(Record):
    schema_version: Literal[1] = 1
    case_id: str
    round: int
    plan_id: str
    started_at: str
    environment_id: str | None


class SplitSamples(Record):
    """The three parts of each e2e sample, in ns: together they are the sample."""

    preprocess: tuple[int, ...]
    inference: tuple[int, ...]
    postprocess: tuple[int, ...]


class DeviceSamples(Record):
    """The same samples as a GPU's event clock and the submitting host saw them, in ns (harness/measure/device.py)."""

    clock: Clock
    """Name, resolution, and the device time between two events recorded back to back."""
    device_ns: tuple[int, ...]
    """Between two events around all that one sample enqueues, on the backend's own stream or streams."""
    enqueue_ns: tuple[int, ...]
    """Host time until the submission returned."""
    h2d_ns: tuple[int, ...] = ()
    """Transfer boundary: copy from pinned host memory, the pass, and the copy back. In sync mode together device_ns; in
    pipelined mode device_ns also holds their waiting for one another and for other batches."""
    compute_ns: tuple[int, ...] = ()
    d2h_ns: tuple[int, ...] = ()


class Measured(RawBase):
    status: Literal["measured"] = "measured"
    artifacts: dict[str, str]
    """sha256 by file name of what was loaded."""
    threads: int
    clock: Clock
    warmup_ns: tuple[int, ...]
    latency_ns: tuple[int, ...]
    """Empty in offline mode, which waits for a block and not for a batch: its blocks are its samples."""
    split_ns: SplitSamples | None = None
    """For the e2e boundary."""
    device: DeviceSamples | None = None
    """On a GPU; its tuples are empty in offline mode, whose blocks carry their own."""
    blocks: tuple[Block, ...]
    steady: bool
    """The three warm-up windows agreed."""
    stop: Literal["converged", "time limit", "sample limit"]
    parity_before: Parity | None
    """All inputs, before timing. None where the backend computes nothing (noop)."""
    parity_timed: Parity | None
    """Outputs of timed iterations, taken between blocks."""
    placement: Placement
    memory: Memory
    cold_ns: ColdCosts
    notes: tuple[str, ...] = ()


class Failed(RawBase):
    status: Literal["failed"] = "failed"
    error: str
    hint: str
    phase: str
    """Where it happened: start, load, compile, reference check, warm-up, measure, outputs check."""
    stderr_tail: str


RawRecord = Annotated[Measured | Failed, Field(discriminator="status")]
