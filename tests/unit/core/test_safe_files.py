"""What may name a file, and that only ordinary files are read; neither a name nor a link leads out of its folder."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from harness.core import archive, store
from harness.core.errors import InferometerError, MalformedFileError, StorageError
from harness.core.lock import exclusive
from harness.core.safe_files import open_to_read, open_to_write, path_inside
from harness.core.schemas import Plan
from harness.core.schemas.vocabulary import FileName, RelativePath
from harness.planning import config
from harness.processes.launcher import Worker
from harness.processes.monitor_handle import Monitor

HOSTILE = ["", "/etc/passwd", "..", "../x", "a/../x", "a//b", "./a", "a/.", "a/", "a\\b", "C:x", "a\nb", "a\0b", "~\n"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_refused_as_type_and_as_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(RelativePath).validate_python(name)
    with pytest.raises(MalformedFileError, match="is no path below") as caught:
        path_inside(tmp_path, name)
    assert "\n" not in caught.value.problem


@pytest.mark.parametrize("name", ["plan.json", "engines/a-b_1+graph.plan", "raw/case/1.json", "größe/x"])
def test_an_ordinary_name_is_taken(name: str, tmp_path: Path) -> None:
    assert TypeAdapter(RelativePath).validate_python(name) == name
    assert path_inside(tmp_path, name) == tmp_path / name


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
    assert path_inside(folder, "b/file") == folder / "b/file"
    with pytest.raises(MalformedFileError, match="is a link that leads out of"):
        path_inside(folder, "out/file")


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def unix_socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def device(_path: Path) -> Path:
    return Path("/dev/zero")


ODD = [fifo, unix_socket, folder, device]


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A name that is short enough for a socket."""
    monkeypatch.chdir(tmp_path)
    return Path("odd")


@pytest.mark.parametrize("make", ODD)
def test_every_reader_refuses_a_file_that_is_not_ordinary(make: Callable[[Path], Path], short: Path) -> None:
    path = make(short)
    readers: list[Callable[[], object]] = [
        lambda: store.load(path, Plan, "make plan"),
        lambda: store.load_raw(path),
        lambda: archive.unpack(path),
        lambda: config.read_yaml(path),
    ]
    for read in readers:
        with pytest.raises((InferometerError, IsADirectoryError)):
            read()
    assert store.tail(path) == ""


@pytest.mark.parametrize("make", [fifo, unix_socket, folder])
def test_nothing_is_written_into_it(make: Callable[[Path], Path], short: Path) -> None:
    path = make(short)
    with pytest.raises(StorageError, match="not written to"):
        open_to_write(path)


def test_a_link_is_followed_by_no_log_and_no_lock(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("precious")
    link = tmp_path / "link"
    link.symlink_to(kept)
    with pytest.raises(StorageError, match="is a link"), exclusive(link):
        pass
    with pytest.raises(StorageError, match="is a link"):
        Monitor(link)
    with pytest.raises(StorageError, match="is a link"):
        Worker("noop", 1, link)._start()
    assert kept.read_text() == "precious"
    with open_to_read(link) as file:  # reading through a link harms nothing
        assert file.read() == b"precious"


def test_a_new_log_is_empty_and_an_old_one_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old")
    os.close(open_to_write(log))
    assert log.read_bytes() == b""
    os.close(open_to_write(tmp_path / "new"))
    with pytest.raises(MalformedFileError), open_to_read(fifo(tmp_path / "fifo")):
        pass
