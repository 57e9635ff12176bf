"""Folders that get their name from what is in them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.content_addressed import content_name, publish, share_equal_files, staging_folder


def write(folder: Path, **files: str) -> None:
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_the_name_follows_paths_and_contents(tmp_path: Path) -> None:
    for name, files in {
        "one": {"a": "1", "b__c": "2"},
        "same": {"b__c": "2", "a": "1"},
        "changed": {"a": "1", "b__c": "3"},
        "moved": {"a": "1", "c": "2"},
    }.items():
        write(tmp_path / name, **files)
    names = {entry: content_name(tmp_path / entry) for entry in ("one", "same", "changed", "moved")}
    assert names["one"] == names["same"]
    assert len(set(names.values())) == 3
    assert content_name(tmp_path / "one", "besides") not in names.values()


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    with staging_folder(tmp_path) as staged:
        write(staged, a="1")
        publish(staged, tmp_path / "named")
    assert [path.name for path in tmp_path.iterdir()] == ["named"]
    with staging_folder(tmp_path) as staged:
        write(staged, a="2")
    assert [path.name for path in tmp_path.iterdir()] == ["named"]


def test_a_folder_that_is_there_is_never_changed(tmp_path: Path) -> None:
    write(tmp_path / "named", a="1")
    with staging_folder(tmp_path) as staged:
        write(staged, a="2")
        with pytest.raises(FileExistsError):
            publish(staged, tmp_path / "named")
    assert (tmp_path / "named" / "a").read_text() == "1"


def test_files_of_a_killed_process_are_removed_and_those_of_a_living_one_stay(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from harness.core.content_addressed import staging_folder\n"
        "with staging_folder(Path(sys.argv[1])) as staged:\n"
        "    print(staged, flush=True); sys.stdin.read(); os._exit(0)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        with staging_folder(tmp_path):
            assert theirs.is_dir()
        other.kill()
    assert theirs.is_dir()
    with staging_folder(tmp_path):
        assert not theirs.exists()


def test_equal_files_of_two_folders_take_their_space_once(tmp_path: Path) -> None:
    write(tmp_path / "old", weights="w" * 100, model="m" * 100)
    write(tmp_path / "new", weights="w" * 100, model="n" * 100)
    share_equal_files(tmp_path / "new", [tmp_path / "old"])
    assert (tmp_path / "new" / "weights").samefile(tmp_path / "old" / "weights")
    assert (tmp_path / "new" / "model").read_text() == "n" * 100
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["model", "weights"]
