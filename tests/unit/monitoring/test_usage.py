"""Counters of a process: differences of readings, and values that the system does not report."""

from __future__ import annotations

import os
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.monitoring import cpu_probe
from harness.monitoring.cpu_probe import Probe, sample
from tests.fixtures.readings import FIRST, MS, later


def test_a_sample_is_the_difference_of_two_readings() -> None:
    now = later(process_s=10.9, machine_s=101.2, monitor_s=1.05, steal_s=5.1, rss_bytes=3 << 20, major_faults=9)
    result = sample(FIRST, now, "measure", FIRST.at_ns - 2_000 * MS)
    assert (result.phase, result.at_ns) == ("measure", 2_500 * MS)
    assert result.cpu_percent == pytest.approx(180)  # 0.9 s of CPU in half a second
    assert result.others_percent == pytest.approx(50)  # 1.2 s in all, less 0.9 s and the monitor's own 0.05 s
    assert result.steal_percent == pytest.approx(20)
    assert (result.rss_bytes, result.major_faults, result.minor_faults) == (3 << 20, 2, 0)
    assert (result.read_bytes, result.written_bytes, result.throttled_periods, result.thermal_events) == (0, 0, 0, 0)


def test_others_are_never_less_than_nothing() -> None:
    assert sample(FIRST, later(process_s=10.5, machine_s=100.49), "measure", 0).others_percent == 0


@pytest.mark.parametrize(
    ("field", "figure"),
    [
        ("steal_s", "steal_percent"),
        ("read_bytes", "read_bytes"),
        ("written_bytes", "written_bytes"),
        ("throttled", "throttled_periods"),
        ("thermal_events", "thermal_events"),
    ],
)
def test_a_value_that_one_reading_lacks_is_unknown_and_not_zero(field: str, figure: str) -> None:
    assert getattr(sample(FIRST, later(**{field: None}), "measure", 0), figure) is None
    assert getattr(sample(replace(FIRST, **{field: None}), later(), "measure", 0), figure) is None


def test_two_readings_at_once_are_no_division_by_zero() -> None:
    assert sample(FIRST, FIRST, "measure", 0).cpu_percent == 0


