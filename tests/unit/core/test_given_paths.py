"""A folder where a file is expected, and a file where a folder is: the error says so, with the next thing to type."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import aggregate, history, report, verify
from harness.core import cli
from harness.core.errors import InferometerError, MissingInputError, UsageError
from harness.core.given_paths import require_file, require_folder
from harness.planning import claims
from harness.planning.config import read_config
from harness.zoo.input_files import prompt_lines, read_inputs, read_texts


def refused(*words: str | Path) -> MissingInputError:
    with pytest.raises(MissingInputError) as caught:
        verify.stage(["--bundle", *map(str, words)])
    return caught.value


def test_a_folder_is_no_bundle_and_the_archive_in_it_is_named(tmp_path: Path) -> None:
    error = refused(tmp_path)
    assert error.problem == f"{tmp_path} is a folder, and a bundle is a file."
    assert f"`make bundle RESULTS={tmp_path}`" in error.hint
    (tmp_path / "ab12.tar.xz").touch()
    assert refused(tmp_path).hint == f"Name the archive in it: make verify BUNDLE={tmp_path}/ab12.tar.xz"
    assert refused(tmp_path / "none.tar.xz").problem == f"There is no file {tmp_path}/none.tar.xz."


@pytest.mark.parametrize("read", [read_inputs, read_texts, prompt_lines, read_config])
def test_a_folder_is_no_file_of_the_plan(read: object, tmp_path: Path) -> None:
    assert callable(read)
    with pytest.raises(MissingInputError, match=r"is a folder, and .* is a file") as caught:
        read(tmp_path)
    assert caught.value.hint


def test_the_configurations_in_a_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    with pytest.raises(MissingInputError) as caught:
        read_config(tmp_path)
    assert f"{tmp_path}/mine.yaml." in caught.value.hint


def test_the_path_of_a_claim_gets_its_name() -> None:
    with pytest.raises(InferometerError) as caught:
        claims.read("configs/published/own-h200.yaml", claims.FOLDER)
    assert "CLAIM=own-h200." in caught.value.hint


@pytest.mark.parametrize(
    ("stage", "option", "variable"),
    [(report, "--results", "RESULTS"), (aggregate, "--models-dir", "MODELS_DIR"), (history, "--store", "STORE")],
)
@pytest.mark.parametrize("below", [(), ("x",)], ids=["itself", "below it"])
def test_a_file_is_no_folder(stage: object, option: str, variable: str, below: Sequence[str], tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    file.touch()
    with pytest.raises(UsageError) as caught:
        getattr(stage, "stage")([option, str(file.joinpath(*below))])  # noqa: B009 - of any module
    assert caught.value.problem == f"{file} is a file, and {variable} is a folder."
    assert caught.value.hint == f"Name a folder: {variable}={tmp_path}."


def test_a_folder_that_is_not_there_yet_and_a_name_that_no_system_takes_pass(tmp_path: Path) -> None:
    require_folder(tmp_path / "new" / "folder", "RESULTS", "results")
    require_folder(tmp_path / ("x" * 5000), "RESULTS", "results")
    file = tmp_path / "file"
    file.touch()
    require_file(file, "a bundle", "")


def test_the_home_folder_of_a_name_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "file").touch()
    parser = cli.parser("harness.report", "")
    cli.add_folders(parser, models=False)
    with pytest.raises(UsageError, match="RESULTS is a folder"):
        parser.parse_args(["--results", "~/file"])
