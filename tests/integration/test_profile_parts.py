"""Every profiler of the table on a real model: parts add up, modules are reported, traces open."""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.backends import BACKENDS
from harness.backends.base import Backend
from harness.backends.onnx_node_names import NodeIndex
from harness.backends.profile_timing import inference_span
from harness.core.layout import Models
from harness.core.schemas.profile_record import OperatorRow, PartsProfile
from harness.profiling.layers import ns_by_group, total_ns
from tests.fixtures.computing_gpu import FakeGpu
from tests.fixtures.forked import run_forked
from tests.fixtures.onnxruntime_gpu import NODE_US, START_NS, Runtime, install
from tests.fixtures.stages import ROOT, latest_export

pytestmark = pytest.mark.stages

RUNS = 8


def profiled(backend: str, exports: Models, out: Path, batch: int = 2) -> PartsProfile:
    """In a process of its own, as the stage does it."""
    folder = latest_export(exports, "*tiny*")[0].root
    out.mkdir(exist_ok=True)
    words = [backend, str(folder), str(out), str(RUNS), str(batch)]
    done = run_forked("tests.fixtures.profile_once", words, ROOT, os.environ)
    assert done.returncode == 0, done.stderr
    return PartsProfile.model_validate_json((out / "parts.json").read_text())


@pytest.fixture(scope="module")
def eager(exports: Models, tmp_path_factory: pytest.TempPathFactory) -> tuple[PartsProfile, Path]:
    """The profile of torch-eager and the folder of its traces."""
    out = tmp_path_factory.mktemp("eager")
    return profiled("torch-eager", exports, out), out


def names(events: object) -> set[str]:
    result = events["traceEvents"] if isinstance(events, dict) else events
    assert isinstance(result, list)
    return {str(event.get("name")) for event in result}


def test_modules_of_torch_eager_add_up_to_the_model_itself(eager: tuple[PartsProfile, Path]) -> None:
    result, _ = eager
    rows = {row.name: row for row in result.layers}
    assert list(rows) == ["(model)", "layers", "layers.0", "layers.1", "layers.2"]
    # Each row is rounded to whole ns by itself.
    assert total_ns(result.layers) == pytest.approx(rows["(model)"].total_ns, abs=len(rows))
    assert rows["(model)"].total_ns <= result.window_ns
    assert {name: row.calls for name, row in rows.items()} == dict.fromkeys(rows, 1)
    assert rows["layers.0"].flops == 2 * 2 * 16 * 64
    assert rows["(model)"].flops == 2 * 2 * (16 * 64 + 64 * 4)
    assert rows["layers"].parameters == 16 * 64 + 64 + 64 * 4 + 4
    assert rows["layers.0"].output_shapes == ((2, 64),)
    assert rows["layers.0"].output_bytes == 2 * 64 * 4
    assert (rows["layers.0"].parent, rows["layers.0"].depth) == ("layers", 2)
    assert set(ns_by_group(result.layers)) == {"linear", "activation", "other"}


def test_torch_eager_reports_operators_and_both_traces(eager: tuple[PartsProfile, Path]) -> None:
    result, out = eager
    addmm = [row for row in result.operators if row.name == "aten::addmm"]
    assert {row.shapes for row in addmm} == {"[64] [2,16] [16,64]", "[4] [2,64] [64,4]"}
    assert [row.calls for row in addmm] == [1, 1]
    assert all(row.self_device_ns is None for row in result.operators)
    modules, operators = (names(json.loads((out / trace).read_text())) for trace in result.traces)
    assert "layers.2" in modules
    assert "aten::addmm" in operators


def test_no_hook_is_left_on_the_module() -> None:
    torch = pytest.importorskip("torch")
    from harness.backends.torch.profile_modules import HostStamps, recording

    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    with recording(module, HostStamps()) as recorded:
        module(torch.ones(1, 2))
    assert [path for path, begins, _ in recorded if begins] == ["(model)", "0", "1"]
    recorded.clear()
    module(torch.ones(1, 2))
    assert recorded == []


def test_torch_script_says_why_it_has_no_layers(exports: Models, tmp_path: Path) -> None:
    result = profiled("torch-script", exports, tmp_path)
    assert result.layers == ()
    assert result.operators
    assert result.notes[0].startswith("No layers: ")


