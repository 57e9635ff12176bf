"""The batch size that an ONNX file is fixed to, from its bytes; and what a plan makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

from harness import plan  # noqa: E402
from harness.core.errors import UnavailableError  # noqa: E402
from harness.planning.config import parse_config  # noqa: E402
from harness.planning.matrix import make_plan  # noqa: E402
from harness.zoo.file_graph import fixed_batch_of, graph_of  # noqa: E402
from tests.fixtures import odd_onnx as files  # noqa: E402


def test_the_shapes_of_inputs_and_a_fixed_batch_are_read(tmp_path: Path) -> None:
    stepping = files.stepping(tmp_path / "s.onnx")
    assert graph_of(stepping).inputs == {"x": ("batch", 8), "state": (2, "batch", 4), "camera": (8, 4)}
    assert fixed_batch_of(graph_of(stepping)) is None
    assert fixed_batch_of(graph_of(files.one_at_a_time(tmp_path / "one.onnx"))) == 1
    (tmp_path / "none.onnx").write_bytes(b"no protobuf")
    assert fixed_batch_of(graph_of(tmp_path / "none.onnx")) is None


def test_a_plan_reads_a_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = files.reads_of(plan, monkeypatch)
    path = files.one_at_a_time(tmp_path / "one.onnx")
    plan.stage(["--config", "smoke", "--models", str(path), "--results", str(tmp_path / "results")])
    assert read == [path]


def test_cases_of_another_batch_size_are_skipped() -> None:
    block = {"backends": ["onnxruntime"], "batch_sizes": [1, 8]}
    config = parse_config({"models": ["onnx:one.onnx"], "matrix": [block]}, "x.yaml")
    cases = make_plan(config, "x.yaml", "", fixed={"onnx:one.onnx": 1}).cases
    why = {case.batch_size: case.skip_reason for case in cases}
    assert why == {1: None, 8: "the file is fixed to batch size 1: BATCHES=1 measures it"}


@pytest.mark.parametrize("load", [False, True])
def test_a_file_of_no_samples_gets_a_hint_that_is_about_the_file(tmp_path: Path, load: bool) -> None:
    """BATCHES=0 is refused as well."""
    path = files.empty_batch(tmp_path / "none.onnx")
    assert fixed_batch_of(graph_of(path)) == 0
    options = ["--load", "--scenarios", "single-stream"] if load else []
    with pytest.raises(UnavailableError) as caught:
        plan.stage(["--config", "smoke", "--models", str(path), "--results", str(tmp_path / "results"), *options])
    assert "fixed to batch size 0, which has no samples to measure" in caught.value.problem
    assert "BATCH" not in caught.value.problem + caught.value.hint
    assert "Export that file again with a dynamic batch axis" in caught.value.hint


@pytest.mark.parametrize(
    ("scenario", "fixed", "remedy"),
    [
        ({"scenario": "server", "bound": "p99<50ms", "max_batch": [8]}, 1, "MAX_BATCH=1"),
        ({"scenario": "server", "bound": "p99<50ms", "max_batch": [8]}, 4, "SCENARIOS=offline MAX_BATCH=4"),
        ({"scenario": "offline", "max_batch": [8]}, 4, "MAX_BATCH=4"),
        ({"scenario": "multi-stream", "samples": 8}, 4, "SAMPLES=4"),
        ({"scenario": "offline", "max_batch": [4]}, 4, None),
        ({"scenario": "single-stream"}, 1, None),
    ],
)
def test_loads_of_another_batch_size_are_skipped(scenario: dict[str, object], fixed: int, remedy: str | None) -> None:
    block = {"backends": ["onnxruntime"], "batch_sizes": [fixed]}
    data = {"models": ["onnx:m.onnx"], "matrix": [block], "scenarios": [scenario]}
    (load,) = make_plan(parse_config(data, "x.yaml"), "x.yaml", "", fixed={"onnx:m.onnx": fixed}).loads
    assert load.skip_reason == (remedy and f"the file is fixed to batch size {fixed}: {remedy} serves it")
