"""A model is what it is made of, whatever its name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import nn

from harness.zoo import identity, model_info
from harness.zoo.onnx.torch_to_onnx import strip_traces


def external(folder: Path, values: float) -> Path:
    """A file whose weights lie in weights.bin beside it."""
    weights = helper.make_tensor(
        "w", onnx.TensorProto.FLOAT, [4, 4], np.full(16, values, np.float32).tobytes(), raw=True
    )
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4])],
        [weights],
    )
    path = folder / "net.onnx"
    (folder / "weights.bin").unlink(missing_ok=True)
    onnx.save_model(
        helper.make_model(graph), path, save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    return path


def test_weights_beside_an_onnx_file_are_part_of_it(tmp_path: Path) -> None:
    info = model_info(f"onnx:{external(tmp_path, 1.0)}")
    before = identity.file_hashes(info)
    assert set(before) == {"net.onnx", "weights.bin"}
    content = (tmp_path / "net.onnx").read_bytes()
    external(tmp_path, 2.0)
    assert (tmp_path / "net.onnx").read_bytes() == content
    assert identity.file_hashes(info) != before


def test_a_file_that_is_no_onnx_is_left_to_the_export_to_refuse(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_text("a page of text")
    assert set(identity.file_hashes(model_info(f"onnx:{tmp_path / 'net.onnx'}"))) == {"net.onnx"}
    assert identity.file_hashes(model_info(f"onnx:{tmp_path / 'absent.onnx'}")) == {}


def test_every_file_of_a_saved_folder_is_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "weights").write_text("1")
    info = model_info(f"hf:{tmp_path}")
    before = identity.file_hashes(info)
    (tmp_path / "below" / "weights").write_text("2")
    assert identity.file_hashes(info) != before


def test_a_package_of_weights_is_its_files() -> None:
    assert any(name.endswith(".safetensors") for name in identity.file_hashes(model_info("minilm-l6")))


Build = Callable[[], tuple[nn.Module, dict[str, str], dict[str, str]]]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Builds own_net.build() as a fresh process would; own_net imports own_parts, and reads own_checkpoint.pt."""
    (tmp_path / "own_parts.py").write_text("SCALE = 2.0\n")
    (tmp_path / "own_net.py").write_text(
        "import torch\nfrom torch import nn\nimport own_parts\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(4, 4)\n"
        "        self.layer.load_state_dict(torch.load('own_checkpoint.pt', weights_only=True))\n"
        "        self.steps = len(open('own_settings.txt').read())\n"
        "    def forward(self, x):\n"
        "        import own_late\n"
        "        return self.layer(x) * own_parts.SCALE\n"
    )
    (tmp_path / "own_late.py").write_text("")
    (tmp_path / "own_settings.txt").write_text("abc")
    torch.save(nn.Linear(4, 4).state_dict(), tmp_path / "own_checkpoint.pt")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget() -> None:
        for name in [name for name in sys.modules if name.startswith("own_")]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def found() -> tuple[nn.Module, dict[str, str], dict[str, str]]:
        forget()
        before = frozenset(sys.modules)
        net = importlib.import_module("own_net").Net()
        net(torch.zeros(1, 4))
        return (net, *identity.built_identity(net, "own_net", before))

    yield found
    forget()


def test_a_module_has_the_sources_that_it_was_built_from(build: Build) -> None:
    _, sources, _ = build()
    assert set(sources) == {"own_net", "own_parts", "own_late"}
    assert build()[1:] == build()[1:]
    assert identity.changed_sources(sources) == []


@pytest.mark.parametrize("name", ["own_parts", "own_late"])
def test_a_changed_import_is_another_model(build: Build, tmp_path: Path, name: str) -> None:
    _, before, _ = build()
    (tmp_path / f"{name}.py").write_text("SCALE = 3.00\n")
    assert identity.changed_sources(before) == [name]
    assert build()[1] != before


def test_a_changed_checkpoint_is_another_model(build: Build, tmp_path: Path) -> None:
    _, _, before = build()
    torch.save(nn.Linear(4, 4).state_dict(), tmp_path / "own_checkpoint.pt")
    assert build()[2] != before


def test_a_changed_attribute_is_another_model(build: Build, tmp_path: Path) -> None:
    _, _, before = build()
    (tmp_path / "own_settings.txt").write_text("abcd")
    assert build()[2] != before


def test_every_tensor_of_a_module_counts() -> None:
    class Odd(nn.Module):
        def __init__(self, plain: float, buffer: float) -> None:
            super().__init__()
            self.plain = torch.tensor(plain)
            self.register_buffer("late", torch.tensor(buffer, dtype=torch.bfloat16), persistent=False)

    base = identity.state_digest(Odd(1.0, 1.0))
    assert identity.state_digest(Odd(1.0, 1.0)) == base
    assert len({base, identity.state_digest(Odd(2.0, 1.0)), identity.state_digest(Odd(1.0, 2.0))}) == 3


def test_traces_of_the_machine_leave_a_file_and_the_names_of_modules_stay(tmp_path: Path) -> None:
    path = external(tmp_path, 1.0)
    model = onnx.load(path, load_external_data=False)
    inner = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "inner", [], [])
    branch = helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)
    model.graph.node.append(branch)
    for record in (
        model,
        model.graph,
        model.graph.input[0],
        *model.graph.node,
        model.graph.node[1].attribute[0].g.node[0],
    ):
        record.doc_string = "/home/somebody/net.py"
        record.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="/home/somebody/net.py")
        record.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['layer']")
    onnx.save(model, path)
    strip_traces(path)
    assert b"somebody" not in path.read_bytes()
    stripped = onnx.load(path)
    assert [(prop.key, prop.value) for prop in stripped.graph.node[0].metadata_props] == [
        ("pkg.torch.onnx.name_scopes", "['layer']")
    ]
    assert onnx.numpy_helper.to_array(stripped.graph.initializer[0])[0, 0] == 1.0
