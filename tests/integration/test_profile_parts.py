"""Every profiler of the table on a real model: parts add up, modules are told, traces open."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from harness.backends import BACKENDS
from harness.core.layout import Models
from harness.core.schemas.profile_parts import OperatorRow, PartsProfile
from harness.measure.layer_sums import by_group, total
from tests.fixtures.computing_gpu import FakeGpu
from tests.fixtures.onnxruntime_gpu import install
from tests.fixtures.stages import ROOT

pytestmark = pytest.mark.stages

RUNS = 8
PROFILE = """
import importlib, os, sys
from pathlib import Path
from harness.backends import backend_info
from harness.backends.base import Job
from harness.core import store
from harness.core.schemas import Case, ExportRecord
import numpy as np

backend, folder, out, (runs, batch) = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), map(int, sys.argv[4:])
info = backend_info(backend)
os.environ.update(info.environment)
export = store.load(folder / "export.json", ExportRecord, "make export")
case = Case.model_validate(dict(
    case_id=f"tiny-{backend}", model=export.model, slug=export.slug, backend=backend, device="cpu", precision="fp32",
    batch_size=batch, sequence_length=None, boundary="compute", mode="sync", weights=export.weights,
))
batches = [{"x": np.full((batch, 16), index, np.float32)} for index in range(3)]
module, _, name = info.profiler.partition(":")
job = Job(case, export, folder, batches, 1, out / "cache")
found = getattr(importlib.import_module(module), name)(job, batches, out, runs)
(out / "parts.json").write_text(found.model_dump_json())
"""


def profiled(backend: str, exports: Models, out: Path, batch: int = 2) -> PartsProfile:
    """In a process of its own, as the stage does it."""
    folder = next(path.parent for path in exports.root.glob("*tiny*/export.json"))
    out.mkdir(exist_ok=True)
    command = [sys.executable, "-c", PROFILE, backend, str(folder), str(out), str(RUNS), str(batch)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return PartsProfile.model_validate_json((out / "parts.json").read_text())


def names(events: object) -> set[str]:
    found = events["traceEvents"] if isinstance(events, dict) else events
    assert isinstance(found, list)
    return {str(event.get("name")) for event in found}


def test_modules_of_torch_eager_add_up_to_the_model_itself(exports: Models, tmp_path: Path) -> None:
    found = profiled("torch-eager", exports, tmp_path)
    rows = {row.name: row for row in found.layers}
    assert list(rows) == ["(model)", "layers", "layers.0", "layers.1", "layers.2"]
    # Each row is rounded to whole ns by itself.
    assert total(found.layers) == pytest.approx(rows["(model)"].total_ns, abs=len(rows))
    assert rows["(model)"].total_ns <= found.window_ns
    assert {name: row.calls for name, row in rows.items()} == dict.fromkeys(rows, 1)
    assert rows["layers.0"].flops == 2 * 2 * 16 * 64
    assert rows["(model)"].flops == 2 * 2 * (16 * 64 + 64 * 4)
    assert rows["layers"].parameters == 16 * 64 + 64 + 64 * 4 + 4
    assert rows["layers.0"].output_shapes == ((2, 64),)
    assert rows["layers.0"].output_bytes == 2 * 64 * 4
    assert (rows["layers.0"].parent, rows["layers.0"].depth) == ("layers", 2)
    assert set(by_group(found.layers)) == {"linear", "activation", "other"}


def test_torch_eager_tells_operators_and_both_traces(exports: Models, tmp_path: Path) -> None:
    found = profiled("torch-eager", exports, tmp_path)
    addmm = [row for row in found.operators if row.name == "aten::addmm"]
    assert {row.shapes for row in addmm} == {"[64] [2,16] [16,64]", "[4] [2,64] [64,4]"}
    assert [row.calls for row in addmm] == [1, 1]
    assert all(row.self_device_ns is None for row in found.operators)
    modules, operators = (names(json.loads((tmp_path / trace).read_text())) for trace in found.traces)
    assert "layers.2" in modules
    assert "aten::addmm" in operators


def test_no_hook_is_left_on_the_module() -> None:
    torch = pytest.importorskip("torch")
    from harness.backends.profiles.torch_modules import HostStamps, recording

    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    with recording(module, HostStamps()) as recorded:
        module(torch.ones(1, 2))
    assert [path for path, begins, _ in recorded if begins] == ["(model)", "0", "1"]
    recorded.clear()
    module(torch.ones(1, 2))
    assert recorded == []


def test_torch_script_says_why_it_has_no_layers(exports: Models, tmp_path: Path) -> None:
    found = profiled("torch-script", exports, tmp_path)
    assert found.layers == ()
    assert found.operators
    assert found.notes[0].startswith("No layers: ")


def test_nodes_of_onnxruntime_are_told_by_module(exports: Models, tmp_path: Path) -> None:
    found = profiled("onnxruntime", exports, tmp_path)
    assert [(row.parent, row.group, row.output_shapes) for row in found.layers] == [
        ("layers.0", "linear", ((2, 64),)),
        ("layers.2", "linear", ((2, 4),)),
    ]
    assert found.layers[0].members == ("node_linear", "node_relu")
    assert 0 < total(found.layers) <= found.window_ns
    events = json.loads((tmp_path / found.traces[0]).read_text())
    assert {f"{row.name}_kernel_time" for row in found.layers} <= names(events)


def test_nodes_of_openvino_are_told_by_module(exports: Models, tmp_path: Path) -> None:
    """A large batch: of a kernel below 1 µs OpenVINO tells nothing. How many kernels it makes is the processor's."""
    found = profiled("openvino", exports, tmp_path, batch=4096)
    assert found.layers[-1].output_shapes == ((4096, 4),)
    assert {row.parent for row in found.layers} in ({"layers"}, {"layers.0", "layers.2"})
    assert {row.group for row in found.layers} == {"linear"}
    assert "node_relu" in found.layers[0].members
    assert {row.name for row in found.layers} <= names(json.loads((tmp_path / found.traces[0]).read_text()))


