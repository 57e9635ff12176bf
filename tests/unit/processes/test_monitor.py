"""The monitor's bookkeeping, with readings that a test makes up."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from harness.core import store
from harness.core.host.gpu import GpuHandle
from harness.core.layout import Results
from harness.core.protocol import Watch
from harness.core.schemas import Usage
from harness.monitoring.cpu_probe import Probe, ProcessCpu, busiest
from harness.monitoring.gpu_probe import GpuProbe
from harness.processes import monitor
from harness.processes.monitor import View, WatchedProcess
from tests.fixtures.nvml import FakeDriver, FakeNvml
from tests.fixtures.readings import MS, later

WATCH = Watch(pid=1, case_id="a-case", round=2, settings_id="some-settings", results="results")


class FakeProbe:
    """Gives readings half a second apart, and is gone after `lives` of them."""

    def __init__(self, lives: int = 1_000) -> None:
        self.lives = lives
        self.unavailable = {"temperature_c": "no sensor"}
        self.pss_reads = 0
        self._ticks = itertools.count()

    def read(self, _at_ns: int) -> Any:
        tick = next(self._ticks)
        if tick >= self.lives:
            raise psutil.NoSuchProcess(1)
        return later(500 * tick, process_s=10 + 0.5 * tick, machine_s=100 + 0.6 * tick, monitor_s=1 + 0.001 * tick)

    def pss_bytes(self) -> int:
        self.pss_reads += 1
        return 42

    def others(self) -> dict[int, ProcessCpu]:
        return {}


def watched(probe: FakeProbe) -> WatchedProcess:
    first = probe.read(0)
    return WatchedProcess(WATCH, probe, first, first)  # type: ignore[arg-type]


def test_no_sample_belongs_to_two_phases() -> None:
    result = watched(FakeProbe())
    result.enter("load")
    result.look()
    result.enter("measure")
    result.look()
    result.look()
    result.enter("outputs check")
    record = result.record(View())
    assert [sample.phase for sample in record.samples] == ["start", "load", "load", "measure", "measure", "measure"]
    assert [sample.at_ns for sample in record.samples] == [500 * MS * step for step in range(1, 7)]
    assert (record.case_id, record.round, record.settings_id) == ("a-case", 2, "some-settings")
    assert (record.interval_ns, record.watched_ns) == (250 * MS, 3_000 * MS)
    assert record.monitor_cpu_ns == pytest.approx(6 * MS, abs=1)
    assert record.unavailable == {"temperature_c": "no sensor"}


def test_the_memory_map_is_read_once_and_only_when_the_timed_loop_is_over() -> None:
    probe = FakeProbe()
    result = watched(probe)
    for phase in ("load", "compile", "warm-up", "measure"):
        result.enter(phase)
    assert probe.pss_reads == 0
    result.enter("outputs check")
    result.enter("record")
    assert probe.pss_reads == 1
    assert result.record(View()).pss_peak_bytes == 42


def test_a_process_that_vanished_keeps_its_samples() -> None:
    result = watched(FakeProbe(lives=3))
    result.enter("measure")
    result.look()
    result.enter("outputs check")
    record = result.record(View())
    assert [sample.phase for sample in record.samples] == ["start", "measure"]
    assert record.pss_peak_bytes is None


def test_messages_without_a_process_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_message: Any) -> WatchedProcess:
        raise psutil.NoSuchProcess(1)

    monkeypatch.setattr(WatchedProcess, "begin", gone)
    assert monitor.obey(WATCH.model_dump_json().encode(), None, View()) is None
    for line in (b'{"say":"phase","phase":"load"}', b'{"say":"end"}'):
        assert monitor.obey(line, None, View()) is None


def test_a_record_goes_where_the_message_says(tmp_path: Path) -> None:
    path = tmp_path / "profiles" / "2.usage.json"
    for record, expected in ((str(path), path), (None, Results(tmp_path).usage_file("a-case", 2))):
        result = watched(FakeProbe())
        result.message = WATCH.model_copy(update={"results": str(tmp_path), "record": record})
        assert monitor.obey(b'{"say":"end"}', result, View()) is None
        assert store.load(expected, Usage, "").case_id == "a-case"


def test_a_look_at_the_gpu_belongs_to_the_phase_in_which_it_is_taken() -> None:
    library = FakeNvml(DeviceGetComputeRunningProcesses=[SimpleNamespace(pid=WATCH.pid)])
    result = watched(FakeProbe())
    result.gpu = GpuProbe(GpuHandle(library, "the card"))
    result.enter("measure")
    result.look()
    result.enter("outputs check")
    looks = [(sample.phase, sample.gpu is not None) for sample in result.record(View()).samples]
    assert looks == [("start", False), ("measure", True), ("measure", False)]


def test_memory_of_the_gpu_is_read_before_the_process_comes_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    library, order = FakeNvml(), list[str]()

    def probe(_pid: int) -> FakeProbe:
        order.extend(name for name, *_ in library.calls)
        return FakeProbe()

    monkeypatch.setattr(monitor, "Probe", probe)
    result = WatchedProcess.begin(WATCH, GpuHandle(library, "the card"))
    assert order == ["DeviceGetMemoryInfo"]
    assert result.record(View()).gpu_memory_before_bytes == 5 << 30


def test_a_gpu_that_cannot_be_read_is_said_once_and_is_in_every_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: FakeDriver())
    monkeypatch.setitem(sys.modules, "pynvml", None)  # type: ignore[arg-type]
    view = View.on("cuda", 0.25)
    assert "nvidia-ml-py is not installed" in capsys.readouterr().err
    assert view.gpu is None
    assert "nvidia-ml-py is not installed" in watched(FakeProbe()).record(view).unavailable["gpu"]
    assert "gpu" not in watched(FakeProbe()).record(View.on("cpu", 0.25)).unavailable


def test_other_processes_are_read_at_both_ends_of_the_judged_time_and_the_busiest_is_named() -> None:
    class Looking(FakeProbe):
        def __init__(self) -> None:
            super().__init__()
            self.looks = 0

        def others(self) -> dict[int, ProcessCpu]:
            self.looks += 1
            spent = {7: ("cc1\x1b[31mplus", 1, 0.9), 8: ("idle", 1, 0.0), 9: ("other life", self.looks, 5.0)}
            return {pid: ProcessCpu(name, started, cpu * self.looks) for pid, (name, started, cpu) in spent.items()}

    probe = Looking()
    result = watched(probe)
    for phase in ("load", "reference check", "warm-up", "measure", "outputs check", "record"):
        result.enter(phase)
    assert probe.looks == 2
    (busy,) = result.record(View()).busiest
    assert (busy.pid, busy.name) == (7, "cc1[31mplus")
    # Two samples of half a second each between the looks.
    assert busy.cpu_percent == pytest.approx(90)


def test_a_program_that_runs_beside_is_reported_by_its_name() -> None:
    code = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as busy:
        try:
            probe = Probe(os.getppid())
            before = probe.others()
            while busy.pid not in before:
                before = probe.others()
            while (now := probe.others())[busy.pid].cpu_s <= before.get(busy.pid, now[busy.pid]).cpu_s:
                before = before if busy.pid in before else now
            (result,) = busiest({busy.pid: before[busy.pid]}, now, 1e-3)
            assert (result.pid, result.cpu_percent > 100) == (busy.pid, True)
            assert os.getpid() not in now
        finally:
            busy.kill()
