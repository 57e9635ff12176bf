"""TensorRT's layers: what their names tell, and a profile by the GPU that computes."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.backends.base import Job
from harness.backends.profiles.onnx_modules import Graph, Node
from harness.backends.profiles.tensorrt_names import kind_of, members_of, nodes_of
from harness.core.errors import CaseError
from tests.fixtures import tensorrt
from tests.fixtures.computing_gpu import FakeGpu

COPY = "Reformatting CopyNode for Input Tensor 0 to /conv1/Conv + /relu/Relu"
REGION = "{ForeignNode[/model/Cast.../model/Add (Unnamed Layer* 1440) [Normalization]]}"


@pytest.mark.parametrize(
    ("name", "members", "kind"),
    [
        ("/conv1/Conv + /relu/Relu", ("/conv1/Conv", "/relu/Relu"), "Layer"),
        ("/maxpool/MaxPool", ("/maxpool/MaxPool",), "Layer"),
        (COPY, (), "Reformat"),
        (REGION, ("/model/Cast", "/model/Add (Unnamed Layer* 1440) [Normalization]"), "ForeignNode"),
    ],
)
def test_names_tell_members(name: str, members: tuple[str, ...], kind: str) -> None:
    assert members_of(name) == members
    assert kind_of(name) == kind


def test_a_region_holds_everything_between_its_ends() -> None:
    graph = Graph(tuple(Node(name, "Add", (), (name,)) for name in "abcde"))
    assert [node.name for node in nodes_of("{ForeignNode[b...d]}", graph)] == ["b", "c", "d"]
    assert [node.name for node in nodes_of("{ForeignNode[b...unknown]}", graph)] == ["b"]
    assert [node.name for node in nodes_of("e + a", graph)] == ["e", "a"]


@pytest.fixture
def profiler(monkeypatch: pytest.MonkeyPatch) -> Any:
    tensorrt.install(monkeypatch, FakeGpu())
    return importlib.import_module("harness.backends.profiles.tensorrt_layers")


def job(folder: Path, times: dict[str, float]) -> Job:
    from tests.unit.backends.test_tensorrt import BATCHES, PLAN, case, export, record

    (folder / "engines").mkdir()
    (folder / "engines/it.plan").write_text(json.dumps({**PLAN, "times": times}))
    graph = {"profiles": "static", "graph": True}
    return Job(case("compute"), export(), folder, BATCHES[:2], 1, folder, graph, engine=record())


def test_layers_are_told_in_order_with_what_they_were_fused_from(profiler: Any, tmp_path: Path) -> None:
    given = job(tmp_path, {COPY: 0.25, "/conv1/Conv + /relu/Relu": 1.5})
    found = profiler.profile(given, given.batches, tmp_path / "out", 4)
    assert [(row.name, row.self_ns, row.members, row.group) for row in found.layers] == [
        (COPY, 250_000, (), "layout"),
        ("/conv1/Conv + /relu/Relu", 1_500_000, ("/conv1/Conv", "/relu/Relu"), "other"),
    ]
    assert "Profiled without the CUDA graph that the case is timed with." in found.notes
    assert found.notes[-1].startswith("The export has no fp32 file")
    trace = json.loads((tmp_path / "out" / found.traces[0]).read_text())["traceEvents"]
    assert [one["dur"] for one in trace if one["ph"] == "X"] == [250, 1500]


def test_every_batch_is_run_without_a_graph(profiler: Any, tmp_path: Path) -> None:
    given = job(tmp_path, {"a": 1.0})
    only = [{"ids": np.zeros((2, 3), np.int64)}]
    found = profiler.profile(replace(given, options={"profiles": "static"}), only, tmp_path / "out", 3)
    assert not any("CUDA graph" in note for note in found.notes)


def test_an_engine_that_reports_nothing_says_so(profiler: Any, tmp_path: Path) -> None:
    given = job(tmp_path, {})
    with pytest.raises(CaseError, match="reported no layers"):
        profiler.profile(given, given.batches, tmp_path / "out", 2)
