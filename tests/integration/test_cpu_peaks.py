"""Products and copies of a CPU with the real libraries, in processes of their own; nothing is said of how fast."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.backends import cpu_peak_work
from harness.core.errors import UnavailableError
from harness.processes import cpu_peaks
from harness.processes.cpu_peaks import WAYS, Task, TaskRefused

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.stages


def test_the_tables_of_names_agree() -> None:
    assert [name for ways in WAYS.values() for name in ways] == [*cpu_peak_work.PRODUCTS]


@pytest.mark.parametrize("name", cpu_peak_work.PRODUCTS)
def test_each_product_runs_or_says_why_not(name: str) -> None:
    if None in cpu_peak_work.PRODUCTS[name]:
        with pytest.raises(UnavailableError, match="is not installed"):
            cpu_peak_work.product(name, 64)
        return
    work = cpu_peak_work.product(name, 64)
    work()
    work()


def test_pieces_are_copied_in_turn() -> None:
    work = cpu_peak_work.copy(3 * cpu_peak_work.PIECE_BYTES)
    for _ in range(4):
        work()


def test_processes_answer_with_a_rate_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_peaks, "SPAN_NS", 1)
    for task in (Task("NumPy"), Task("", 2 * cpu_peak_work.PIECE_BYTES)):
        rates = cpu_peaks.measure_rates(task, 2)
        assert not isinstance(rates, TaskRefused)
        assert len(rates) == 2
        assert min(rates) > 0


def test_an_exception_of_a_library_comes_back_in_words() -> None:
    result = cpu_peaks.measure_rates(Task("no such product"), 1)
    assert result == TaskRefused("KeyError: 'no such product'")


def test_ctrl_c_does_not_reach_the_fork_server_while_it_imports_libraries(tmp_path: Path) -> None:
    at_start = (
        "import os, signal, sys\n"
        "ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN\n"
        "os.write(1, f\"{ignored} {'forkserver' in sys.orig_argv[-1]}\\n\".encode())"
    )
    (tmp_path / "sitecustomize.py").write_text(at_start)
    program = (
        "import signal; from harness.processes import cpu_peaks\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with cpu_peaks._started(cpu_peaks.Task('NumPy'), 1): pass\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "True True" in done.stdout.splitlines()