class FakeProcess:
    """Replaces psutil.Process; `denied` raises for what a container may forbid."""

    def __init__(self, denied: bool = False) -> None:
        self.denied = denied

    def oneshot(self) -> Any:
        import contextlib

        return contextlib.nullcontext()

    def cpu_times(self) -> Any:
        return namedtuple("Times", "user system")(2.0, 0.5)

    def memory_info(self) -> Any:
        return namedtuple("Memory", "rss")(123)

    def memory_full_info(self) -> Any:
        if self.denied:
            raise psutil.AccessDenied(1)
        return namedtuple("Memory", "pss")(77)

    def io_counters(self) -> Any:
        if self.denied:
            raise psutil.AccessDenied(1)
        return namedtuple("Io", "read_bytes write_bytes")(11, 22)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A probe on a made-up machine: its folder of CPUs is empty until a test fills it."""
    times = namedtuple("Cpu", "user system idle nice irq softirq steal")(50.0, 20.0, 999.0, 4.0, 1.0, 2.0, 3.0)
    monkeypatch.setattr(psutil, "cpu_times", lambda: times)
    monkeypatch.setattr(psutil, "sensors_temperatures", dict, raising=False)
    monkeypatch.setattr(cpu_probe, "_SYS_CPU", tmp_path)
    monkeypatch.setattr(cpu_probe.limits, "throttled_periods", lambda: None)
    monkeypatch.setattr(cpu_probe, "stat_of", lambda _pid: ("R", 5, 6, 1))
    monkeypatch.setattr(cpu_probe, "_PROC", tmp_path)
    for cached in (cpu_probe.throttle_counters, cpu_probe.core_of, cpu_probe.in_guest):
        cached.cache_clear()

    def make(denied: bool = False) -> Probe:
        monkeypatch.setattr(psutil, "Process", lambda *_: FakeProcess(denied))
        return Probe(1)

    yield make
    for cached in (cpu_probe.throttle_counters, cpu_probe.core_of, cpu_probe.in_guest):
        cached.cache_clear()


def test_a_reading_adds_up_the_machines_busy_time(fake: Any) -> None:
    result = fake().read(9)
    assert (result.at_ns, result.process_s, result.machine_s, result.steal_s) == (9, 2.5, 77.0, 3.0)
    assert (result.rss_bytes, result.major_faults, result.minor_faults) == (123, 5, 6)
    assert (result.read_bytes, result.written_bytes) == (11, 22)


def test_an_unreadable_counter_has_its_reason(fake: Any) -> None:
    probe = fake(denied=True)
    result = probe.read(0)
    assert (result.read_bytes, result.frequency_mhz, result.temperature_c) == (None, None, None)
    assert (result.throttled, result.thermal_events, probe.pss_bytes()) == (None, None, None)
    names = {"read_bytes", "written_bytes", "frequency_mhz", "temperature_c", "throttled_periods", "thermal_events"}
    assert set(probe.unavailable) == {*names, "pss_peak_bytes", "allowed_others_percent"}
    assert all(probe.unavailable.values())


def test_the_clock_is_that_of_the_cpu_that_the_process_ran_on(fake: Any, tmp_path: Path) -> None:
    for cpu, kilohertz in ((0, 800_000), (1, 3_456_000)):
        file = tmp_path / f"cpu{cpu}/cpufreq/scaling_cur_freq"
        file.parent.mkdir(parents=True)
        file.write_text(f"{kilohertz}\n")
    assert fake().read(0).frequency_mhz == 3_456


def test_only_the_processors_own_sensors_count(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = namedtuple("Zone", "current")
    zones = {"nvme": [zone(99.0)], "coretemp": [zone(61.0), zone(64.0)]}
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: zones, raising=False)
    assert fake().read(0).temperature_c == 64


def test_thermal_throttling_counts_once_a_package(fake: Any, tmp_path: Path) -> None:
    for cpu, package, count in ((0, 0, 4), (1, 0, 4), (2, 1, 2)):
        folder = tmp_path / f"cpu{cpu}"
        (folder / "thermal_throttle").mkdir(parents=True)
        (folder / "topology").mkdir()
        (folder / "thermal_throttle/package_throttle_count").write_text(f"{count}\n")
        (folder / "topology/physical_package_id").write_text(f"{package}\n")
    assert fake().read(0).thermal_events == 6


STAT = """cpu  9 9 9 9 9 9 9 9 0 0
cpu0 {0} 5 10 900 30 1 4 7 0 0
cpu2 200 0 0 900 0 0 0 0 0 0
intr 1 2 3
"""
"""A machine whose CPU 1 is offline; in ticks."""


def test_a_probe_reads_each_cpu_by_its_number_and_the_cpus_of_any_thread(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stat").write_text(STAT.format(80))
    for thread in (1, 7):
        (tmp_path / f"1/task/{thread}").mkdir(parents=True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: {1: {0}, 7: {0, 2}}[thread])
    monkeypatch.setattr(os, "sysconf", lambda _name: 100)
    (tmp_path / "cpuinfo").write_text("flags\t: fpu hypervisor lahf_lm\n")
    probe = fake()
    result = probe.read(0)
    assert (dict(result.cpus), result.allowed) == ({0: 1.0, 2: 2.0}, frozenset({0, 2}))
    assert "allowed_others_percent" not in probe.unavailable
    assert "guest" in probe.unavailable["siblings_percent"]


@pytest.mark.parametrize(
    ("siblings", "expected"),
    [
        ({0: "0,2", 1: "1,3"}, (2, 2, 40, 70)),  # CPU 2 shares the core of CPU 0, CPU 3 that of CPU 1
        ({0: "0-1", 1: "0-1"}, (2, 1, 40, 0)),
        ({0: "0", 1: "1"}, (2, 2, 40, 0)),
        ({}, (2, None, 40, None)),
    ],
)
def test_use_by_others_on_the_allowed_cpus_and_beside_them(
    fake: Any, tmp_path: Path, siblings: dict[int, str], expected: tuple[float | None, ...]
) -> None:
    for cpu, text in siblings.items():
        (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/topology/thread_siblings_list").write_text(f"{text}\n")
    fake()
    before = replace(FIRST, cpus=dict.fromkeys(range(4), 10.0), allowed=frozenset({0, 1}))
    now = later(
        1_000,
        process_s=11.5,
        monitor_s=1.1,
        machine_s=103.0,
        cpus={0: 11.0, 1: 11.0, 2: 10.6, 3: 10.1},
        allowed=frozenset({0, 1}),
    )
    result = sample(before, now, "measure", 0)
    seen = (result.allowed_cpus, result.allowed_cores, result.allowed_others_percent, result.siblings_percent)
    assert seen == pytest.approx(expected)


def test_single_cpus_that_are_not_known_leave_the_figures_out() -> None:
    assert sample(FIRST, later(), "measure", 0).allowed_others_percent is None


def test_a_process_that_is_gone_is_said_to_be_gone() -> None:
    with pytest.raises(psutil.NoSuchProcess):
        cpu_probe.stat_of(2**22 + 1)


def test_the_kernels_line_about_this_very_process() -> None:
    state, major, minor, cpu = cpu_probe.stat_of(os.getpid())
    assert state == "R"
    assert major >= 0
    assert minor > 0
    assert cpu in range(os.cpu_count() or 1)
