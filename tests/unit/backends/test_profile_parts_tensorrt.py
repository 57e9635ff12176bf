"""TensorRT's layers: what their names show, and a profile by the GPU that computes."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.backends.base import BackendJob
from harness.backends.onnx_node_names import (
    Node,
    NodeIndex,
    exported_graph,
    module_and_group,
)
from harness.backends.tensorrt.layers import kind_of, members_of, nodes_of
from harness.core.errors import CaseError
from harness.core.schemas import OnnxArtifact
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
def test_members_follow_from_names(name: str, members: tuple[str, ...], kind: str) -> None:
    assert members_of(name) == members
    assert kind_of(name) == kind


def test_a_region_holds_everything_between_its_ends() -> None:
    graph = NodeIndex(tuple(Node(name, "Add", (), (name,)) for name in "abcde"))
    assert [node.name for node in nodes_of("{ForeignNode[b...d]}", graph)] == ["b", "c", "d"]
    assert [node.name for node in nodes_of("{ForeignNode[b...unknown]}", graph)] == ["b"]
    assert [node.name for node in nodes_of("e + a", graph)] == ["e", "a"]


@pytest.mark.parametrize(
    ("name", "module", "group"),
    [  # TensorRT 8.6.0's own, of ResNet-50 on an H200
        ("/conv1/Conv + /relu/Relu", "conv1", "convolution"),
        ("/layer1/layer1.0/conv2/Conv + /layer1/layer1.0/relu_1/Relu", "layer1.0.conv2", "convolution"),
        (
            "/layer1/layer1.0/downsample/downsample.0/Conv + /layer1/layer1.0/Add + /layer1/layer1.0/relu_2/Relu",
            "layer1.0.downsample.0",
            "convolution",
        ),
        ("/maxpool/MaxPool", "maxpool", "pooling"),
        ("/avgpool/GlobalAveragePool", "avgpool", "pooling"),
        ("/fc/Gemm", "fc", "linear"),
        ("/layer1/layer1.0/Add_1", "layer1.0", "other"),
        ("/Flatten", "(model)", "other"),
        ("reshape_after_/fc/Gemm", None, "other"),
        (COPY, None, "layout"),
        (REGION, None, "other"),
    ],
)
def test_modules_follow_from_names_where_this_python_cannot_read_the_file(
    name: str, module: str | None, group: str
) -> None:
    assert module_and_group(nodes_of(name, NodeIndex(())), kind_of(name)) == (module, group)


@pytest.fixture
def profiler(monkeypatch: pytest.MonkeyPatch) -> Any:
    tensorrt.install(monkeypatch, FakeGpu())
    return importlib.import_module("harness.backends.tensorrt.profile")


def job(folder: Path, times: dict[str, float]) -> BackendJob:
    from tests.unit.backends.test_tensorrt import BATCHES, PLAN, case, export, record

    (folder / "engines").mkdir()
    (folder / "engines/it.plan").write_text(json.dumps({**PLAN, "times": times}))
    graph = {"profiles": "static", "graph": True}
    return BackendJob(case("compute"), export(), folder, BATCHES[:2], 1, folder, graph, engine=record())


def test_layers_are_listed_in_order_with_their_members(profiler: Any, tmp_path: Path) -> None:
    given = job(tmp_path, {COPY: 0.25, "/conv1/Conv + /relu/Relu": 1.5, "reshape_after_/fc/Gemm": 0.0})
    result = profiler.profile(given, given.batches, tmp_path / "out", 4)
    assert [(row.name, row.self_ns, row.members, row.group) for row in result.layers] == [
        (COPY, 250_000, (), "layout"),
        ("/conv1/Conv + /relu/Relu", 1_500_000, ("/conv1/Conv", "/relu/Relu"), "convolution"),
        ("reshape_after_/fc/Gemm", 0, (), "other"),
    ]
    assert "Profiled without the CUDA graph that the case is timed with." in result.notes
    assert not any("fp32 file" in note for note in result.notes)  # it is not needed: the names show all
    trace = json.loads((tmp_path / "out" / result.traces[0]).read_text())["traceEvents"]
    assert [entry["dur"] for entry in trace if entry["ph"] == "X"] == [250, 1500, 0]


def test_a_layer_without_a_module_has_a_reason(profiler: Any, tmp_path: Path) -> None:
    given = job(tmp_path, {"node_conv2d_3": 1.5})
    result = profiler.profile(given, given.batches, tmp_path / "out", 2)
    assert result.notes[-1].startswith("The export has no fp32 file")


@pytest.mark.parametrize(("used", "read"), [("fp16-opset17.onnx", "older"), ("fp16.onnx", "newer")])
def test_the_graph_is_of_the_exporter_that_wrote_the_engines_file(
    profiler: Any, tmp_path: Path, used: str, read: str
) -> None:
    onnx = pytest.importorskip("onnx")
    files = {"fp16-opset17": "", "fp32-opset17": "older", "fp16": "", "fp32": "newer"}
    artifacts = {}
    for name, operator in files.items():
        if operator:
            graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"], name=operator)], "g", [], [])
            onnx.save(onnx.helper.make_model(graph), tmp_path / f"{name}.onnx")
        artifacts[name] = OnnxArtifact(
            path=f"{name}.onnx", sha256="0", size_bytes=1, exporter="test", opset=17, dtype_census={}
        )
    given = job(tmp_path, {"a": 1.0})
    forms = {name: artifact for name, artifact in artifacts.items() if "-" in name}
    own = {name: artifact for name, artifact in artifacts.items() if "-" not in name}
    engine = given.engine
    assert engine is not None
    given = replace(
        given,
        export=given.export.model_copy(update={"onnx": own, "onnx_variants": forms}),
        engine=engine.model_copy(update={"request": engine.request.model_copy(update={"onnx": used})}),
    )
    graph, why = exported_graph(given)
    assert [node.name for node in graph.nodes] == [read]
    assert why == ()
    variant = replace(given, engine=None, options={"variant": "opset17"})
    assert [node.name for node in exported_graph(variant)[0].nodes] == ["older"]
    assert [node.name for node in exported_graph(replace(given, engine=None, options={}))[0].nodes] == ["newer"]


def test_every_batch_is_run_without_a_graph(profiler: Any, tmp_path: Path) -> None:
    given = job(tmp_path, {"a": 1.0})
    only = [{"ids": np.zeros((2, 3), np.int64)}]
    result = profiler.profile(replace(given, options={"profiles": "static"}), only, tmp_path / "out", 3)
    assert not any("CUDA graph" in note for note in result.notes)


def test_an_engine_that_reports_nothing_says_so(profiler: Any, tmp_path: Path) -> None:
    given = job(tmp_path, {})
    with pytest.raises(CaseError, match="reported no layers"):
        profiler.profile(given, given.batches, tmp_path / "out", 2)
