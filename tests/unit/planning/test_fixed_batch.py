"""ONNX files that take one batch size: cases and loads of other sizes are skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.planning.config import parse_config
from harness.planning.matrix import make_plan
from harness.zoo.file_graph import fixed_batch_of
from tests.fixtures import odd_onnx as files

ONE, FREE = "onnx:one.onnx", "onnx:free.onnx"
MATRIX = [{"backends": ["onnxruntime"], "batch_sizes": [1, 4]}]


def planned(fixed: int, **more: Any) -> Any:
    config = parse_config({"models": [ONE, FREE], "matrix": MATRIX, **more}, "my.yaml")
    return make_plan(config, "my.yaml", "", fixed={ONE: fixed})


def test_the_fixed_batch_is_read_from_the_file(tmp_path: Path) -> None:
    assert fixed_batch_of(files.one_at_a_time(tmp_path / "one.onnx")) == 1
    assert fixed_batch_of(files.linear(tmp_path / "free.onnx")) is None
    assert fixed_batch_of(tmp_path / "absent.onnx") is None
    (tmp_path / "text.onnx").write_text("no protobuf")
    assert fixed_batch_of(tmp_path / "text.onnx") is None


def test_cases_of_other_sizes_are_skipped_with_the_size_to_ask_for() -> None:
    skipped = {(case.model, case.batch_size): case.skip_reason for case in planned(4).cases}
    assert skipped == {
        (ONE, 1): "the file is fixed to batch size 4: BATCHES=4 measures it",
        (ONE, 4): None,
        (FREE, 1): None,
        (FREE, 4): None,
    }


@pytest.mark.parametrize(
    ("fixed", "scenario", "remedy"),
    [
        (1, {"scenario": "server", "bound": "p99<50ms", "max_batch": [1]}, None),
        (1, {"scenario": "server", "bound": "p99<50ms", "max_batch": [4]}, "MAX_BATCH=1"),
        (4, {"scenario": "offline", "max_batch": [4]}, None),
        (4, {"scenario": "server", "bound": "p99<50ms", "max_batch": [4]}, "SCENARIOS=offline MAX_BATCH=4"),
    ],
)
def test_loads_that_would_serve_other_sizes_are_skipped(
    fixed: int, scenario: dict[str, Any], remedy: str | None
) -> None:
    loads = {load.model: load.skip_reason for load in planned(fixed, scenarios=[scenario]).loads}
    why = None if remedy is None else f"the file is fixed to batch size {fixed}: {remedy} serves it"
    assert loads == {ONE: why, FREE: None}
