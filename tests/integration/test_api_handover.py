"""A module on its way into other processes: written, named, read back, refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from harness.api.given_model import hand_over, module_and_arrays, module_arrays, subject_of
from harness.core.errors import ConfigError, MalformedFileError, MissingInputError, UsageError
from harness.core.layout import Models
from harness.zoo import model_info
from harness.zoo.families import pickled_module
from harness.zoo.inputs.own import rotating_samples
from harness.zoo.loaded import Request


class Pair(nn.Module):
    """Two inputs."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return ids * mask


@pytest.fixture
def models(tmp_path: Path) -> Models:
    return Models(tmp_path)


def request_of(name: str, models: Models) -> Request:
    info = model_info(name)
    return Request(info, "own", 0, None, models.folder(info.slug).root)


def test_it_comes_back_as_it_was(models: Models) -> None:
    linear = nn.Linear(4, 2)
    name = hand_over(linear, {"input": np.ones((3, 4), np.float32)}, models)
    request = request_of(name, models)
    loaded = pickled_module.load(request)
    assert isinstance(loaded.module, nn.Linear)
    assert torch.equal(loaded.module.weight, linear.weight)
    assert loaded.input_names == ("input",)
    assert torch.equal(pickled_module.architecture(request.info, request.folder).weight, linear.weight)  # type: ignore[arg-type]


def test_a_changed_file_is_not_read(models: Models) -> None:
    name = hand_over(nn.Linear(4, 2), {"input": np.ones((3, 4), np.float32)}, models)
    request = request_of(name, models)
    path = request.folder / "module.pkl"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(MalformedFileError, match="sha256 differs"):
        pickled_module.load(request)
    path.unlink()
    with pytest.raises(MissingInputError):
        pickled_module.load(request)


def test_a_link_out_of_the_folder_is_not_followed(models: Models, tmp_path: Path) -> None:
    name = hand_over(nn.Linear(4, 2), {"input": np.ones((3, 4), np.float32)}, models)
    request = request_of(name, models)
    moved = tmp_path / "elsewhere.pkl"
    (request.folder / "module.pkl").rename(moved)
    (request.folder / "module.pkl").symlink_to(moved)
    with pytest.raises(MalformedFileError, match="leads out"):
        pickled_module.load(request)


@pytest.mark.parametrize(
    "name",
    [
        "pickle:../x-0123456789abcdef",
        "pickle:/tmp/module.pkl",
        "pickle:Net",
        "pickle:Net-0123",
        "pickle:a/b-0123456789abcdef",
    ],
)
def test_a_name_holds_no_path(name: str) -> None:
    with pytest.raises(ConfigError, match="names no source"):
        model_info(name)


def test_an_object_that_does_not_pickle_is_an_error_with_the_other_way(models: Models) -> None:
    module = nn.Linear(4, 2)
    module.register_buffer("odd", None)
    module.handle = (value for value in ())  # type: ignore[assignment]
    with pytest.raises(UsageError) as raised:
        hand_over(module, {"input": np.ones((1, 4), np.float32)}, models)
    assert "module:<python path>:<function>" in raised.value.hint


def test_a_module_that_cannot_be_read_back_is_reported(models: Models) -> None:
    name = hand_over(Unreadable(), {"x": np.ones((1, 4), np.float32)}, models)
    with pytest.raises(ConfigError, match="ValueError: not here"):
        pickled_module.load(request_of(name, models))


class Unreadable(nn.Module):
    """Fails where it is unpickled."""

    def __setstate__(self, state: dict[str, object]) -> None:
        raise ValueError("not here")


def test_inputs_by_name_follow_forward() -> None:
    ids, mask = torch.ones(2, 3, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.float64)
    given = module_arrays(Pair(), {"mask": mask, "ids": ids})
    assert list(given) == ["ids", "mask"]
    assert (given["ids"].dtype, given["mask"].dtype) == (np.int64, np.float32)
    assert list(module_arrays(Pair(), (ids, mask))) == ["ids", "mask"]
    with pytest.raises(UsageError) as raised:
        module_arrays(Pair(), {"maks": mask, "ids": ids})
    assert raised.value.hint.startswith("Did you mean `mask`?")


class Listed(nn.Module):
    """Takes a list of tensors, a switch, and a factor by keyword alone."""

    def forward(self, parts: list[torch.Tensor], double: bool = False, *, factor: torch.Tensor) -> torch.Tensor:
        """(batch, 3) each → (batch, 3)."""
        return torch.stack(parts).sum(0) * factor * (2 if double else 1)


