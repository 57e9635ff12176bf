"""The model level on real modules and files: memory by hand, and the stage as a user runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness.core import store
from harness.core.layout import Models
from harness.core.schemas import ExportRecord, Usage
from harness.core.schemas.profile_record import MemoryTimeline, ModelProfile, PartsProfile
from harness.profiling.profile_grades import MIN_REPEATS
from harness.zoo.loaded import Inputs
from tests.fixtures.counted_models import count, image, image_model, text, text_model
from tests.fixtures.stages import TINY, Folder, latest_export

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.stages


@pytest.mark.parametrize(
    "name", ["minilm-l6", *(pytest.param(name, marks=pytest.mark.slow) for name in ("resnet18", "vit_b_16"))]
)
def test_the_exported_graph_counts_the_same(name: str, tmp_path: Path, trained: Path) -> None:
    from harness.zoo.cost.onnx_counts import open_graph, products_of
    from harness.zoo.identity import ExportChoices
    from harness.zoo.onnx.torch_to_onnx import write_fp32

    options = ExportChoices(exporter="dynamo", opset=20, output_name=None, max_length=None, cache=None)
    is_text = name == "minilm-l6"
    loaded = text_model(name, tmp_path) if is_text else image_model(name, tmp_path)
    arrays = (text(128) if is_text else image()).arrays
    file = latest_export(Models(trained), name)[0].root / "model.onnx" if is_text else tmp_path / "model.onnx"
    if not is_text:
        write_fp32(loaded, arrays, file, options)
    graph = open_graph(file, {key: (1, *values.shape[1:]) for key, values in arrays.items()})
    (work,) = count(loaded, {None: Inputs(arrays, "the same")})
    products = products_of(graph)
    assert products.uncounted == ()
    assert products.total == pytest.approx(work.flops_per_item / 2, rel=0.001)


def test_memory_of_a_module_by_hand() -> None:
    from harness.zoo.cost.torch_counts import live_bytes, parameters_of, weight_bytes

    shared = torch.nn.Linear(20, 20, bias=False)
    module = torch.nn.Sequential(
        torch.nn.Linear(10, 1000, bias=False),
        torch.nn.ReLU(),  # its input and output at once: 2 x 1000
        torch.nn.Linear(1000, 20, bias=False),
        shared,
        shared,
        torch.nn.BatchNorm1d(20),
        torch.nn.ReLU(inplace=True),
    ).eval()
    shared.weight.requires_grad_(False)
    parameters = parameters_of(module)
    assert (parameters.total, parameters.trainable) == (10_000 + 20_000 + 400 + 40, 10_000 + 20_000 + 40)
    assert parameters.by_type == {"Linear": 30_400, "BatchNorm1d": 40}
    # Running mean and variance are floats as well; the number of batches is one int64.
    assert weight_bytes(module) == {"fp32": 30_480 * 4 + 8, "tf32": 30_480 * 4 + 8, "fp16": 60_968, "bf16": 60_968}
    item = [torch.zeros(1, 10)]
    assert [live_bytes(module, item, kind) for kind in ("fp32", "bf16", "int8")] == [8000, 4000, None]


def test_activations_take_the_estimated_memory_and_operators_more(tmp_path: Path) -> None:
    """oneDNN reorders the weights of a convolution in memory that its operator frees: 9 MiB in ResNet-18's last one,
    beside activations of a few hundred kB there. What the estimate is of are the activations."""
    from torch.profiler import ProfilerActivity, profile

    from harness.backends.torch.profile_memory import DEVICE_TYPES, watched
    from harness.zoo.cost.torch_counts import live_bytes

    convolution = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False)
    module = torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(64), torch.nn.ReLU(inplace=True)).eval()
    item = torch.zeros(1, 64, 8, 8)
    with torch.inference_mode():
        kept = module(item)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as seen:
            made = module(item)
    seen.export_chrome_trace(str(tmp_path / "trace.json"))
    result = watched(json.loads((tmp_path / "trace.json").read_text())["traceEvents"], DEVICE_TYPES["cpu"])
    estimated = live_bytes(module, [item], "fp32")
    assert max(result.running_of("activations")) == estimated == 2 * kept.nbytes
    assert max(result.running()) >= estimated
    assert {block.operator.name for block in result.blocks if block.operator} == {"aten::conv2d", "aten::batch_norm"}
    assert sum(result.by) == made.nbytes


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory, exports: Models) -> Folder:
    """Two cases that have a profile. Its tests leave profiles and reports as they were."""
    folder = Folder(tmp_path_factory.mktemp("profiled"), exports)
    folder.plan({"backends": ["torch-eager", "onnxruntime", "noop"], "batch_sizes": [4]})
    done = folder("profile_ops", "--runs", "3")
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.splitlines()
    assert len([line for line in shown if "parameters" in line]) == 2
    assert len([line for line in shown if ": layers, grade " in line and "of the plain latency: " in line]) == 2
    assert folder.orphans() == []
    return folder


def test_the_stage_profiles_each_case_once(profiled: Folder) -> None:
    results = {path.parent.name: path for path in profiled.results.root.glob("profiles/*/model.json")}
    assert len(results) == 2
    eager = next(
        store.load(path, ModelProfile, "") for name, path in results.items() if "eager" in name and "b4" in name
    )
    assert (eager.parameters, eager.trainable_parameters) == (16 * 64 + 64 + 64 * 4 + 4,) * 2
    assert (eager.macs, eager.flops, eager.macs_per_batch) == (1280, 2560, 5120)
    assert eager.onnx_count is not None
    assert (eager.onnx_count.macs, eager.onnx_count.uncounted, eager.count_notes) == (1280, (), ())
    assert eager.activation_estimated_bytes == 4 * 2 * 64 * 4
    assert eager.activation_measured_bytes is not None
    assert eager.activation_measured_bytes >= 4 * 64 * 4
    memory = store.load(profiled.results.memory_profile(eager.case_id), MemoryTimeline, "")
    assert eager.activation_alone_bytes == memory.activations_peak_bytes == eager.activation_estimated_bytes
    assert eager.activation_measured_bytes == memory.pass_peak_bytes
    assert memory.at_peak["parameters"] == 4 * (eager.parameters or 0)
    assert sum(memory.at_peak.values()) == memory.peak_bytes == max(memory.allocated_bytes)
    assert memory.allocations + memory.frees == len(memory.at_ns)
    assert eager.memory_files == ("memory.json", "memory.png", "memory.svg")
    assert all((profiled.results.profile(eager.case_id) / name).is_file() for name in eager.memory_files)
    assert "## Memory" in profiled.results.parts_report(eager.case_id).read_text()
    assert eager.least_bytes == 4 * (eager.parameters or 0) + 4 * 4 * (16 + 4)
    assert {(file.kind, file.name) for file in eager.files} >= {("weights", "fp32"), ("onnx", "fp32")}
    assert (eager.achieved.latency_ns, eager.achieved.notes) == (
        None,
        ("not measured: the case has no row in summary.json",),
    )
    assert profiled.results.environment(eager.environment_id).is_file()
    raw = json.loads(next(iter(results.values())).read_text())
    assert {"parameters", "macs", "flops", "convention"} <= set(raw)
    other = next(
        store.load(path, ModelProfile, "") for name, path in results.items() if "runtime" in name and "b4" in name
    )
    # Between its two nodes lies the hidden layer; inputs and outputs are not its own.
    assert other.activation_measured_bytes == 4 * 64 * 4
    assert "arena" in other.activation_measured_by
    for name in results:
        parts = store.load(profiled.results.parts_profile(name), PartsProfile, "")
        assert parts.layers
        assert all((profiled.results.profile(name) / trace).is_file() for trace in parts.traces)
        # Each repeat was a process of its own, with a monitor beside it, and a grade says what that saw.
        repeats = range(1, len(parts.ratios) + 1)
        assert len(repeats) >= MIN_REPEATS
        usage = [store.load(profiled.results.profile_usage(name, repeat), Usage, "") for repeat in repeats]
        assert [(entry.case_id, entry.round) for entry in usage] == [(name, repeat) for repeat in repeats]
        assert "measure" in {sample.phase for entry in usage for sample in entry.samples}
        assert (parts.grade is None, parts.steady is None, parts.usage is None) == (False, False, False)
        assert not list(profiled.results.raw.glob("*/*.usage.json"))
    again = profiled("profile_ops")
    assert (again.returncode, "already" in again.stdout) == (0, True)


@pytest.mark.slow
def test_a_library_that_reports_no_memory_has_none_and_the_reason(folder: Folder) -> None:
    folder.plan({"backends": ["openvino"]})
    done = folder("profile_ops", "--runs", "2")
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = folder.results.root.glob("profiles/*/model.json")
    result = store.load(path, ModelProfile, "")
    assert result.activation_measured_bytes is None
    assert "does not report" in result.activation_measured_by


@pytest.mark.slow
def test_a_profile_of_fewer_runs_or_of_another_export_is_made_again(folder: Folder, tmp_path: Path) -> None:
    changed = Folder(folder.root, Models(tmp_path / "changed"))
    shutil.copytree(folder.models.root, changed.models.root)
    changed.plan({"backends": ["onnxruntime"]}, models=(TINY,))

    def runs() -> int | None:
        (path,) = changed.results.root.glob("profiles/*/parts.json")
        return store.load(path, PartsProfile, "").runs

    asked = ["--runs=2", "--runs=3", "", "--runs=2"]
    results = [(changed("profile_ops", *filter(None, [word])).returncode, runs()) for word in asked]
    assert results == [(0, 2), (0, 3), (0, 3), (0, 3)]
    record = next(changed.models.root.glob("*tiny*/export.json"))  # these results have none of their own
    export = store.load(record, ExportRecord, "")
    store.save(record, export.model_copy(update={"request_sha256": "0" * 64}))
    assert changed("profile_ops", "--runs", "2").returncode == 0
    assert runs() == 2


def test_layers_are_chosen_without_profiling_again(profiled: Folder) -> None:
    root = profiled.results.root
    before = {path: path.read_bytes() for path in root.glob("profiles/*/parts.json")}
    whole = {path: path.read_text() for path in root.glob("profiles/*/parts.md")}
    assert len(before) == len(whole) == 2

    wrong = profiled("profile_ops", "--layers", "linear,Sequental")
    assert wrong.returncode == 2
    problem, hint = wrong.stderr.splitlines()
    assert problem.startswith("Error: No layer matches `Sequental` in 2 profiles")
    assert "`Sequential`" in hint
    assert {path: path.read_text() for path in whole} == whole

    done = profiled("profile_ops", "--layers", "layers.0, Sequential", "--depth", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Every case has its profile already" in done.stdout
    assert "left out by the choice" in done.stdout
    assert "no layer matches" not in done.stdout
    for path in whole:
        assert "matching `layers.0` or `Sequential`" in path.read_text()
    assert {path: path.read_bytes() for path in before} == before

    assert profiled("profile_ops").returncode == 0
    assert {path: path.read_text() for path in whole} == whole


def test_a_depth_above_the_model_is_refused(folder: Folder) -> None:
    done = folder.subprocess("profile_ops", "--depth", "-1")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 2)


def test_the_report_shows_the_profiles_with_links_that_lead_somewhere(profiled: Folder) -> None:
    profiled.summary()
    done = profiled("report", "--no-charts")
    assert done.returncode == 0, done.stderr
    report = profiled.results.report_details.read_text()
    _, _, section = report.partition("\n## Profile\n")
    assert "2 FLOPs a multiply-add" in section
    links = [part.partition(")")[0] for part in section.split("](")[1:]]
    assert len([link for link in links if link.endswith("/model.json")]) == 2
    assert all((profiled.results.root / link).is_file() for link in links)


@pytest.mark.slow
def test_a_failed_case_is_named_and_the_others_are_kept(folder: Folder, tmp_path: Path) -> None:
    spoiled = Folder(folder.root, Models(tmp_path / "spoiled"))
    shutil.copytree(folder.models.root, spoiled.models.root)
    spoiled.plan({"backends": ["torch-eager", "onnxruntime"]}, models=(TINY,))
    weights = next(spoiled.models.root.glob("*tiny*/*/weights.safetensors"))
    weights.unlink()
    done = spoiled("profile_ops", "--runs", "2")
    assert done.returncode == 10
    warning, error, _hint = done.stderr.splitlines()
    assert "torch-eager" in warning
    assert "could not be rebuilt" in warning
    assert error == "Error: 1 case could not be profiled to the end; the others are."
    assert len(list(spoiled.results.root.glob("profiles/*onnxruntime*/parts.json"))) == 1
    assert [path.name for path in spoiled.results.root.glob("profiles/*eager*/*")] == ["memory.log"]
