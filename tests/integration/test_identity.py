"""Results keep their export, a changed model is exported and measured again, and files are the same in every folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from harness.core import store
from harness.core.layout import Models
from harness.core.schemas import ExportRecord
from tests.fixtures.stages import ROOT, Folder

pytestmark = pytest.mark.stages

NET = """
import torch
from torch import nn
from own_parts import Scaled

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), Scaled(), nn.Linear(32, 4)), torch.arange(256.0).reshape(16, 16) / 256
"""
PARTS = """
from torch import nn

class Scaled(nn.Module):
    def forward(self, x):
        return x * 2
"""


def external(folder: Path, seed: int) -> str:
    """The name of a model whose weights lie in weights.bin beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).standard_normal((16, 4)).astype(np.float32)
    weights = helper.make_tensor("w", onnx.TensorProto.FLOAT, [16, 4], values.tobytes(), raw=True)
    ports = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", extent])
        for name, extent in (("x", 16), ("y", 4))
    ]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "net", ports[:1], ports[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (folder / "weights.bin").unlink(missing_ok=True)
    onnx.save_model(model, folder / "net.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    return f"onnx:{folder / 'net.onnx'}"


def own_record(folder: Folder, slug: str) -> ExportRecord:
    return store.load(folder.results.export(slug).record, ExportRecord, "test")


def test_results_keep_their_export_and_a_changed_file_is_measured_again(tmp_path: Path) -> None:
    models = Models(tmp_path / "models")
    name = external(tmp_path, 1)
    folder, two = Folder(tmp_path / "one", models), Folder(tmp_path / "two", models)
    block = {"backends": ["onnxruntime"]}
    slug = folder.plan(block, models=(name,)).models[0].slug
    assert folder("export").returncode == 0
    assert folder("run").returncode == 0
    (before,) = folder.summary().rows
    assert before.status == "measured"

    external(tmp_path, 2)
    two.plan(block, models=(name,))
    done = two("export")
    assert "exporting" in done.stdout
    assert own_record(folder, slug).folder != own_record(two, slug).folder

    folder.plan(block, models=(name,), rounds=2)
    assert folder("run").returncode == 0
    (after,) = folder.summary().rows
    assert (after.latency_ns.rounds if after.latency_ns else 0) == 2
    assert after.artifacts == before.artifacts

    done = folder("export")
    assert f"{name}: up to date" in done.stdout  # what the other plan exported is what the file is now
    refused = folder("aggregate")
    assert refused.returncode == 3
    assert "would be missing now" in refused.stderr
    ran = folder("run")
    assert "2 processes to run" in ran.stdout
    (again,) = folder.summary().rows
    assert again.artifacts["model.onnx"] != before.artifacts["model.onnx"]
    assert sorted(path.name for path in models.folder(slug).root.glob(".*")) == []


@pytest.mark.slow
def test_a_changed_import_is_exported_and_measured_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path, Models(tmp_path / "models"), {"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    (tmp_path / "own_net.py").write_text(NET)
    (tmp_path / "own_parts.py").write_text(PARTS)
    folder.plan({"backends": ["torch-eager"]}, models=("module:own_net:build",))
    assert folder("export").returncode == 0
    assert folder("run").returncode == 0
    assert "up to date" in folder("export").stdout
    (before,) = folder.summary().rows

    (tmp_path / "own_parts.py").write_text(PARTS.replace("x * 2", "x + x"))  # the same numbers from another graph
    ran = folder("run", "--force")
    assert ran.returncode == 10
    assert "own_parts changed since" in ran.stdout
    assert "exporting" in folder("export").stdout
    assert folder("run").returncode == 0
    (after,) = folder.summary().rows
    assert after.artifacts["sources"] != before.artifacts["sources"]


@pytest.mark.slow
def test_the_same_model_gives_the_same_files_in_every_folder(tmp_path: Path) -> None:
    records = []
    for place in ("one", "another-one"):
        root = tmp_path / place
        root.mkdir()
        (root / "own_net.py").write_text(NET)
        (root / "own_parts.py").write_text(PARTS)
        folder = Folder(root, Models(root / "models"), {"PYTHONPATH": f"{root}:{ROOT}"})
        folder.plan({"backends": ["onnxruntime"]}, models=("module:own_net:build",))
        done = folder("export")
        assert done.returncode == 0, done.stderr
        result = next(root.glob("results/exports/*/export.json"))
        records.append(store.load(result, ExportRecord, "test"))
        slug = records[-1].slug
        made = folder.models.folder(slug, records[-1].folder).root
        telling = [path.name for path in made.rglob("*") if path.is_file() and str(root).encode() in path.read_bytes()]
        assert telling == []
    assert records[0].folder == records[1].folder
    assert records[0].onnx == records[1].onnx
    assert records[0].module == records[1].module
    assert records[0].input_sets == records[1].input_sets
