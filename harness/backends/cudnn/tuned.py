"""The record of tuning: which kernel was the fastest for each step, kept between processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from harness.core import store
from harness.core.errors import FormatError, MissingInputError
from harness.core.schemas.vocabulary import Record


class Place(Record):
    """What a choice is valid for: library, GPU and model file. In another place the steps are tuned again."""

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
    place: Place
    steps: dict[str, TunedStep]


def read(path: Path, place: Place) -> Mapping[str, TunedStep]:
    """The steps that an earlier process tuned in this place; empty where there are none that can be read."""
    try:
        plans = store.load(path, TunedPlans, "make run")
    except (FormatError, MissingInputError):
        return {}
    return plans.steps if plans.place == place else {}


def write(path: Path, place: Place, steps: Mapping[str, TunedStep]) -> None:
    """Save them, in one move."""
    path.parent.mkdir(parents=True, exist_ok=True)
    store.save(path, TunedPlans(place=place, steps=dict(steps)))
