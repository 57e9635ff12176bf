"""A real run that is watched while it works: by --once, as a log, on a terminal and through the page."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core import store
from harness.core.layout import Models
from harness.core.schemas import Running
from tests.fixtures.stages import ROOT, Folder, two_lines, until
from tests.fixtures.waiting import WAITING, install_waiting

pytestmark = pytest.mark.stages


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """A folder with a plan of six turns, which need no export. They wait as long as the file `wait` exists."""
    result = Folder(tmp_path, Models(tmp_path / "models"))
    install_waiting(result)
    result.plan({**WAITING, "batch_sizes": [1, 2]}, models=("spin:1ms",), rounds=3)
    yield result
    assert result.orphans() == []


def let_go_on(folder: Folder) -> None:
    (folder.root / "wait").unlink()


def watch(folder: Folder, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "harness.watch", "--results", str(folder.results.root), *arguments]


def one_turn(folder: Folder) -> None:
    """Plan again, and measure all of it."""
    folder.plan({"backends": ["spin"], "batch_sizes": [1]}, models=("spin:1ms",))
    assert folder("run").returncode == 0


def once(folder: Folder) -> tuple[int, int, str]:
    """(turns done, turns planned, all that was printed)."""
    done = folder("watch", "--once")
    assert (done.returncode, done.stderr) == (0, "")
    counts = re.search(r"^(\d+) of (\d+) turns", done.stdout, re.MULTILINE)
    assert counts is not None
    return int(counts[1]), int(counts[2]), done.stdout


@contextlib.contextmanager
def watching(folder: Folder, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else a background job's children ignore it
    with subprocess.Popen(
        watch(folder, *arguments), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_counts_grow_while_a_run_works_until_it_is_complete(folder: Folder) -> None:
    seen = [once(folder)]
    assert seen[0][:2] == (0, 6)
    assert "waiting for a run to begin" in seen[0][2]
    with watching(folder) as log:
        assert log.stdout is not None
        first = log.stdout.readline().rstrip()
        with folder.started("run") as run:
            assert until(folder.results.running.exists)
            seen.append(once(folder))
            let_go_on(folder)
            while run.poll() is None:
                seen.append(once(folder))
                time.sleep(0.2)
            assert run.returncode == 0
        lines = log.stdout.read().splitlines()
        assert log.wait(300) == 0
    seen.append(once(folder))
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert {planned for _, planned, _ in seen} == {6}
    assert "running" in seen[1][2].splitlines()[0]
    assert "now: round" in seen[1][2]
    assert "complete" in seen[-1][2].splitlines()[0]
    assert all("\x1b" not in text for _, _, text in seen)
    assert first.endswith(f"waiting for a run to begin: `make run RESULTS={folder.results.root}`")
    assert lines[-1].endswith(f"complete: `make aggregate report RESULTS={folder.results.root}`")
    assert sum(line.startswith("[") for line in lines) >= 2
    assert not any("\x1b" in line for line in lines)
    assert not folder.results.running.exists()


def test_a_killed_run_is_reported_as_such_and_the_next_one_takes_its_place(folder: Folder) -> None:
    with folder.started("run") as run:
        assert until(folder.results.running.exists)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    done, _, text = once(folder)
    assert done == 0
    assert "gone: the run that measured round 1" in text
    assert "stopped" in text.splitlines()[0]
    let_go_on(folder)
    assert folder("run").returncode == 0
    assert "gone" not in once(folder)[2]


def test_ctrl_c_ends_the_run_and_takes_its_file_away(folder: Folder) -> None:
    with folder.started("run") as run:
        assert until(folder.results.running.exists)
        assert store.load(folder.results.running, Running, "make run").pid == run.pid
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=900)
    assert not folder.results.running.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watching_ends_quietly_at_any_time(folder: Folder, number: signal.Signals) -> None:
    with watching(folder) as log:
        assert log.stdout is not None
        log.stdout.readline()
        log.send_signal(number)
        _, errors = log.communicate(timeout=900)
    assert (log.returncode, errors) == (0, "")


def test_on_a_terminal_it_draws_until_complete(folder: Folder) -> None:
    one_turn(folder)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    with subprocess.Popen(watch(folder), cwd=ROOT, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # a terminal whose other end is closed
            while select.select([ours], [], [], 300)[0] and (chunk := os.read(ours, 65536)):
                shown += chunk
        assert process.wait(300) == 0
    os.close(ours)
    assert b"1 of 1 turns" in shown
    assert shown.endswith(b"\x1b[?25h")  # the cursor is there again


@pytest.mark.slow
def test_follow_goes_on_when_a_run_is_complete(folder: Folder) -> None:
    one_turn(folder)
    with watching(folder, "--follow") as log:
        assert log.stdout is not None
        while (
            not log.stdout.readline()
            .rstrip()
            .endswith(f"complete: `make aggregate report RESULTS={folder.results.root}`")
        ):
            continue
        with pytest.raises(subprocess.TimeoutExpired):
            log.wait(2)
        log.send_signal(signal.SIGINT)
        assert log.wait(300) == 0


def test_the_page_reports_the_files_on_disk(folder: Folder) -> None:
    with watching(folder, "--web", "--port", "0") as server:
        assert server.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
        assert address is not None
        with urllib.request.urlopen(f"{address[0]}state.json", timeout=300) as answer:  # noqa: S310 - ours, on loopback
            listed = json.load(answer)
        server.send_signal(signal.SIGINT)
        assert server.wait(300) == 0
    assert (listed["state"], listed["planned"]) == ("waiting", 6)
    assert [row["model"] for row in listed["rows"]] == ["spin:1ms", "spin:1ms"]


def test_without_a_plan_once_is_an_error_and_watching_waits_for_one(tmp_path: Path) -> None:
    folder = Folder(tmp_path, Models(tmp_path / "models"))
    done = subprocess.run(watch(folder, "--once"), cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 3
    assert two_lines(done)[1] == f"Hint:  Run `make plan RESULTS={folder.results.root}` first."
    with watching(folder) as log:
        assert log.stdout is not None
        assert log.stdout.readline().startswith("There is no plan here yet")
        folder.plan({"backends": ["spin"], "batch_sizes": [1]}, models=("spin:1ms",))
        assert "waiting for a run to begin" in log.stdout.readline()


@pytest.mark.parametrize(
    "arguments", [("--port", "80"), ("--web", "--port", "seven"), ("--web", "--port", "70000"), ("--web", "--once")]
)
def test_options_that_cannot_be_are_refused(folder: Folder, arguments: tuple[str, ...]) -> None:
    done = folder("watch", *arguments)
    assert done.returncode == 2
    two_lines(done)
