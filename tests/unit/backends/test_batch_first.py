"""Outputs that a model gives with another axis first reach every comparison with the batch first."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from harness.backends.base import (
    Array,
    Backend,
    BackendJob,
    construct,
)
from harness.backends.batches import empty_export
from harness.core.schemas import Placement, TensorSpec
from tests.synthetic_results import MINILM, case_of


class Answering(Backend):
    """Answers with a batch of four items, first and second axis."""

    def load(self) -> None:
        """Nothing."""

    def select(self, index: int) -> None:
        """Nothing."""

    def infer(self) -> None:
        """Nothing."""

    def outputs(self) -> dict[str, Array]:
        """Two outputs."""
        return {"y": np.zeros((4, 3)), "h": np.arange(2 * 4 * 5).reshape(2, 4, 5)}

    def placement(self) -> Placement:
        """None."""
        raise NotImplementedError


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> BackendJob:
    module = types.ModuleType("answering")
    module.Answering = Answering  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "answering", module)
    case = case_of(MINILM, "onnxruntime", "fp32", 4)
    return BackendJob(case, empty_export(case), Path(), (), 1, Path())


def test_the_batch_is_moved_to_the_front(job: BackendJob) -> None:
    specs = (
        TensorSpec(name="y", dtype="float32", shape=("batch", 3)),
        TensorSpec(name="h", dtype="float32", shape=(2, "batch", 5), batch_axis=1),
    )
    moved = BackendJob(job.case, job.export.model_copy(update={"outputs": specs}), Path(), (), 1, Path())
    outputs = construct("answering:Answering", moved).outputs()
    assert (outputs["y"].shape, outputs["h"].shape) == ((4, 3), (4, 2, 5))
    assert outputs["h"][3, 1].tolist() == [35, 36, 37, 38, 39]


def test_where_every_batch_is_first_nothing_is_put_between(job: BackendJob) -> None:
    assert construct("answering:Answering", job).outputs.__func__ is Answering.outputs  # type: ignore[attr-defined]
