"""The record of tuning: which of cuDNN's plans was the fastest for each step, kept between processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from harness.core import store
from harness.core.errors import FormatError, MissingInputError
from harness.core.schemas.vocabulary import Record


class TunedStep(Record):
    """The plan of one signature. form, plan: of graphs.FusedGraph, the name as cuDNN gives it."""

    form: str
    plan: str
    workspace_bytes: int
    device_ns: float
    """Of one pass of the step alone, the median of the last round of tuning."""
    tried: int
    """Plans that were timed for it."""


class TunedPlans(Record):
    """plans.json: the plans by signature, for one GPU and one version of cuDNN (both are in the folder's name)."""

    schema_version: Literal[1] = 1
    steps: dict[str, TunedStep]


def read(path: Path) -> Mapping[str, TunedStep]:
    """The tuned steps of an earlier process; empty where there are none that can be read: they are tuned again."""
    try:
        return store.load(path, TunedPlans, "make run").steps
    except (FormatError, MissingInputError):
        return {}


def write(path: Path, steps: Mapping[str, TunedStep]) -> None:
    """Save them, in one move."""
    path.parent.mkdir(parents=True, exist_ok=True)
    store.save(path, TunedPlans(steps=dict(steps)))
