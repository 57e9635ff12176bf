"""Tuning of a step on this GPU: the time of each of cuDNN's plans for it, by CUDA events around a captured graph of
launches; and the record of the fastest, kept between processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from pycuda import driver

from harness.backends.cuda.graph import Graph
from harness.core import store
from harness.core.errors import CaseError, FormatError, MissingInputError
from harness.core.schemas.vocabulary import Record

LAUNCHES = 5
"""In one captured graph: short kernels would else be timed by how fast the host launches them."""
TRIALS = 5
FINALISTS = 4
"""Plans that are timed again: the first time of many candidates is the smallest by chance, too."""
HOPELESS = 3.0
"""A plan whose first pass takes this many times the best is not timed further."""

Launch = Callable[[], None]


@dataclass(frozen=True)
class TimedCandidate:
    """A candidate and the median device time of one launch in ns."""

    index: int
    device_ns: float


def fastest(stream: Any, candidates: Sequence[Launch]) -> list[TimedCandidate]:
    """The FINALISTS among those that could be captured, the fastest first; `index` counts in `candidates`."""
    first: list[TimedCandidate] = []
    for index, launch in enumerate(candidates):
        best = min((launch.device_ns for launch in first), default=math.inf)
        spent = launch_time(stream, launch, 1, launches=1)
        if spent is not None and spent < HOPELESS * best:
            spent = launch_time(stream, launch, 2)
            first += [] if spent is None else [TimedCandidate(index, spent)]
    first.sort(key=lambda launch: launch.device_ns)
    last = [
        TimedCandidate(launch.index, _number_or_infinity(launch_time(stream, candidates[launch.index], TRIALS)))
        for launch in first[:FINALISTS]
    ]
    return sorted(last, key=lambda launch: launch.device_ns)


def launch_time(stream: Any, launch: Launch, trials: int, launches: int = LAUNCHES) -> float | None:
    """Median ns of one launch; None where it cannot be launched or captured: no graph of an inference could hold it."""

    def repeat() -> None:
        for _ in range(launches):
            launch()

    try:
        launch()  # a library may load its kernel on the first launch, which no graph can capture
        stream.synchronize()
        graph = Graph(stream, repeat)
    except (CaseError, RuntimeError):  # of Graph, of cuDNN's frontend; a fault of the device itself is neither
        return None
    try:
        graph.launch()  # to warm up
        events = [(driver.Event(), driver.Event()) for _ in range(trials)]
        for begin, end in events:
            begin.record(stream)
            graph.launch()
            end.record(stream)
        stream.synchronize()
        return float(median(begin.time_till(end) for begin, end in events)) * 1e6 / launches
    finally:
        graph.close()


def _number_or_infinity(value: float | None) -> float:
    return math.inf if value is None else value


class TuningPlace(Record):
    """The conditions for which a choice is valid: library, GPU and model file. In another place the steps are tuned
    again."""

    cudnn: int
    frontend: str
    gpu: str
    onnx_sha256: str


class TunedStep(Record):
    """The kernel of one signature. form: precompiled or generated (graphs.FORMS); of a pooling: library or own."""

    form: str
    plan: str
    """The name of a plan as cuDNN gives it, or of the function."""
    workspace_bytes: int
    device_ns: float
    """Of one pass of the step alone, the median of the last round of tuning."""
    tried: int
    """Kernels that were timed for it."""


class TunedPlans(Record):
    """plans.json: the kernels by signature."""

    schema_version: Literal[1] = 1
    place: TuningPlace
    steps: dict[str, TunedStep]


def read_tuned(path: Path, place: TuningPlace) -> Mapping[str, TunedStep]:
    """The steps that an earlier process tuned in this place; empty where there are none that can be read."""
    try:
        plans = store.load(path, TunedPlans, "make run")
    except (FormatError, MissingInputError):
        return {}
    return plans.steps if plans.place == place else {}


def write_tuned(path: Path, place: TuningPlace, steps: Mapping[str, TunedStep]) -> None:
    """Save them, in one move: plans.json."""
    path.parent.mkdir(parents=True, exist_ok=True)
    store.save(path, TunedPlans(place=place, steps=dict(steps)))
