"""The model level on real modules and files: published counts, memory by hand, and the stage as a user runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.core import store
from harness.core.layout import Models
from harness.core.schemas import Work
from harness.core.schemas.profile import ModelProfile
from harness.core.schemas.profile_parts import PartsProfile
from harness.zoo.loaded import Inputs
from tests.fixtures.stages import TINY, Folder
from tests.integration.test_zoo_work import count, image, image_model, text, text_model

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.stages

VIT_WITH_FUSED_ATTENTION = 11.27
"""GMAC that a counter finds which does not see into scaled_dot_product_attention."""


def gmac(work: Work) -> float:
    return work.flops_per_item / 2e9


@pytest.mark.parametrize(
    ("name", "published"), [("resnet50", 4.089), ("resnet18", 1.814), ("mobilenet_v2", 0.301), ("vit_b_16", 17.56)]
)
def test_image_models_have_their_published_multiply_adds(name: str, published: float, tmp_path: Path) -> None:
    (work,) = count(image_model(name, tmp_path), {None: image()})
    assert gmac(work) == pytest.approx(published, rel=0.002)
    assert gmac(work) != pytest.approx(VIT_WITH_FUSED_ATTENTION, rel=0.1)


@pytest.mark.parametrize(
    ("name", "published", "layers", "hidden"),
    [("bert-base", 11.17, 12, 768), ("distilbert", 5.59, 6, 768), ("minilm-l6", 1.435, 6, 384)],
)
def test_text_models_count_both_products_of_attention(
    name: str, published: float, layers: int, hidden: int, tmp_path: Path
) -> None:
    short, long = count(text_model(name, tmp_path), {128: text(128), 256: text(256)})
    assert gmac(short) == pytest.approx(published, rel=0.002)
    # What is more than twice as much at twice the length is attention's: scores and their sums, s x s x hidden each.
    quadratic = (long.flops_per_item - 2 * short.flops_per_item) // 2
    assert quadratic == layers * 2 * hidden * (256**2 - 2 * 128**2)


@pytest.mark.parametrize("name", ["resnet18", "minilm-l6", "vit_b_16"])
def test_the_exported_graph_counts_the_same(name: str, tmp_path: Path) -> None:
    from harness.zoo.onnx_complexity import open_graph, products_of
    from harness.zoo.onnx_file import write_fp32
    from harness.zoo.request import Options

    options = Options(exporter="dynamo", opset=20, output_name=None, max_length=None, cache=None)
    is_text = name == "minilm-l6"
    loaded = text_model(name, tmp_path) if is_text else image_model(name, tmp_path)
    arrays = (text(128) if is_text else image()).arrays
    write_fp32(loaded, arrays, tmp_path / "model.onnx", options)
    graph = open_graph(tmp_path / "model.onnx", {key: (1, *values.shape[1:]) for key, values in arrays.items()})
    (work,) = count(loaded, {None: Inputs(arrays, "the same")})
    found = products_of(graph)
    assert found.uncounted == ()
    assert found.total == pytest.approx(work.flops_per_item / 2, rel=0.001)


def test_memory_of_a_module_by_hand() -> None:
    from harness.zoo.complexity import live_bytes, parameters_of, weight_bytes

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
    found = parameters_of(module)
    assert (found.total, found.trainable) == (10_000 + 20_000 + 400 + 40, 10_000 + 20_000 + 40)
    assert found.by_type == {"Linear": 30_400, "BatchNorm1d": 40}
    # Running mean and variance are floats as well; the number of batches is one int64.
    assert weight_bytes(module) == {"fp32": 30_480 * 4 + 8, "tf32": 30_480 * 4 + 8, "fp16": 60_968, "bf16": 60_968}
    item = [torch.zeros(1, 10)]
    assert [live_bytes(module, item, kind) for kind in ("fp32", "bf16", "int8")] == [8000, 4000, None]


def test_allocations_and_frees_are_added_up_in_time() -> None:
    from harness.backends.profiles.torch_memory import peak_of

    def change(at: float, size: int) -> dict[str, Any]:
        return {"name": "[memory]", "ts": at, "args": {"Bytes": size}}

    events = [change(1, 100), change(4, -60), change(2, 60), {"name": "aten::relu", "ts": 0}, change(3, -100)]
    assert peak_of(events) == 160
    assert peak_of([]) == 0


@pytest.fixture
def profiled(folder: Folder) -> Folder:
    folder.plan({"backends": ["torch-eager", "onnxruntime", "noop"], "batch_sizes": [1, 4]})
    done = folder("profile_ops", "--runs", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 4
    return folder


def test_the_stage_profiles_each_case_once(profiled: Folder) -> None:
    found = {path.parent.name: path for path in profiled.results.root.glob("profiles/*/model.json")}
    assert len(found) == 4
    eager = next(store.load(path, ModelProfile, "") for name, path in found.items() if "eager" in name and "b4" in name)
    assert (eager.parameters, eager.trainable_parameters) == (16 * 64 + 64 + 64 * 4 + 4,) * 2
    assert (eager.macs, eager.flops, eager.macs_per_batch) == (1280, 2560, 5120)
    assert eager.onnx_count is not None
    assert (eager.onnx_count.macs, eager.onnx_count.uncounted, eager.count_notes) == (1280, (), ())
    assert eager.activation_estimated_bytes == 4 * 2 * 64 * 4
    assert eager.activation_measured_bytes is not None
    assert eager.activation_measured_bytes >= 4 * 64 * 4
    assert eager.least_bytes == 4 * (eager.parameters or 0) + 4 * 4 * (16 + 4)
    assert {(file.kind, file.name) for file in eager.files} >= {("weights", "fp32"), ("onnx", "fp32")}
    assert (eager.achieved.latency_ns, eager.achieved.notes) == (
        None,
        ("not measured: the case has no row in summary.json",),
    )
    assert profiled.results.environment(eager.environment_id).is_file()
    raw = json.loads(next(iter(found.values())).read_text())
    assert {"parameters", "macs", "flops", "convention"} <= set(raw)
    other = next(store.load(path, ModelProfile, "") for name, path in found.items() if "onnxruntime" in name)
    assert other.activation_measured_bytes is None
    assert "does not tell" in other.activation_measured_by
    for name in found:
        parts = store.load(profiled.results.parts_profile(name), PartsProfile, "")
        assert parts.layers
        assert all((profiled.results.profile(name) / trace).is_file() for trace in parts.traces)
    again = profiled("profile_ops")
    assert (again.returncode, "already" in again.stdout) == (0, True)


def test_the_report_shows_the_profiles_with_links_that_lead_somewhere(profiled: Folder) -> None:
    profiled.summary()
    done = profiled("report", "--no-charts")
    assert done.returncode == 0, done.stderr
    report = profiled.results.report.read_text()
    _, _, section = report.partition("\n## Profile\n")
    assert "2 FLOPs a multiply-add" in section
    links = [part.partition(")")[0] for part in section.split("](")[1:]]
    assert len([link for link in links if link.endswith("/model.json")]) == 4
    assert all((profiled.results.root / link).is_file() for link in links)


def test_a_failed_case_is_named_and_the_others_are_kept(folder: Folder, tmp_path: Path) -> None:
    spoiled = Folder(folder.root, Models(tmp_path / "spoiled"))
    shutil.copytree(folder.models.root, spoiled.models.root)
    spoiled.plan({"backends": ["torch-eager", "onnxruntime"]}, models=(TINY,))
    weights = next(spoiled.models.root.glob("*tiny*/weights.safetensors"))
    weights.unlink()
    done = spoiled("profile_ops", "--runs", "2")
    assert done.returncode == 10
    warning, error, _hint = done.stderr.splitlines()
    assert "torch-eager" in warning
    assert "could not be rebuilt" in warning
    assert error == "Error: 1 case could not be profiled to the end; the others are."
    assert len(list(spoiled.results.root.glob("profiles/*onnxruntime*/parts.json"))) == 1
    assert [path.name for path in spoiled.results.root.glob("profiles/*eager*/*")] == ["memory.log"]
