"""Killed at many random moments, a run loses at most the process in flight and ends with the same cases."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.core import store
from harness.core.layout import Results
from harness.core.schemas import Measured, Plan, Summary
from tests.fixtures.forked import run_forked
from tests.fixtures.stages import ROOT

pytestmark = pytest.mark.stages

CONFIG = """
models: [spin:50us, spin:1ms]
matrix: [{backends: [spin], batch_sizes: [1, 2]}]
measurement: {rounds: 3, warmup_min_s: 0.05, window_s: 0.01, block_s: 0.02, max_s: 0.1, min_samples: 10}
"""
KILLS = 2
"""In `make test`; `make test-all` has more, of every process (tests/security/test_attack.py)."""


def _stage(name: str, *arguments: str) -> None:
    done = run_forked(f"harness.{name}", arguments, ROOT, os.environ)
    assert done.returncode == 0, done.stderr


def _start(results: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "harness.run", "--results", str(results), "--models-dir", str(results / "models")]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _victim(run: subprocess.Popen[bytes], chooser: random.Random) -> int:
    """The run itself, or one of the processes that it started."""
    try:
        family = psutil.Process(run.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    return chooser.choice([run.pid, *(process.pid for process in family)])


def _kill_at_random(results: Path, chooser: random.Random) -> None:
    run = _start(results)
    time.sleep(chooser.uniform(0.2, 3.0))
    victim = _victim(run, chooser)
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    if victim != run.pid:
        # The run goes on with the next case; it is ended as well, so that every kill leaves something to resume.
        time.sleep(chooser.uniform(0.0, 0.5))
        run.kill()
    run.wait()


def test_killed_at_random_moments_it_still_ends_with_every_case(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    _stage("plan", "--config", str(config), "--results", str(tmp_path))
    place = Results(tmp_path)
    plan = store.load(place.plan, Plan, "plan")
    chooser = random.Random(20261127)  # noqa: S311 - moments, not secrets
    for _ in range(KILLS):
        _kill_at_random(tmp_path, chooser)
        for file in place.raw.glob("*/[0-9].json"):
            store.load_raw(file)  # whatever is there is whole
    last = _start(tmp_path)
    assert last.wait() == 0
    _stage("aggregate", "--results", str(tmp_path), "--models-dir", str(tmp_path / "models"))
    summary = store.load(place.summary, Summary, "aggregate")
    assert {row.case_id for row in summary.rows} == {case.case_id for case in plan.cases}
    assert all(row.status == "measured" and row.latency_ns.rounds == 3 for row in summary.rows if row.latency_ns)
    assert all(row.latency_ns is not None for row in summary.rows)


def test_cases_measured_before_a_kill_are_not_measured_again(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    _stage("plan", "--config", str(config), "--results", str(tmp_path))
    run = _start(tmp_path)
    place = Results(tmp_path)
    while len(done := _measured(place)) < 3 and run.poll() is None:
        time.sleep(0.02)
    run.kill()
    run.wait()
    before = {path: path.stat().st_mtime_ns for path in done}
    assert _start(tmp_path).wait() == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before


def _measured(place: Results) -> list[Path]:
    return [path for path in place.raw.glob("*/[0-9].json") if isinstance(store.load_raw(path), Measured)]