def test_nodes_of_onnxruntime_are_reported_by_module(exports: Models, tmp_path: Path) -> None:
    result = profiled("onnxruntime", exports, tmp_path)
    assert [(row.parent, row.group, row.output_shapes) for row in result.layers] == [
        ("layers.0", "linear", ((2, 64),)),
        ("layers.2", "linear", ((2, 4),)),
    ]
    assert result.layers[0].members == ("node_linear", "node_relu")
    assert 0 < total_ns(result.layers) <= result.window_ns
    events = json.loads((tmp_path / result.traces[0]).read_text())
    assert {f"{row.name}_kernel_time" for row in result.layers} <= names(events)


def test_nodes_of_openvino_are_reported_by_module(exports: Models, tmp_path: Path) -> None:
    """A large batch: of a kernel below 1 µs OpenVINO reports nothing. How many kernels it makes is the processor's."""
    result = profiled("openvino", exports, tmp_path, batch=4096)
    assert result.layers[-1].output_shapes == ((4096, 4),)
    assert {row.parent for row in result.layers} in ({"layers"}, {"layers.0", "layers.2"})
    assert {row.group for row in result.layers} == {"linear"}
    assert "node_relu" in result.layers[0].members
    assert {row.name for row in result.layers} <= names(json.loads((tmp_path / result.traces[0]).read_text()))


def test_nodes_of_a_quantised_file_match_the_file_that_it_was_made_from() -> None:
    pytest.importorskip("openvino")
    from harness.backends.onnx_node_names import Node, NodeIndex
    from harness.backends.openvino.profile import Executed, layer_rows

    graph = NodeIndex((Node("node_MatMul_1", "MatMul", ("x", "w"), ("val",), "mlp.fc1", ("mlp", "fc1", "Linear")),))
    nodes = [
        Executed("node_MatMul_1_quant", "FullyConnected", ("node_MatMul_1_quant",), ((2, 4),), 32),
        Executed("Reorder_7", "Reorder", (), ((2, 4),), 32),
        Executed("never ran", "Const", (), (), 0),
    ]
    rows = layer_rows(nodes, {"Reorder_7": 5, "node_MatMul_1_quant": 9}, graph)
    assert [(row.name, row.parent, row.group, row.self_ns) for row in rows] == [
        ("Reorder_7", None, "layout", 5),
        ("node_MatMul_1_quant", "mlp.fc1", "mlp", 9),
    ]


def test_means_since_the_warm_up_come_from_means_since_the_start() -> None:
    pytest.importorskip("openvino")
    from harness.backends.openvino.profile import mean_times_since

    # 5 inferences of 4 µs, then 10 of 1 µs: the mean over all 15 is 2 µs.
    assert mean_times_since({"a": 4000}, {"a": 2000, "late": 3000}, earlier=5, runs=10) == {"a": 1000, "late": 4500}


@dataclass
class Played:
    """torch.profiler on a GPU that computes but has no CUPTI: each node on the GPU launches one kernel of 5 µs."""

    runtime: Runtime
    late_us: float = 0.0
    """The distance of the launches from their nodes."""
    names: list[str] = field(default_factory=list)

    def operators(self, backend: Backend, folder: Path, runs: int, name: str = "") -> Any:
        from harness.backends.torch.profile_operators import Operators

        self.names.append(name)
        trace: list[dict[str, Any]] = []
        for index in range(runs):
            begin = self.runtime.clock_us
            inference_span(backend, index)
            for place in (0, 2):  # of three nodes; the other is on the CPU
                at = begin + 2 * NODE_US * place + 3.5 + self.late_us
                about = {"correlation": len(trace), "stream": 7}
                trace.append({"cat": "cuda_runtime", "ts": at - BASE_US, "dur": 4.0, "args": about})
                trace.append({"cat": "kernel", "ts": at + 100, "dur": 5.0 + place, "args": about})
        kernel = OperatorRow(name="gemm", shapes="", calls=2, self_cpu_ns=0, self_device_ns=12)
        return Operators((kernel,), 7, tuple(trace), runs, START_NS + 1000 * BASE_US)


BASE_US = 50
"""The two profiles count from different moments."""


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    pytest.importorskip("torch")
    result = Played(install(monkeypatch, FakeGpu()))
    name = "harness.backends.onnxruntime.profile_cuda"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    del sys.modules[name]
    profiler = importlib.import_module(name)
    monkeypatch.setattr(profiler, "operators", result.operators)
    monkeypatch.setattr(profiler, "exported_graph", lambda job: (NodeIndex(()), ("No names.",)))
    return result


