"""A run of tests that is stopped has named those that failed before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import os, signal, time
import pytest

def test_fails():
    assert False

@pytest.fixture
def broken():
    raise RuntimeError

def test_is_not_set_up(broken):
    pass

def test_ends_the_whole_run():
    end = time.monotonic() + 300
    while "FAILED test_few.py::test_is_not_set_up" not in open("printed.txt").read() and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(MAIN_PROCESS, signal.SIGKILL)
    time.sleep(600)
"""


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_test_is_named_when_it_fails(processes: str, tmp_path: Path) -> None:
    main = "os.getppid()" if processes == "1" else "os.getpid()"
    (tmp_path / "test_few.py").write_text(TESTS.replace("MAIN_PROCESS", main))
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-n", processes, "--rootdir", str(tmp_path)]
    with (tmp_path / "printed.txt").open("w") as printed:
        done = subprocess.run(
            [*command, "-c", os.devnull, "test_few.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=printed,
            stderr=subprocess.STDOUT,
            timeout=900,
            check=False,
        )
    text = (tmp_path / "printed.txt").read_text()
    assert done.returncode == -signal.SIGKILL, text
    assert [line for line in text.splitlines() if line.startswith("FAILED")] == [
        "FAILED test_few.py::test_fails",
        "FAILED test_few.py::test_is_not_set_up (setup)",
    ]
