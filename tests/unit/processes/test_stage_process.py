"""What a stage ends with, as an exception."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from harness.core import errors
from harness.processes import stage_process
from harness.processes.stage_process import run_stage


def test_a_stage_that_fails_raises_its_error_with_its_hint(tmp_path: Path) -> None:
    with pytest.raises(errors.MissingInputError) as raised:
        run_stage("aggregate", "--results", str(tmp_path), front="api")
    assert "plan.json does not exist" in raised.value.problem
    assert raised.value.hint == "Run `profile()` first."


def test_a_wrong_option_is_a_usage_error() -> None:
    with pytest.raises(errors.UsageError) as raised:
        run_stage("plan", "--nothing")
    assert raised.value.hint == "python -m harness.plan --help"


def test_lines_are_shown_as_they_come(tmp_path: Path) -> None:
    shown: list[str] = []
    config = Path(__file__).parents[3] / "configs/smoke.yaml"
    assert run_stage("plan", "--config", str(config), "--results", str(tmp_path), show=shown.append) == ()
    assert shown[0].startswith("Plan ")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, errors.RegressionError),
        (2, errors.UsageError),
        (4, errors.FormatError),
        (5, errors.UnavailableError),
        (8, errors.ExportError),
    ],
)
def test_the_exit_code_decides_the_kind(code: int, kind: type[errors.InferometerError]) -> None:
    error = stage_process.stage_error("run", code, "noise\nError: A problem.\nHint:  Do this.\n")
    assert type(error) is kind
    assert error.args == ("A problem.",)


def test_every_kind_of_error_has_its_code() -> None:
    known = {kind.exit_code for kind in errors.InferometerError.__subclasses__()}
    assert known == set(stage_process.ERRORS)


def test_a_crash_is_no_user_error() -> None:
    error = stage_process.stage_error("run", 1, "Traceback (most recent call last):\nKeyError: 'x'\n")
    assert type(error) is RuntimeError
    assert "harness.run ended with 1" in str(error)
    assert "KeyError" in str(error)


def test_own_modules_are_on_the_path_and_the_installation_is_left_to_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), str(Path(sys.prefix) / "lib"), str(tmp_path)])
    result = stage_process.search_path()
    assert result.count(str(tmp_path.resolve())) == 1
    assert str(Path.cwd()) in result
    assert not [entry for entry in result if entry.startswith(sys.prefix)]


@pytest.mark.parametrize(("stage", "code"), [("build_engine", 5), ("run", 10), ("profile_ops", 10), ("report", 0)])
def test_an_error_of_some_rows_does_not_end_the_pipeline(
    stage: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_process, "_run", lambda *_: code)
    assert run_stage(stage) == ()


@pytest.mark.parametrize(("stage", "code"), [("run", 5), ("plan", 5), ("report", 1)])
def test_an_error_of_all_rows_ends_the_pipeline(stage: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_process, "_run", lambda *_: code)
    with pytest.raises(RuntimeError):
        run_stage(stage)


STOPS_SLOWLY = """
import pathlib, sys, time
try:
    print("started", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1)  # longer than Popen itself waits after an interrupt
    pathlib.Path(sys.argv[1]).touch()
"""


def test_an_interrupt_ends_the_stage_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    let_go = tmp_path / "let-go"

    class Slow(subprocess.Popen[str]):
        def __init__(self, _command: list[str], **options: object) -> None:
            super().__init__([sys.executable, "-c", STOPS_SLOWLY, str(let_go)], **options)  # type: ignore[call-overload]
            started.append(self.pid)

    monkeypatch.setattr(stage_process.subprocess, "Popen", Slow)

    def interrupt(_line: str) -> None:
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        run_stage("run", show=interrupt)
    assert let_go.is_file()
    assert not psutil.pid_exists(started[0])
