"""confine: what may name a file, and that neither a name nor a link leads out of its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from harness.core.errors import MalformedFileError
from harness.core.safe_files import FileName, RelativePath, inside

HOSTILE = ["", "/etc/passwd", "..", "../x", "a/../x", "a//b", "./a", "a/.", "a/", "a\\b", "C:x", "a\nb", "a\0b", "~\n"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_refused_as_type_and_as_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(RelativePath).validate_python(name)
    with pytest.raises(MalformedFileError, match="is no path below") as caught:
        inside(tmp_path, name)
    assert "\n" not in caught.value.problem


@pytest.mark.parametrize("name", ["plan.json", "engines/a-b_1+graph.plan", "raw/case/1.json", "größe/x"])
def test_an_ordinary_name_is_taken(name: str, tmp_path: Path) -> None:
    assert TypeAdapter(RelativePath).validate_python(name) == name
    assert inside(tmp_path, name) == tmp_path / name


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".lock", "-rf", "--help", "a/b", "a b", "a;b", "$(x)", "a\n", "x" * 201]
)
def test_a_file_name_is_one_plain_word(name: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(FileName).validate_python(name)


@pytest.mark.parametrize("name", ["resnet50-tensorrt-cuda-fp16-b8-static+graph", "vit_b_16", "5f831d5a8348"])
def test_names_of_ours_are_file_names(name: str) -> None:
    assert TypeAdapter(FileName).validate_python(name) == name


def test_a_link_inside_is_followed_and_one_that_leads_out_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    (folder / "a").mkdir(parents=True)
    (folder / "b").symlink_to("a")
    (folder / "out").symlink_to(tmp_path)
    assert inside(folder, "b/file") == folder / "b/file"
    with pytest.raises(MalformedFileError, match="is a link that leads out of"):
        inside(folder, "out/file")
