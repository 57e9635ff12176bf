"""Weights and models of strangers: a pickle with code, an ONNX file that reads elsewhere, a repository with code."""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from harness.core.errors import ConfigError, ExportError, HubError
from harness.core.layout import ModelFolder
from harness.zoo import model_info
from harness.zoo.construct import family_of
from harness.zoo.families import own_onnx, vision
from harness.zoo.identity import ExportChoices
from harness.zoo.loaded import Request
from harness.zoo.onnx.external_data import check_external_data, external_locations
from harness.zoo.onnx.torch_to_onnx import write_fp32

WEIGHTS = np.arange(4, dtype=np.float32)


class Code:
    """Unpickled, it makes a file."""

    def __init__(self, trap: Path) -> None:
        self.trap = trap

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trap),)


def request(name: str, folder: Path, weights: Any = "pretrained") -> Request:
    return Request(model_info(name), weights, seed=0, cache=folder / "cache", folder=folder)


def hub_folder(folder: Path, **config: Any) -> Path:
    """A tiny BERT as save_pretrained leaves it, but for its weights."""
    folder.mkdir()
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    usual = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 30522, **sizes}
    (folder / "config.json").write_text(json.dumps({**usual, **config}))
    return folder


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path) -> None:
    folder, trap = hub_folder(tmp_path / "model"), tmp_path / "trap"
    torch.save({"embeddings": Code(trap)}, folder / "pytorch_model.bin")
    asked = request(f"hf:{folder}", tmp_path)
    with pytest.raises(ConfigError, match="could run code: refused") as caught:
        family_of(asked.info).load(asked)
    assert "safetensors" in caught.value.hint
    assert not trap.exists()


@pytest.mark.parametrize("content", [b"", b"no safetensors at all", b"\xff" * 64])
def test_a_damaged_file_of_weights_is_named_in_two_lines(tmp_path: Path, content: bytes) -> None:
    folder = hub_folder(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(content)
    asked = request(f"hf:{folder}", tmp_path)
    with pytest.raises(HubError) as caught:
        family_of(asked.info).load(asked)
    assert str(folder) in caught.value.problem
    assert "\n" not in caught.value.problem + caught.value.hint


def test_a_downloaded_pickle_with_code_is_refused_and_not_run(tmp_path: Path) -> None:
    trap, asked = tmp_path / "trap", request("resnet18", tmp_path)
    kept = tmp_path / "cache" / "torch" / "checkpoints"
    kept.mkdir(parents=True)
    torch.save({"conv1.weight": Code(trap)}, kept / Path(vision.published_weights("resnet18").url).name)
    with pytest.raises(ConfigError, match="The weights of resnet18 are a pickle"):
        vision.load(asked)
    assert not trap.exists()


@pytest.mark.parametrize("weights", ["pretrained", "seeded"])
def test_code_of_a_model_repository_is_not_run(tmp_path: Path, weights: str) -> None:
    trap = tmp_path / "trap"
    code = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    folder = hub_folder(tmp_path / "model", model_type="of-its-own", auto_map=code)
    (folder / "own.py").write_text(f"import os\nos.mkdir({str(trap)!r})\n")
    asked = request(f"hf:{folder}", tmp_path, weights)
    with pytest.raises(ConfigError, match="needs code from its repository, which is never run") as caught:
        family_of(asked.info).load(asked)
    assert "module:<python path>:<function>" in caught.value.hint
    assert not trap.exists()


def external(location: str) -> Any:
    """A weight that is kept in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def model_of(nodes: list[Any], initializers: list[Any]) -> Any:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def as_initializer(location: str) -> Any:
    return model_of([helper.make_node("Add", ["x", "w"], ["y"])], [external(location)])


def as_constant(location: str) -> Any:
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(WEIGHTS, "w"))
    constant.attribute[0].t.CopyFrom(external(location))
    return model_of([constant, helper.make_node("Add", ["x", "w"], ["y"])], [])


def in_subgraph(location: str) -> Any:
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    branch = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "b", [], [y], [external(location)])
    chosen = numpy_helper.from_array(np.array(True), "c")
    return model_of([helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], [chosen])


def in_function(location: str) -> Any:
    model = as_initializer("w.bin")
    node = helper.make_node("Constant", [], ["w"], value=external(location))
    model.functions.append(helper.make_function("own", "F", [], ["w"], [node], [helper.make_opsetid("", 20)]))
    return model


MAKERS = [as_initializer, as_constant, in_subgraph, in_function]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "a/../../secret.bin", "", "..", "link.bin"])
def test_weights_outside_the_folder_are_refused(tmp_path: Path, make: Any, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(WEIGHTS.tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    path = folder / "m.onnx"
    path.write_bytes(make(location).SerializeToString())
    with pytest.raises(ExportError, match="which is outside its folder"):
        check_external_data(path)


def test_the_user_s_file_is_checked_before_a_session_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(as_initializer("/etc/hostname").SerializeToString())
    monkeypatch.setattr(own_onnx, "open_session", lambda *_args, **_options: pytest.fail("a session was opened"))
    with pytest.raises(ExportError, match="'/etc/hostname', which is outside its folder"):
        own_onnx.load(request(f"onnx:{path}", tmp_path))


@pytest.mark.parametrize("make", [as_initializer, as_constant])
def test_weights_beside_the_file_are_read_and_gathered(tmp_path: Path, make: Any) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(make("w.bin").SerializeToString())
    assert external_locations(path) == {"w.bin"}
    loaded = own_onnx.load(request(f"onnx:{path}", tmp_path))
    target = ModelFolder(tmp_path / "models").onnx("fp32")
    target.parent.mkdir()
    write_fp32(loaded, {}, target, ExportChoices("dynamo", 20, None, None, None))
    assert external_locations(target) == set()
    assert onnx.load(target).SerializeToString() != b""


def test_a_file_that_is_no_onnx_is_two_lines(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(ExportError, match="cannot be read as ONNX"):
        own_onnx.load(request(f"onnx:{path}", tmp_path))


@pytest.mark.parametrize("part", ["sample_inputs", "weights"])
def test_code_in_a_saved_program_is_not_run(part: str, tmp_path: Path) -> None:
    path, trap, hostile = tmp_path / "model.pt2", tmp_path / "trap", tmp_path / "hostile.pt2"
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(3, 2),))
    torch.export.save(program, path)
    content = io.BytesIO()
    torch.save(Code(trap), content)
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(hostile, "w") as target:
        names = [name for name in source.namelist() if f"/{part}/" in name and not name.endswith(".json")]
        assert names
        for name in source.namelist():
            config = f"/{part}/" in name and name.endswith(".json")
            body = (
                source.read(name).replace(b'"use_pickle": false', b'"use_pickle": true')
                if config
                else source.read(name)
            )
            target.writestr(name, content.getvalue() if name in names else body)
    asked = request(f"pt2:{hostile}", tmp_path, "own")
    with pytest.raises(ConfigError, match="cannot be read as a torch"):
        family_of(asked.info).load(asked)
    assert not trap.exists()
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
    with contextlib.suppress(Exception):
        torch.export.load(hostile)  # what PyTorch does by itself, so that the trap is one
    assert trap.exists()