def on_a_gpu(folder: Path, **options: Any) -> PartsProfile:
    from harness.backends.base import BackendJob
    from tests.unit.backends.test_onnxruntime_cuda import BATCHES, MODEL, case, export

    for file in ("model.onnx", "model-fp16.onnx", "model-fp16-fused.onnx"):
        (folder / file).write_text(json.dumps(MODEL))
    job = BackendJob(case("compute", "fp16"), export(), folder, BATCHES, 1, folder, options)
    result: PartsProfile = importlib.import_module("harness.backends.onnxruntime.profile_cuda").profile(
        job, folder / "out", 3
    )
    return result


@pytest.mark.parametrize("graph", [True, False])
def test_onnxruntime_on_a_gpu_reports_nodes_by_their_kernels(played: Played, tmp_path: Path, graph: bool) -> None:
    result = on_a_gpu(tmp_path, graph=graph)
    assert [(row.name, row.kind, row.parent, row.self_ns, row.calls) for row in result.layers] == [
        ("0", "MatMul", "block.part0", 5_000, 1),
        ("1", "Concat", "block.part1", 0, 1),
        ("2", "Softmax", "block.part2", 7_000, 1),
    ]
    assert [row.name for row in result.operators] == ["gemm"]
    assert played.names == ["", "nodes.pt.trace.json"]
    assert any("without the CUDA graph" in note for note in result.notes) is graph
    assert result.notes[-1] == "No names."


def test_launches_that_are_in_no_node_leave_the_kernels_alone(played: Played, tmp_path: Path) -> None:
    played.late_us = NODE_US
    result = on_a_gpu(tmp_path)
    assert (result.layers, result.window_ns, [row.name for row in result.operators]) == ((), 7, ["gemm"])
    assert result.notes == ("No layers: only 0% of the GPU's time was launched within a node.",)


def test_the_reason_for_missing_nodes_is_with_the_kernels(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(job: object) -> None:
        raise RuntimeError("a reason\nand more of it")

    monkeypatch.setattr(sys.modules["harness.backends.onnxruntime.profile_cuda"], "exported_graph", fails)
    result = on_a_gpu(tmp_path)
    assert result.layers == ()
    assert result.notes == ("No layers: RuntimeError: a reason and more of it",)
    assert [row.name for row in result.operators] == ["gemm"]


def test_the_profiles_of_onnxruntime_and_of_torch_count_from_the_same_epoch(tmp_path: Path) -> None:
    """What ties launches to nodes: a run of ONNX Runtime lies within the range in which torch.profiler saw it."""
    ort, torch = pytest.importorskip("onnxruntime"), pytest.importorskip("torch")
    onnx = pytest.importorskip("onnx")
    from torch.profiler import ProfilerActivity, profile, record_function

    shape = [64, 64]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"]
    nodes = [onnx.helper.make_node("MatMul", [*pair[0]], [pair[1]]) for pair in (("xx", "a"), ("ax", "b"), ("bx", "y"))]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), options, providers=["CPUExecutionProvider"])
    x = torch.ones(shape).numpy()
    session.run(None, {"x": x})
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        for _ in range(3):
            with record_function("a run"):
                session.run(None, {"x": x})
    watched.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    began = int(session.get_profiling_start_time_ns())
    shown = json.loads(Path(session.end_profiling()).read_text())
    runs = [began + event["ts"] * 1000 for event in shown if event["name"] == "model_run"][-3:]
    ranges = [event for event in trace["traceEvents"] if event.get("cat") == "user_annotation"]
    assert len(runs) == len(ranges) == 3
    for run, around in zip(runs, ranges, strict=True):
        begin = trace["baseTimeNanoseconds"] + around["ts"] * 1000
        assert begin - 1000 <= run <= begin + around["dur"] * 1000


def test_every_profiler_of_the_table_names_a_function_that_is_there() -> None:
    for name, info in BACKENDS.items():
        if info.profiler is not None:
            module, _, function = info.profiler.partition(":")
            source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
            assert f"def {function}(job: BackendJob, batches: Sequence[Batch], folder: Path, runs: int)" in source, name
