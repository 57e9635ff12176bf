"""What a process leaves behind comes to the one that adopts, and ends there; nothing else does."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from harness.core.host import orphans
from tests.fixtures.stages import ROOT, lives, until

STARTS = """
import os, subprocess, sys
from harness.core.host import orphans
orphans.adopt_descendants()
kept = subprocess.Popen(["sleep", "600"])
others = orphans.children()
case = subprocess.Popen(["sh", "-c", "setsid sh -c 'setsid sleep 600 & sleep 600' & sleep 0.2"])
case.wait()
left = orphans.children() - others
ended = orphans.kill_children(keep=others)
print(len(left) > 0, ended, sorted(orphans.children()) == [kept.pid], kept.poll())
kept.kill()
"""


def test_a_sweep_ends_all_that_was_left_and_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-c", STARTS], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "3", "True", "None"]


def test_when_a_process_started_says_which_one_it_is() -> None:
    own = orphans.started_ticks(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as later:
        ticks = orphans.started_ticks(later.pid)
        later.kill()
    assert own is not None
    assert ticks is not None
    assert own < ticks
    assert orphans.started_ticks(later.pid) is None


def test_a_worker_ends_the_processes_of_its_case_when_its_parent_is_killed() -> None:
    """The server's own handler, without any library: its parent is killed while a descendant has left its session."""
    server = (
        "import os, subprocess, time; from harness.core.host.orphans import adopt_descendants, end_all_with;"
        "adopt_descendants(); end_all_with(os.getppid());"
        "subprocess.Popen(['sh', '-c', 'setsid sleep 600 & exit']).wait();"
        "print(os.getpid(), flush=True); time.sleep(600)"
    )
    starter = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {server!r}])"
    with subprocess.Popen([sys.executable, "-c", starter], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        server_process = psutil.Process(pid)
        # Whatever program it runs by now: the shell has ended, and its child may still be about to start `setsid`.
        (left,) = server_process.children()
        parent.kill()
        parent.wait()
        assert until(lambda: not lives(left) and not lives(server_process))
