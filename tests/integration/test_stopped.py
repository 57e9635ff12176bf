"""A case that is stopped and continued says so, in whatever phase; a stopped monitor holds up nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest

from harness.aggregation import checks
from harness.aggregation.flags_host import Round
from harness.core.host import orphans
from harness.core.layout import Results
from harness.core.protocol import CaseJob
from harness.core.schemas import Case, Failed, Measured, Measurement
from harness.processes import launcher, monitor_handle
from harness.processes.launcher import Worker, process_environment
from harness.processes.monitor_handle import Monitor
from harness.processes.pool import measure_turn

pytestmark = pytest.mark.stages

SHORT = Measurement(rounds=1, warmup_min_s=0.3, window_s=0.02, block_s=0.05, max_s=2.0, min_samples=10, min_s=2.0)
"""Short, but long enough for a stop that comes late on a slow machine."""


def job(root: Path, mode: str = "sync") -> CaseJob:
    case = Case(
        case_id="spin-2ms",
        model="spin:2ms",
        slug="spin",
        backend="spin",
        device="cpu",
        precision="fp32",
        batch_size=1,
        sequence_length=None,
        boundary="compute",
        mode=mode,  # type: ignore[arg-type]
        weights="own",
    )
    return CaseJob(
        case=case,
        round=1,
        settings_id="settings",
        measurement=SHORT,
        threads=1,
        results=str(root / "results"),
        models=str(root / "models"),
    )


class Stopper:
    """Stops the case's process as it comes to a phase, and lets it go on a while later."""

    def __init__(self, phase: str, seconds: float = 0.3) -> None:
        self._phase, self._seconds, self._pid = phase, seconds, 0

    def started(self, pid: int) -> None:
        self._pid = pid

    def entered(self, phase: str) -> None:
        assert self._pid, "a phase of no process"
        if phase == self._phase:
            os.kill(self._pid, signal.SIGSTOP)
            threading.Timer(self._seconds, os.kill, (self._pid, signal.SIGCONT)).start()


def measured(
    root: Path, observer: Stopper, mode: str = "sync", variables: Mapping[str, str] = MappingProxyType({})
) -> Measured:
    results = Results(root / "results")
    worker = Worker("spin", 1, results.worker_log("spin"), variables=variables)
    try:
        record = measure_turn(job(root, mode), worker, results, observer)
    finally:
        worker.close()
    assert isinstance(record, Measured)
    return record


@pytest.mark.parametrize(
    ("phase", "mode"),
    [
        ("load", "offline"),
        ("measure", "sync"),
        *(
            pytest.param(phase, mode, marks=pytest.mark.slow)
            for phase, mode in (("load", "sync"), ("warm-up", "sync"), ("warm-up", "offline"), ("measure", "offline"))
        ),
    ],
)
def test_a_stop_is_counted_and_costs_the_rank(tmp_path: Path, phase: str, mode: str) -> None:
    record = measured(tmp_path, Stopper(phase), mode)
    assert record.stops is not None
    # The signal is handled when the interpreter next gets to it, in whatever phase that is.
    assert len(record.stops.continued) == 1
    (result,) = checks.stop_findings([Round(record, None)])
    assert (result.flag.name, result.caps_at) == ("STOPPED", "C")


def test_a_process_that_nothing_stopped_counts_nothing(tmp_path: Path) -> None:
    record = measured(tmp_path, Stopper("never"))
    assert record.stops is not None
    assert record.stops.continued == ()
    assert checks.stop_findings([Round(record, None)]) == []


def test_a_case_is_announced_before_its_phases_however_late_its_worker_goes_on(tmp_path: Path) -> None:
    """Else the first phases would belong to no process: the monitor would not watch them."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\nos.register_at_fork(after_in_parent=lambda: time.sleep(1))\n"
    )
    path = os.pathsep.join((str(tmp_path), process_environment(1, own=True)["PYTHONPATH"]))
    record = measured(tmp_path, Stopper("load"), variables={"PYTHONPATH": path})
    assert record.stops is not None
    assert len(record.stops.continued) == 1


class WorkerStopper(Stopper):
    """Stops the case and the worker that forked it, for good."""

    def entered(self, phase: str) -> None:
        assert self._pid, "a phase of no process"
        if phase == self._phase:
            for pid in (psutil.Process(self._pid).ppid(), self._pid):
                os.kill(pid, signal.SIGSTOP)


def test_a_stopped_worker_ends_at_the_time_limit_and_its_case_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "END_TIMEOUT_S", 0.5)
    results, asked = Results(tmp_path / "results"), job(tmp_path)
    asked = asked.model_copy(update={"measurement": SHORT.model_copy(update={"timeout_s": 20.0})})
    worker, before = Worker("spin", 1, results.worker_log("spin")), orphans.children()
    try:
        record = measure_turn(asked, worker, results, WorkerStopper("measure"))
    finally:
        worker.close()
    assert isinstance(record, Failed)
    assert record.error == "Ended at the time limit of 20 s."
    assert orphans.children() == before


def test_a_worker_whose_libraries_are_not_imported_in_time_names_that_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "START_TIMEOUT_S", 0.5)
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 300\n")
    slow.chmod(0o755)
    results = Results(tmp_path / "results")
    worker = Worker("spin", 1, results.worker_log("spin"), interpreter=slow)
    record = measure_turn(job(tmp_path), worker, results, Stopper("never"))
    assert isinstance(record, Failed)
    assert (record.phase, record.error) == ("import", "Ended at the time limit of 0.5 s.")
    assert record.hint.startswith("Free memory")


def test_a_monitor_that_does_not_start_does_not_hold_up_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 300\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    monkeypatch.setattr(monitor_handle, "START_S", 0.2)
    monkeypatch.setattr(monitor_handle, "LAST_RECORD_S", 0.2)
    monitor = Monitor(tmp_path / "monitor.log")
    monitor.ready()
    monitor.ready()
    monitor.close()
    assert capsys.readouterr().err.count("The monitor did not start within 0.2 s") == 1


def test_a_stopped_monitor_does_not_hold_up_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(monitor_handle, "LAST_RECORD_S", 0.2)
    monitor = Monitor(tmp_path / "monitor.log")
    monitor.ready()
    os.kill(monitor.pid, signal.SIGSTOP)
    for _ in range(2_000):  # more than its pipe holds
        monitor.watch(job(tmp_path), os.getpid())
    monitor.close()
    assert "its last record is missing" in capsys.readouterr().err