def test_inputs_in_lists_and_by_keyword_are_taken(models: Models) -> None:
    ones = torch.ones(2, 3)
    data = {"parts": [ones, ones.numpy() * 2], "double": True, "factor": ones[:, :1]}
    module, given = module_and_arrays(Listed(), data)
    assert list(given) == ["parts_0", "parts_1", "factor"]
    assert torch.equal(module(*map(torch.from_numpy, given.values())), ones * 6)
    subject = subject_of(Listed(), data, None, models)
    assert (subject.label, subject.batch_size) == ("Listed", 2)
    with pytest.raises(ConfigError, match="has inputs 2 by place; its forward takes parts, double, factor") as raised:
        module_and_arrays(Listed(), [ones, ones])
    assert "by keyword only" in raised.value.hint


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ((torch.ones(2, 3), torch.ones(3, 3)), "no batch axis in common"),
        (torch.tensor(1.0), "no batch axis in common"),
        (torch.ones(0, 3), "no sample"),
        ((object(),), "An input is a object"),
    ],
)
def test_inputs_that_cannot_be(data: object, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        module_arrays(Pair(), data)


def test_a_scalar_is_shared_by_all_samples(models: Models) -> None:
    given = module_arrays(Pair(), (torch.ones(300, 3), torch.tensor(0.5)))
    assert {name: values.shape for name, values in given.items()} == {"ids": (300, 3), "mask": ()}
    subject = subject_of(Pair(), (torch.ones(300, 3), torch.tensor(0.5)), None, models)
    assert (subject.batch_size, subject.samples) == (300, 256)
    with pytest.raises(UsageError, match="in common: `ids` 2, `mask` 3"):
        module_arrays(Pair(), (torch.ones(2, 3), torch.ones(3, 3)))


def test_samples_come_first_and_variations_make_up_for_the_rest() -> None:
    given = {"x": np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 5.0]], np.float32)}
    made = rotating_samples(given, 8)
    assert made.arrays["x"][:2].tolist() == [[1.0, 2.0], [3.0, 5.0]]
    assert len({row.tobytes() for row in made.arrays["x"]}) == 8
    assert made.source.startswith("2 different samples handed over and 6 variations")
    assert rotating_samples(given, 2).source == "2 different samples handed over"


def test_a_module_says_its_batch_size_by_its_inputs(models: Models) -> None:
    by_data = subject_of(nn.Linear(4, 2), torch.ones(3, 4), None, models)
    by_shape = subject_of(nn.Linear(4, 2), None, (16, 4), models)
    large = subject_of(nn.Linear(4, 2), torch.rand(300, 4), None, models)
    assert (by_data.label, by_data.batch_size, by_data.samples) == ("Linear", 3, 8)
    assert (by_shape.batch_size, by_shape.samples) == (16, 16)
    assert (large.batch_size, large.samples) == (300, 256)


def test_weights_in_place_of_a_model_are_named_in_short(models: Models) -> None:
    with pytest.raises(UsageError, match="is no model") as caught:
        subject_of(nn.Linear(400, 200).state_dict(), torch.ones(2, 400), None, models)  # type: ignore[arg-type]
    assert len(caught.value.problem) < 120
    assert "load_state_dict" in caught.value.hint


def test_conjugates_are_computed(models: Models) -> None:
    given = torch.complex(torch.arange(3.0), torch.ones(3)).conj()
    (array,) = module_arrays(nn.Identity(), given).values()
    assert array.tolist() == [-1j, 1 - 1j, 2 - 1j]


@pytest.mark.parametrize(
    ("model", "data", "shape", "problem"),
    [
        (nn.Linear(4, 2), None, None, "Cannot infer input shapes for Linear"),
        (nn.Linear(4, 2), None, (), "is no shape"),
        (nn.Linear(4, 2), None, (1, 0), "is no shape"),
        ("minilm-l6", None, (1, 4), "has inputs of its own"),
        ("minilm-l7", None, None, "Unknown model"),
        ("net.pt", None, None, "net.pt is not loaded unseen"),
        ("", None, None, "Unknown model ``"),
        (None, None, None, "None is no model"),
        (nn.Linear, None, (1, 4), "is no model"),
        (nn.Linear(4, 2), None, 4, "input_shape 4 is no shape"),
        (nn.Linear(4, 2), torch.ones(2, 4).to_sparse(), None, "An input cannot be read: TypeError"),
        (nn.Linear(4, 2), torch.ones(2, 4).to("meta"), None, "An input cannot be read: NotImplementedError"),
    ],
)
def test_objects_that_cannot_be_profiled(
    model: object, data: object, shape: tuple[int, ...] | None, problem: str, models: Models
) -> None:
    with pytest.raises(UsageError, match=problem):
        subject_of(model, data, shape, models)  # type: ignore[arg-type]


def test_a_folder_of_a_models_name_does_not_hide_the_model(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "resnet18").mkdir()
    assert subject_of("resnet18", None, None, models).name == "resnet18"


@pytest.mark.parametrize(
    ("path", "problem"),
    [("absent.onnx", "no file absent.onnx"), ("a/b", "a/b is no folder"), (Path("ab.txt"), "ab.txt is no folder")],
)
def test_a_missing_path_is_reported_at_once(path: str | Path, problem: str, models: Models) -> None:
    with pytest.raises(MissingInputError, match=problem):
        subject_of(path, None, None, models)


def test_paths_become_names(models: Models, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").touch()
    assert subject_of(tmp_path / "net.onnx", None, None, models).name == f"onnx:{tmp_path / 'net.onnx'}"
    assert subject_of(tmp_path, None, None, models).name == f"hf:{tmp_path.resolve()}"
    assert dataclasses.asdict(subject_of("resnet18", None, None, models))["batch_size"] is None
