"""Engines that the stage export builds while other models are exported: when, how many, and who reports what failed."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.core import store
from harness.core.errors import StorageError
from harness.core.layout import Results
from harness.core.schemas import Plan
from tests.fixtures.engine_folder import Folder, write_plan
from tests.synthetic_results import RESNET, FakeModel

ROOT = Path(__file__).parents[2]
STATIC = "static+graph"
FIRST, SECOND, THIRD = (dataclasses.replace(RESNET, name=name) for name in ("resnet18", "resnet50", "resnet101"))
GUARD_S = 300
"""Ends a stage that waits in vain."""
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
"""A stage that forks has one thread."""


class Folders:
    """Models in one results folder, whose exports and engines only wait for each other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.events = root / "events"
        self.events.mkdir()
        self.of: dict[str, Folder] = {}

    def plan(self, models: dict[FakeModel, tuple[int, ...]]) -> None:
        """models: the batch sizes of the engines of each."""
        cases = []
        for model, batches in models.items():
            self.of[model.name] = Folder(self.root, model)
            cases += self.of[model.name].cases(*(("tensorrt", batch, STATIC) for batch in batches))
        write_plan(self.root, list(models), cases)

    def exports(self, **does: dict[str, Any]) -> None:
        """What the export of a model does (tests/fixtures/early_exports.py)."""
        (self.root / "exports.json").write_text(json.dumps(does))

    def meeting(self, name: str) -> Path:
        """A folder in which builds write their process ids."""
        folder = self.root / name
        folder.mkdir()
        return folder

    def engines(self, model: FakeModel) -> list[str]:
        return [record.engine.path.split("-")[1] for record in self.of[model.name].records()]

    def stage(self, name: str, *options: str) -> list[str]:
        places = ["--results", str(self.root), "--models-dir", str(self.root / "models")]
        return [sys.executable, "-m", f"tests.fixtures.{name}", *places, *options]

    def run(self, name: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.stage(name, *options),
            cwd=ROOT,
            env={**ENVIRONMENT, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=GUARD_S,
        )

    @contextmanager
    def started(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        # A job in the background of a script ignores SIGINT, and so would everything that it starts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with subprocess.Popen(
            self.stage("early_exports", *options),
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    result = Folders(tmp_path)
    result.exports()
    return result


def _await(condition: Callable[[], object], stage: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + GUARD_S
    while not condition():
        assert stage.poll() is None, stage.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _count(folder: Path) -> int:
    return len(list(folder.iterdir()))


def _is_gone(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    return False


def _ended(process: Path) -> bool:
    """process: file with its id, which may not be there yet."""
    return process.is_file() and (pid := process.read_text()) != "" and _is_gone(pid)


def test_engines_are_built_while_another_model_is_exported_and_after_the_last_one(folders: Folders) -> None:
    first, second = folders.meeting("first"), folders.meeting("second")
    folders.plan({FIRST: (1, 8), SECOND: (1, 8)})
    folders.of[FIRST.name].export(meets=[str(first), 2])
    folders.of[SECOND.name].export(meets=[str(second), 3])
    folders.exports(**{SECOND.name: {"waits_for": [str(first), 2]}})
    exporting = Results(folders.root).exporting
    with folders.started("--export-jobs", "2", "--engine-jobs", "2") as stage:
        _await(lambda: _count(second) == 2, stage)
        assert not exporting.exists()  # nothing is exported any more
        assert stage.poll() is None
        (second / "released").touch()
        printed, errors = stage.communicate(timeout=GUARD_S)
    assert (stage.returncode, errors) == (0, "")
    assert folders.engines(FIRST) == folders.engines(SECOND) == ["b1", "b8"]
    lines = printed.splitlines()
    assert lines[0] == "2 models to export, 2 at the same time; engines of exported models meanwhile"
    for model in (FIRST.name, SECOND.name):
        assert lines.count(f"{model}: exported") == 1
        assert sum(line.startswith(f"{model}: building engine fp16-b") for line in lines) == 2
        assert sum(line.startswith(f"{model}: engines/fp16-b") for line in lines) == 2
    assert len(lines) == 1 + 2 * (1 + 2 + 2)
    begun = lines.index(f"{SECOND.name}: exported")
    assert sum(line.startswith(f"{FIRST.name}: building engine") for line in lines[:begun]) == 2
    after = folders.run("building", "--engine-jobs", "2")
    assert (after.returncode, after.stderr) == (0, "")
    assert [line.rpartition(" is ")[2] for line in after.stdout.splitlines()] == ["up to date"] * 4
    again = folders.run("early_exports", "--export-jobs", "2", "--engine-jobs", "2")
    assert sorted(again.stdout.splitlines()[1:]) == [f"{name.name}: exported" for name in (FIRST, SECOND)]


def test_a_failed_build_is_left_to_the_stage_that_reports_it_and_a_failed_export_gets_no_engine(
    folders: Folders,
) -> None:
    folders.plan({FIRST: (4, 8), SECOND: (1,), THIRD: (1,)})
    folders.of[FIRST.name].export(largest=4)
    folders.of[SECOND.name].export()
    folders.of[THIRD.name].export()
    # 10: it lacks a file that other rows need.
    folders.exports(**{SECOND.name: {"code": 10}, THIRD.name: {"code": 8}})
    done = folders.run("early_exports", "--engine-jobs", "2")
    assert done.returncode == 10
    lines = done.stdout.splitlines()
    assert lines[0] == "3 models to export, one after the other; engines of exported models meanwhile"
    (left,) = [line for line in lines if "not built" in line]
    assert left.startswith(f"{FIRST.name}: engine fp16-b8-")
    assert left.endswith(" was not built; it is tried again after the exports")
    assert [line for line in done.stderr.splitlines() if not line.startswith("Hint: ")] == [
        f"Error: {THIRD.name} cannot be exported.",
        "Error: 1 of 3 models were not exported.",
    ]
    assert [folders.engines(model) for model in (FIRST, SECOND, THIRD)] == [["b4"], ["b1"], []]
    after = folders.run("building", "--engine-jobs", "2", "--models", FIRST.name)
    assert (after.returncode, after.stdout.count("up to date")) == (8, 1)
    assert "Error: 1 engines were not built. resnet18 fp16-b8-" in after.stderr


INTERPRETER = """#!/bin/sh
printf '%s\\n' "$*" >>"$LOG"
printf '%s\\n' "$PPID" >"$LOG.pid"
exit 5
"""
"""An interpreter without TensorRT. It writes the process id of its guard, which is gone only when the stage knows its
end."""


def _interpreter(folder: Path) -> Path:
    path = folder / "python"
    path.write_text(INTERPRETER)
    path.chmod(0o755)
    return path


def test_without_tensorrt_one_command_detects_it(folders: Folders) -> None:
    python, log = _interpreter(folders.root), folders.root / "log"
    folders.plan({FIRST: (1,), SECOND: (1,), THIRD: (1,)})
    folders.exports(**{model.name: {"outlives": f"{log}.pid"} for model in (SECOND, THIRD)})
    options = ("--export-jobs", "2", "--engine-jobs", "2", "--python", f"tensorrt={python}")
    done = folders.run("early_exports", *options, WITHOUT_FAKES="1", LOG=str(log))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()[1:]) == sorted(f"{model.name}: exported" for model in (FIRST, SECOND, THIRD))
    (started,) = log.read_text().splitlines()
    assert started.startswith("-m harness.build_engine --results ")
    assert f" --models {FIRST.name} " in started


@pytest.mark.parametrize("without", ["jobs", "a GPU", "engines", "force"])
def test_otherwise_no_build_is_started(folders: Folders, without: str) -> None:
    python, log = _interpreter(folders.root), folders.root / "log"
    batches = () if without == "engines" else (1,)
    folders.plan({FIRST: batches, SECOND: batches})
    path = Results(folders.root).plan
    if without == "a GPU":
        store.save(path, store.load(path, Plan, "make plan").model_copy(update={"device": "cpu"}))
    more = {"jobs": ["--engine-jobs", "1"], "force": ["--force"]}.get(without, [])
    options = ("--export-jobs", "2", "--engine-jobs", "2", "--python", f"tensorrt={python}", *more)
    done = folders.run("early_exports", *options, WITHOUT_FAKES="1", LOG=str(log))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "2 models to export, 2 at the same time"
    assert not log.exists()


def test_ctrl_c_ends_every_export_and_every_build(folders: Folders) -> None:
    first = folders.meeting("first")
    folders.plan({FIRST: (1, 8), SECOND: (1,)})
    folders.of[FIRST.name].export(meets=[str(first), 3])
    folders.exports(**{SECOND.name: {"waits_for": [str(first), 4]}})
    with folders.started("--export-jobs", "2", "--engine-jobs", "2") as stage:
        _await(lambda: _count(first) == 2 and (folders.events / SECOND.name).exists(), stage)
        stage.send_signal(signal.SIGINT)
        _, errors = stage.communicate(timeout=GUARD_S)
    assert (stage.returncode, errors.strip().splitlines()[0][:8]) == (130, "Stopped.")
    pids = [(folders.events / SECOND.name).read_text(), *(path.name for path in first.iterdir())]
    assert [_is_gone(pid) for pid in pids] == [True] * 3
    assert folders.engines(FIRST) == []


def test_a_full_disk_starts_no_further_build_and_ends_the_stage_after_those_that_run(folders: Folders) -> None:
    first = folders.meeting("first")
    folders.plan({FIRST: (1, 4, 8), SECOND: (1,)})
    folders.of[FIRST.name].export(meets=[str(first), 3])
    folders.of[SECOND.name].export()
    folders.exports(**{SECOND.name: {"waits_for": [str(first), 2], "code": StorageError.exit_code}})
    with folders.started("--export-jobs", "2", "--engine-jobs", "2") as stage:
        _await(lambda: _count(first) == 2 and _ended(folders.events / SECOND.name), stage)
        (first / "released").touch()
        _, errors = stage.communicate(timeout=GUARD_S)
    assert stage.returncode == StorageError.exit_code
    assert errors.splitlines()[0] == f"Error: {SECOND.name} cannot be exported."
    assert folders.engines(FIRST) == ["b1", "b4"]


def test_a_number_of_builds_out_of_range_is_refused(folders: Folders) -> None:
    folders.plan({FIRST: (1,), SECOND: (1,)})
    done = folders.run("early_exports", "--engine-jobs", "65")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: 65 engines cannot be built at the same time.\n")
