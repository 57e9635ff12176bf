"""The monitor as `run` starts it: a process that watches a busy child and writes what it saw."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.aggregation import usage as utilisation
from harness.core import store
from harness.core.host.orphans import started_ticks
from harness.core.layout import Results
from harness.core.protocol import (
    End,
    Message,
    Phase,
    Watch,
)
from harness.core.schemas import Usage, UsageSample
from tests.fixtures.pipes import send_until_handled
from tests.fixtures.stages import ROOT, until

pytestmark = pytest.mark.stages

INTERVAL_S = 0.05
BURNER = """
import sys, time
for line in sys.stdin:
    end = time.process_time() + float(line)
    while time.process_time() < end:
        pass
    print(flush=True)
"""
"""Uses so many CPU seconds as each line of its input asks for, and answers with an empty line."""


class Watching:
    """A monitor and the results folder that it writes to."""

    def __init__(self, root: Path) -> None:
        self.results = Results(root)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness.processes.monitor", "--interval", str(INTERVAL_S)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def send(self, *messages: Message) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(message.model_dump_json().encode() + b"\n" for message in messages))
        self.process.stdin.flush()

    def enter(self, phase: str) -> None:
        """Send a phase, and return when the monitor has closed the one before."""
        assert self.process.stdin is not None
        send_until_handled(lambda: self.send(Phase(phase=phase)), self.process.stdin)

    def watch(self, pid: int, round_number: int = 1) -> Watch:
        return Watch(
            pid=pid, case_id="a-case", round=round_number, settings_id="settings", results=str(self.results.root)
        )

    def close(self) -> str:
        """End it; what it had to say on its error stream."""
        _, errors = self.process.communicate(timeout=900)
        assert self.process.returncode == 0
        return errors.decode()

    def usage(self, round_number: int = 1) -> Usage:
        return store.load(self.results.usage_file("a-case", round_number), Usage, "make run")


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    result = Watching(tmp_path)
    # It is there once it has answered: what a test watches may live no longer than its libraries take to load.
    result.send(result.watch(os.getpid(), round_number=100), End())
    assert until(result.results.usage_file("a-case", 100).is_file)
    yield result
    result.process.kill()
    result.process.wait()


@contextmanager
def burner() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", BURNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        yield child
        child.kill()


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    with burner() as child:
        yield child


def work(child: subprocess.Popen[bytes], seconds: float) -> None:
    """Let a burner use so much CPU, however long that takes, and no more."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{seconds}\n".encode())
    child.stdin.flush()
    assert child.stdout.readline() == b"\n"


def test_a_busy_process_is_seen_phase_by_phase(watching: Watching, busy: subprocess.Popen[bytes]) -> None:
    watching.send(watching.watch(busy.pid), Phase(phase="load"))
    work(busy, 0.1)
    watching.enter("measure")
    work(busy, 0.5)
    watching.send(Phase(phase="outputs check"), End())
    assert watching.close() == ""

    usage = watching.usage()
    assert (usage.case_id, usage.round, usage.settings_id) == ("a-case", 1, "settings")
    phases = list(dict.fromkeys(sample.phase for sample in usage.samples))
    assert phases == ["start", "load", "measure"]
    assert [sample.at_ns for sample in usage.samples] == sorted(sample.at_ns for sample in usage.samples)
    assert usage.watched_ns == usage.samples[-1].at_ns
    assert usage.interval_ns == int(INTERVAL_S * 1e9)
    assert 0 < usage.monitor_cpu_ns < usage.watched_ns
    assert usage.pss_peak_bytes is None or usage.pss_peak_bytes > 0
    assert usage.started_ticks == started_ticks(busy.pid)

    window = utilisation.timed_usage(usage)
    assert window is not None
    # Half a second of CPU was used in the window; how long that took, the machine decides.
    assert window.cpu_percent_mean * window.watched_ns / 1e11 == pytest.approx(0.5, abs=0.1)
    assert window.rss_peak_bytes > 1 << 20


def test_an_unreadable_value_has_its_reason(watching: Watching, busy: subprocess.Popen[bytes]) -> None:
    watching.send(watching.watch(busy.pid), Phase(phase="measure"))
    work(busy, 0.1)
    watching.send(Phase(phase="outputs check"), End())
    watching.close()
    usage = watching.usage()
    optional = {name for name, field in UsageSample.model_fields.items() if type(None) in _types(field.annotation)}
    for name in optional - {"steal_percent", "gpu"}:  # on a CPU there is no card, and so nothing to explain
        if any(getattr(sample, name) is None for sample in usage.samples):
            assert usage.unavailable[name]


def _types(annotation: object) -> tuple[object, ...]:
    return getattr(annotation, "__args__", (annotation,))


def test_a_process_that_vanishes_while_watched_leaves_its_samples(watching: Watching) -> None:
    with burner() as child:
        watching.send(watching.watch(child.pid), Phase(phase="measure"))
        work(child, 0.1)
        watching.enter("measure")
    # Reaped: its pid is free. Phases that it went through before anyone read about them still come in.
    watching.send(Phase(phase="outputs check"), Phase(phase="record"), End())
    assert watching.close() == ""
    assert "measure" in {sample.phase for sample in watching.usage().samples}


def test_a_process_that_is_gone_already_is_no_error_and_the_next_one_is_watched(
    watching: Watching, busy: subprocess.Popen[bytes]
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    watching.send(watching.watch(gone.pid), Phase(phase="load"), Phase(phase="measure"), End())
    watching.send(watching.watch(busy.pid, round_number=2), Phase(phase="measure"))
    work(busy, 0.1)
    watching.send(Phase(phase="record"), End())
    assert watching.close() == ""
    assert not watching.results.usage_file("a-case", 1).exists()
    assert watching.usage(2).samples
