"""The counters of a process: CPU time and waits, with made-up counters and with the kernel's, and resident memory."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from harness.timing import clock, process_counters
from harness.timing.process_counters import CpuAllowance, CpuWatch, caller_wait_ns, cpu_waits_ns, waited_between_ns


def task(folder: Path, thread: int, waited: str) -> None:
    (folder / str(thread)).mkdir(parents=True, exist_ok=True)
    (folder / str(thread) / "schedstat").write_text(waited)


def test_threads_that_come_and_go(tmp_path: Path) -> None:
    task(tmp_path, 1, "5000 100 7")
    task(tmp_path, 2, "5000 200 7")
    watch = CpuWatch(tmp_path)
    task(tmp_path, 1, "6000 150 9")
    task(tmp_path, 3, "1000 30 1")  # began meanwhile
    (tmp_path / "2/schedstat").unlink()  # ended meanwhile
    end = watch.end()
    assert (end.waited_ns, end.threads, end.threads_ended) == (80, 2, 1)


def test_a_kernel_that_does_not_count_waiting_is_not_one_without_waiting(tmp_path: Path) -> None:
    task(tmp_path, 1, "")
    assert cpu_waits_ns(tmp_path) == {}
    assert CpuWatch(tmp_path).end().waited_ns is None


def test_affinity_and_quota_are_read_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    affinities, quotas = iter([(0, 1), (0,)]), iter([None, 1.5])
    monkeypatch.setattr(process_counters.limits, "affinity", lambda: next(affinities))
    monkeypatch.setattr(process_counters.limits, "cpu_quota", lambda: next(quotas))
    end = CpuWatch().end()
    assert (end.affinity_start, end.affinity_end) == ((0, 1), (0,))
    assert (end.quota_start, end.quota_end) == (None, 1.5)


def test_a_helper_process_is_counted_while_it_lives_and_after_it_ended() -> None:
    spin = "import time, sys\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\nsys.stdin.read()"
    watch = CpuWatch(given=CpuAllowance.now())
    with subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as helper:
        assert helper.stdout is not None
        helper.stdout.readline()
        alive = watch.end()
    ended = watch.end()
    assert alive.helpers_ns >= 150_000_000  # ticks of 10 ms
    assert ended.helpers_ns >= 150_000_000
    assert alive.affinity_given == alive.affinity_start
    assert alive.scheduling_given == alive.scheduling_end


def test_this_very_process() -> None:
    watch = CpuWatch()
    for _ in range(3):
        watch.time_work()
    end = watch.end()
    assert end.wall_ns > 0
    assert end.cpu_ns > 0
    assert len(end.work_ns) == 3
    if Path("/proc/self/schedstat").exists():
        assert end.waited_ns is not None


def test_the_fixed_work_is_the_least_of_its_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = iter([30, 10, *[20] * 100])
    now = [0]

    def digest(data: bytes) -> None:
        assert len(data) == 16 << 10
        now[0] += next(lengths)

    monkeypatch.setattr(clock, "now_ns", lambda: now[0])
    monkeypatch.setattr(clock.hashlib, "sha256", digest)
    assert clock.work_ns() == 10


def test_a_thread_counts_only_its_own_waits(tmp_path: Path) -> None:
    task(tmp_path, 1, "80 41 2")
    task(tmp_path, 2, "")
    assert caller_wait_ns(tmp_path / "1/schedstat") == 41
    assert caller_wait_ns(tmp_path / "2/schedstat") is None
    assert caller_wait_ns(tmp_path / "absent") is None


def test_no_thread_waits_for_less_than_nothing() -> None:
    assert waited_between_ns({"1": 10, "2": 500}, {"1": 30, "2": 5, "3": 7}) == 20 + 7
    assert waited_between_ns({"1": 10}, {}) is None


COUNTERS_LAG = 4 << 20
"""The kernel adds up its per-processor counters only now and then."""


def test_the_peak_includes_released_memory() -> None:
    before = process_counters.resident_bytes()
    block = mmap.mmap(-1, 64 << 20)  # pages that no allocator has kept
    for page in range(0, len(block), mmap.PAGESIZE):
        block[page] = 1
    held = process_counters.resident_bytes()
    block.close()
    assert held - before > 48 << 20
    assert process_counters.peak_bytes() >= held - COUNTERS_LAG
    assert process_counters.peak_bytes() - process_counters.resident_bytes() > 48 << 20


def test_without_proc_the_peak_is_asked_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = process_counters.peak_bytes()
    monkeypatch.setattr(process_counters, "_status", lambda field: None)
    assert process_counters.peak_bytes() == pytest.approx(peak, rel=0.2)
    assert process_counters.resident_bytes() > 1 << 20
