"""Threads from affinity and cgroup quotas, on folders like those of the kernel."""

from __future__ import annotations

import errno
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.core import cli
from harness.core.host import limits
from tests.fixtures.stages import ROOT, two_lines


def tree(root: Path, membership: str = "", **files: str) -> tuple[Path, Path]:
    """A cgroup folder and a /proc/self/cgroup file; keys are paths with `__` for `/`."""
    cgroup, own = root / "cgroup", root / "membership"
    cgroup.mkdir()
    own.write_text(membership)
    for name, text in files.items():
        file = cgroup / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return cgroup, own


def test_without_cgroups_there_is_no_limit(tmp_path: Path) -> None:
    nowhere = tmp_path / "absent"
    assert limits.cpu_quota(nowhere, nowhere) is None
    assert limits.memory_limit_bytes(nowhere, nowhere) is None


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", None), ("200000 100000", 2.0), ("50000 100000", 0.5), ("150000 50000", 3.0)]
)
def test_version_2_quota(tmp_path: Path, text: str, cores: float | None) -> None:
    assert limits.cpu_quota(*tree(tmp_path, "0::/\n", **{"cpu.max": text})) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", None), ("250000", 2.5)])
def test_version_1_quota(tmp_path: Path, quota: str, cores: float | None) -> None:
    files = {"cpu__cpu.cfs_quota_us": quota, "cpu__cpu.cfs_period_us": "100000"}
    assert limits.cpu_quota(*tree(tmp_path, "1:cpu,cpuacct:/\n", **files)) == cores


@pytest.mark.parametrize(
    ("files", "periods"),
    [
        ({"cpu.stat": "usage_usec 5"}, None),
        ({"cpu.stat": "nr_periods 9\nnr_throttled 4"}, 4),
        ({"job__cpu.stat": "nr_throttled 0", "cpu.stat": "nr_throttled 7"}, 7),
        ({"cpu__cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0"}, 0),
    ],
)
def test_throttled_periods_at_any_level(tmp_path: Path, files: dict[str, str], periods: int | None) -> None:
    assert limits.throttled_periods(*tree(tmp_path, "0::/job\n", **files)) == periods


def test_version_2_takes_the_smallest_of_the_path_up_to_the_root(tmp_path: Path) -> None:
    files = {
        "outer__cpu.max": "300000 100000",
        "outer__slice__cpu.max": "150000 100000",
        "outer__slice__job__cpu.max": "max 100000",
        "other__cpu.max": "10000 100000",
    }
    assert limits.cpu_quota(*tree(tmp_path, "0::/outer/slice/job\n", **files)) == 1.5


def test_version_1_takes_the_smallest_of_the_cpu_controllers_path(tmp_path: Path) -> None:
    files = {
        "cpu__cpu.cfs_quota_us": "-1",
        "cpu__cpu.cfs_period_us": "100000",
        "cpu__docker__cpu.cfs_quota_us": "400000",
        "cpu__docker__cpu.cfs_period_us": "100000",
        "cpu__docker__abc__cpu.cfs_quota_us": "-1",
        "cpu__docker__abc__cpu.cfs_period_us": "100000",
    }
    own = "5:cpuset:/elsewhere\n4:memory:/m\n2:cpuacct,cpu:/docker/abc\n1:name=systemd:/x\n0::/\n"
    assert limits.cpu_quota(*tree(tmp_path, own, **files)) == 4.0


def test_a_path_outside_the_namespace_is_left_alone(tmp_path: Path) -> None:
    files = {"cpu.max": "max 100000", "../cpu.max": "100000 100000"}
    assert limits.cpu_quota(*tree(tmp_path, "0::/../..\n", **files)) is None


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"memory.max": "max"}, None),
        ({"memory.max": "1073741824"}, 1 << 30),
        ({"memory__memory.limit_in_bytes": "9223372036854771712"}, None),
        ({"memory__memory.limit_in_bytes": "536870912"}, 1 << 29),
        ({"memory__job__memory.limit_in_bytes": "268435456", "memory__memory.limit_in_bytes": "536870912"}, 1 << 28),
        ({"job__memory.max": "268435456", "memory.max": "max"}, 1 << 28),
    ],
)
def test_memory_limit(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    assert limits.memory_limit_bytes(*tree(tmp_path, "4:memory:/job\n0::/job\n", **files)) == limit


@pytest.mark.parametrize(
    ("cpus", "quota", "expected"), [(8, 0.5, 1), (8, 2.9, 2), (8, 2.0, 2), (2, 16.0, 2), (1, 1.0, 1), (64, 63.99, 63)]
)
def test_threads_are_cpus_cut_to_the_quota_and_at_least_one(cpus: int, quota: float, expected: int) -> None:
    assert limits.thread_count(cpus, quota) == expected


def test_threads_come_from_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "affinity", lambda: (0, 2, 5))
    monkeypatch.setattr(limits, "cpu_quota", lambda: None)
    assert limits.thread_count() == 3
    monkeypatch.setattr(limits, "cpu_quota", lambda: 2.2)
    assert limits.thread_count() == 2


@pytest.mark.parametrize("limit", ["-n 16", "-f 1", "-v 300000"])
def test_a_limit_of_the_shell_that_no_stage_can_work_under_is_one_error_of_two_lines(limit: str) -> None:
    command = f"ulimit {limit}; exec {shlex.quote(sys.executable)} -m harness.plan"
    done = subprocess.run(["/bin/bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    error, hint = two_lines(done)
    assert f"(ulimit {limit[:2]})" in error
    assert f"ulimit {limit[:2]}" in hint
    assert done.returncode == 5


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EFBIG, "File too large", "a.json"), "a.json may grow no larger"),
        (OSError(errno.EMFILE, "Too many open files", "a.json"), "No more files"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "no more processes"),
        (MemoryError(), "Memory ran out"),
        (RuntimeError("can't start new thread"), "No more threads"),
    ],
)
def test_a_refusal_of_the_system_is_two_lines(error: Exception, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    def stage(_arguments: Sequence[str]) -> None:
        raise error

    with pytest.raises(SystemExit) as caught:
        cli.main(stage, [])
    assert caught.value.code in (5, 6)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert words in said[0]
