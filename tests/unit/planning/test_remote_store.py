"""A store of runs behind a URL: records are created once and copied here; errors have two lines."""

from __future__ import annotations

import functools
import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from harness import compare, history
from harness.core import store
from harness.core.errors import InferometerError, MalformedFileError, StorageError, UnavailableError, UsageError
from harness.core.layout import Results, RunStore
from harness.core.schemas import Comparison
from harness.planning.run_store import RemoteStore, is_url
from tests.fixtures.histories import filled, saved, summary
from tests.synthetic_history import nights

URL = "memory://bench/nightly"
Memory = fsspec.AbstractFileSystem


@pytest.fixture
def memory() -> Iterator[Memory]:
    files = fsspec.filesystem("memory")
    yield files
    files.rm("/", recursive=True)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """(folder, its URL) of a local web server."""
    folder = tmp_path / "site"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def add(results: Results, url: str) -> None:
    history.stage(["--results", str(results.root), "--store", url, "--commit", "abc"])


def test_runs_of_two_hosts_meet_in_one_store(
    memory: Memory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = saved(tmp_path / "one", summary(1)), saved(tmp_path / "two", summary(2))
    add(first, URL)
    before = {path: memory.cat_file(path) for path in memory.find("/bench/nightly/runs")}
    assert len(before) == 2
    add(second, URL)
    assert "2 runs" in capsys.readouterr().out
    assert {path: memory.cat_file(path) for path in before} == before
    assert len(memory.find("/bench/nightly/runs")) == 4
    assert memory.cat_file("/bench/nightly/history.html") == second.store_copy(URL).page.read_bytes()
    add(first, URL)
    assert "in the store already" in capsys.readouterr().out
    assert len(memory.find("/bench/nightly/runs")) == 4


def test_a_run_that_the_store_lost_is_not_kept_here(memory: Memory, tmp_path: Path) -> None:
    result = saved(tmp_path / "one", summary(1))
    add(result, URL)
    memory.rm("/bench/nightly/runs", recursive=True)
    add(saved(tmp_path / "one", summary(2)), URL)
    assert len(list(result.store_copy(URL).runs.glob("*/run.json"))) == 1


def test_a_record_is_never_overwritten_and_an_unwritten_one_is_not_kept(memory: Memory, tmp_path: Path) -> None:
    files, remote = RunStore(tmp_path / "s"), RemoteStore(URL)
    filled(files, nights([1.0, 1.0]))
    paths = sorted(files.runs.glob("*/run.json"))
    memory.makedirs("/bench/nightly/runs/n01")
    memory.pipe_file("/bench/nightly/runs/n01/run.json", b"of another host")
    with pytest.raises(MalformedFileError, match="never overwritten"):
        remote.create(files, paths)
    assert memory.cat_file("/bench/nightly/runs/n01/run.json") == b"of another host"
    assert [path.is_file() for path in paths] == [True, False]
    assert memory.cat_file("/bench/nightly/runs/n00/run.json") == paths[0].read_bytes()
    remote.create(files, paths[:1])  # the same record again is no conflict


def test_a_store_on_a_web_server_is_read_only(
    site: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, url = site
    filled(RunStore(folder), nights([1.0] * 8))
    (folder / "runs" / ".odd").mkdir()
    results = saved(tmp_path / "r", summary(1))
    before = sorted(folder.rglob("*"))
    add(results, url)
    shown = capsys.readouterr().out
    assert "can only be read, so nothing is added" in shown
    assert "8 runs" in shown
    assert str(results.store_copy(url).page) in shown
    assert sorted(folder.rglob("*")) == before
    with pytest.raises(UsageError, match="only be read"):
        history.stage(["--results", str(results.root), "--store", url, "--confirm", "x"])
    with pytest.raises(StorageError, match="does not exist"):
        add(results, f"{url}/nothing")


def test_compare_takes_its_baseline_from_a_url(site: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = site
    for day in (1, 3):
        add(saved(tmp_path / "r", summary(day)), str(folder))
    results = saved(tmp_path / "r", summary(5))
    with pytest.raises(InferometerError):  # three rounds give no verdict
        compare.stage(["--results", str(results.root), "--baseline", url])
    side = store.load(results.comparison, Comparison, "x").baseline
    assert side is not None
    assert side.measured_from == summary(3).measured_from


class Refusing:
    """The files of a store that raise one error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, _name: str) -> object:
        raise self._error


@pytest.mark.parametrize(
    ("error", "problem", "hint"),
    [
        (FileNotFoundError("The specified bucket does not exist"), "does not exist", "Make the bucket"),
        (PermissionError("Access Denied"), "Access Denied", "permission"),
        (ConnectionResetError("reset"), "ConnectionResetError: reset", "network"),
    ],
)
def test_errors_of_a_store_have_two_lines(
    error: Exception, problem: str, hint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    remote, files = RemoteStore(URL), RunStore(tmp_path)
    filled(files, nights([1.0]))
    monkeypatch.setattr(remote, "_files", Refusing(error))
    with pytest.raises(StorageError, match=problem) as caught:
        remote.create(files, [files.run("n00")])
    assert hint in caught.value.hint
    assert not files.run("n00").is_file()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UnavailableError, match="s3://") as caught:
        RemoteStore("s3://bucket/folder")
    assert "inferometer[stores]" in caught.value.hint


@pytest.mark.parametrize("text", ["s3://", "nowhere://x", "s3://me:secret@host/x", "https://host/x?token=1"])
def test_a_text_that_is_no_url_of_a_folder_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        RemoteStore(text)
    assert "secret" not in caught.value.problem


def test_a_file_url_is_its_folder(tmp_path: Path) -> None:
    assert not is_url(f"file://{tmp_path}")
    results = saved(tmp_path / "r", summary(1))
    add(results, f"file://{tmp_path / 's'}")
    assert RunStore(tmp_path / "s").page.is_file()