def test_nodes_of_a_quantised_file_are_found_in_the_file_that_it_was_made_from() -> None:
    pytest.importorskip("openvino")
    from harness.backends.profiles.onnx_modules import Graph, Node
    from harness.backends.profiles.openvino_nodes import Executed, rows_of

    graph = Graph((Node("node_MatMul_1", "MatMul", ("x", "w"), ("val",), "mlp.fc1", ("mlp", "fc1", "Linear")),))
    nodes = [
        Executed("node_MatMul_1_quant", "FullyConnected", ("node_MatMul_1_quant",), ((2, 4),), 32),
        Executed("Reorder_7", "Reorder", (), ((2, 4),), 32),
        Executed("never ran", "Const", (), (), 0),
    ]
    rows = rows_of(nodes, {"Reorder_7": 5, "node_MatMul_1_quant": 9}, graph)
    assert [(row.name, row.parent, row.group, row.self_ns) for row in rows] == [
        ("Reorder_7", None, "layout", 5),
        ("node_MatMul_1_quant", "mlp.fc1", "mlp", 9),
    ]


def test_means_since_the_warm_up_come_from_means_since_the_start() -> None:
    pytest.importorskip("openvino")
    from harness.backends.profiles.openvino_nodes import since

    # 5 inferences of 4 µs, then 10 of 1 µs: the mean over all 15 is 2 µs.
    assert since({"a": 4000}, {"a": 2000, "late": 3000}, earlier=5, runs=10) == {"a": 1000, "late": 4500}


def test_onnxruntime_on_a_gpu_tells_kernels_of_the_case_as_it_is_timed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a GPU that computes but has no CUPTI: torch.profiler's part is played."""
    pytest.importorskip("torch")
    from harness.backends.base import Job
    from harness.backends.profiles.torch_operators import TRACE, Operators
    from tests.unit.backends.test_onnxruntime_cuda import BATCHES, MODEL, case, export

    gpu = FakeGpu()
    install(monkeypatch, gpu)
    name = "harness.backends.profiles.onnxruntime_on_gpu"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    del sys.modules[name]
    profiler = importlib.import_module(name)
    kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=5)
    monkeypatch.setattr(profiler, "operators", lambda backend, folder, runs: Operators((kernel,), 7))
    for file in ("model.onnx", "model-fp16.onnx", "model-fp16-fused.onnx"):
        (tmp_path / file).write_text(json.dumps(MODEL))
    job = Job(case("compute", "fp16"), export(), tmp_path, BATCHES, 1, tmp_path, {"graph": True})
    found = profiler.profile(job, tmp_path / "out", 3)
    assert (found.layers, found.operators, found.window_ns, found.traces) == ((), (kernel,), 7, (TRACE,))
    assert found.notes[0].startswith("No layers: on a GPU")


def test_every_profiler_of_the_table_names_a_function_that_is_there() -> None:
    for name, info in BACKENDS.items():
        if info.profiler is not None:
            module, _, function = info.profiler.partition(":")
            source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
            assert f"def {function}(job: Job, batches: Sequence[Batch], folder: Path, runs: int)" in source, name
