"""Wherever a record or an archive names a file, it stays below models/ or results/."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.core import store
from harness.core.errors import InferometerError, MalformedFileError
from harness.core.layout import Models
from harness.core.schemas import EngineRecord, ExportRecord, Plan
from harness.zoo import model_info
from harness.zoo.sources import parse_source
from tests.fixtures.engines import engine_record
from tests.synthetic_results import RESNET, case_of, export_record, plan_of

OUTSIDE = ["/etc/passwd", "../../secret", "a/../../secret", "", ".", "a\\..\\b", "C:\\secret", "x\0y"]
Change = Callable[[dict[str, Any], str], None]


def damaged(path: Path, record: Any, kind: Any, change: Change, name: str) -> str:
    """What is said of a record on disk in which one name was replaced."""
    data = json.loads(record.model_dump_json())
    change(data, name)
    path.write_text(json.dumps(data, separators=(",", ":")))
    with pytest.raises(MalformedFileError, match=f"is not a valid {kind.__name__}: ") as caught:
        store.load(path, kind, "make x")
    assert "\n" not in caught.value.problem
    return caught.value.problem


def onnx_path(data: dict[str, Any], name: str) -> None:
    data["onnx"]["fp32"]["path"] = name


def weights_path(data: dict[str, Any], name: str) -> None:
    data["module"]["path"] = name


def inputs_path(data: dict[str, Any], name: str) -> None:
    data["input_sets"][0]["inputs"]["path"] = name


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("change", [onnx_path, weights_path, inputs_path])
def test_an_export_names_no_file_outside(tmp_path: Path, change: Change, name: str) -> None:
    assert "path" in damaged(tmp_path / "export.json", export_record(RESNET), ExportRecord, change, name)


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_engine_names_no_file_outside(tmp_path: Path, name: str) -> None:
    def engine(data: dict[str, Any], name: str) -> None:
        data["engine"]["path"] = name

    def onnx(data: dict[str, Any], name: str) -> None:
        data["request"]["onnx"] = name

    assert "engine.path" in damaged(
        tmp_path / "e.json", engine_record(export_record(RESNET)), EngineRecord, engine, name
    )
    assert "request.onnx" in damaged(
        tmp_path / "e.json", engine_record(export_record(RESNET)), EngineRecord, onnx, name
    )


@pytest.mark.parametrize("name", [*OUTSIDE, "a/b", "-rf", ".lock", "$(x)", "a b"])
@pytest.mark.parametrize("field", ["case_id", "slug"])
def test_a_plan_names_no_folder_outside(tmp_path: Path, field: str, name: str) -> None:
    def case(data: dict[str, Any], name: str) -> None:
        data["cases"][0][field] = name

    plan = plan_of([RESNET], [case_of(RESNET, "noop", "fp32", 1)])
    assert f"cases.0.{field}" in damaged(tmp_path / "plan.json", plan, Plan, case, name)


def test_a_plan_names_its_models_below_models(tmp_path: Path) -> None:
    def model(data: dict[str, Any], name: str) -> None:
        data["models"][0]["slug"] = name

    plan = plan_of([RESNET], [case_of(RESNET, "noop", "fp32", 1)])
    assert "models.0.slug" in damaged(tmp_path / "plan.json", plan, Plan, model, "../elsewhere")


def test_an_artifact_that_is_a_link_out_of_models_is_refused_unread(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"x")
    folder = tmp_path / "models" / "resnet50"
    folder.mkdir(parents=True)
    file = export_record(RESNET).onnx["fp32"].model_copy(update={"sha256": store.sha256_file(secret)})
    (folder / file.path).symlink_to(secret)
    with pytest.raises(MalformedFileError, match="is a link that leads out of"):
        store.check_artifact(folder, file, "make export")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "../x",
            "/etc/passwd",
            "resnet50/../../x",
            "hf:\n",
            "module:os:system;x",
            "module:../x:y",
            "torchvision:../x",
        ),
        *("onnx:/etc/passwd", "resnet50;touch x", "resnet50 --force", "--force", "$(x)", ""),
    ],
)
def test_a_model_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InferometerError) as caught:
        model_info(name)
    assert "\n" not in caught.value.problem


@pytest.mark.parametrize(
    "name",
    ["hf:../../etc", "hf:/", "hf:..", "onnx:../../x.onnx", "onnx:/a/..onnx", "hf:$(touch x)", "hf:-rf", "onnx:;.onnx"],
)
def test_the_folder_of_any_model_lies_directly_below_models(name: str, tmp_path: Path) -> None:
    source = parse_source(name)
    assert source is not None
    folder = Models(tmp_path).folder(source.slug).root
    assert folder.resolve().parent == tmp_path.resolve()
    assert not source.slug.startswith(("-", "."))
