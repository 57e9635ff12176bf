"""Commands at the same time: their CPUs, their order, and the report of which ones run."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.processes import parallel_commands

ALLOWED = sorted(os.sched_getaffinity(0))
SHOWS_CPUS = (sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))")


@pytest.mark.skipif(len(ALLOWED) < 2, reason="one CPU")
def test_commands_apart_share_no_cpu_and_the_caller_keeps_all() -> None:
    ended = parallel_commands.run([SHOWS_CPUS] * 2, 2, lambda line: None, own_cpus=True)
    first, second = (set(map(int, end.printed.strip("[]\n").split(", "))) for end in ended)
    assert not first & second
    assert len(first) == len(second) == len(ALLOWED) // 2
    assert sorted(os.sched_getaffinity(0)) == ALLOWED


def test_more_commands_than_cpus_and_commands_that_are_not_apart_use_all_cpus() -> None:
    many = len(ALLOWED) + 1
    for ended in (
        parallel_commands.run([SHOWS_CPUS] * many, many, lambda line: None, own_cpus=True),
        parallel_commands.run([SHOWS_CPUS], 4, lambda line: None),
    ):
        assert {end.printed for end in ended} == {f"{ALLOWED}\n"}


def test_progress_names_running_commands_and_counts_ended_ones() -> None:
    seen: list[tuple[Sequence[int], int]] = []
    commands = [(sys.executable, "-c", f"print({number})") for number in range(3)]
    ended = parallel_commands.run(commands, 1, lambda line: None, lambda running, ended: seen.append((running, ended)))
    assert seen == [([0], 0), ([1], 1), ([2], 2), ([], 3)]
    assert [(end.code, end.printed) for end in ended] == [(0, "0\n"), (0, "1\n"), (0, "2\n")]


AWAITS = (
    "import pathlib, sys, time\n"
    "end = time.monotonic() + 120\n"
    "while not pathlib.Path(sys.argv[1]).exists():\n"
    "    if time.monotonic() > end: sys.exit(1)\n"
    "    time.sleep(0.01)\n"
)
"""Waits for a file that another command writes."""


def test_commands_beside_others_start_while_these_run_up_to_a_number_and_all_are_awaited(tmp_path: Path) -> None:
    signal, kept = tmp_path / "signal", tmp_path / "kept"
    waiting: deque[parallel_commands.WatchedCommand] = deque()
    free, after, printed = 2, [], []

    def ended(end: parallel_commands.EndedCommand) -> None:
        nonlocal free
        free += 1
        printed.append(end.printed)

    def take() -> parallel_commands.WatchedCommand | None:
        nonlocal free
        assert free > 0
        if not waiting:
            return None
        free -= 1
        return waiting.popleft()

    def follow(number: int, end: parallel_commands.EndedCommand) -> None:
        after.append((number, end.code))
        if number == 0:
            signals = (sys.executable, "-c", f"import pathlib; pathlib.Path({str(signal)!r}).touch()")
            commands = [SHOWS_CPUS, SHOWS_CPUS, SHOWS_CPUS, signals]
        else:
            commands = [(sys.executable, "-c", f"import pathlib; pathlib.Path({str(kept)!r}).touch()")]
        waiting.extend(parallel_commands.WatchedCommand(command, lambda line: None, ended) for command in commands)

    done = parallel_commands.run(
        [(sys.executable, "-c", ""), (sys.executable, "-c", AWAITS, str(signal))],
        2,
        lambda line: None,
        own_cpus=True,
        after=follow,
        beside=take,
        most_beside=2,
    )
    assert [end.code for end in done] == [0, 0]
    assert after == [(0, 0), (1, 0)]
    assert sorted(printed) == ["", "", *[f"{ALLOWED}\n"] * 3]
    assert kept.exists()
    assert free == 2


def test_an_exception_also_ends_the_commands_that_run_beside(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    writes = (
        f"import os, pathlib, time; begun = pathlib.Path({str(tmp_path / 'begun')!r}); "
        f"begun.write_text(str(os.getpid())); begun.rename({str(pid)!r}); time.sleep(600)"
    )
    waiting = [parallel_commands.WatchedCommand((sys.executable, "-c", writes), lambda line: None, lambda end: None)]

    def refuse(number: int, end: parallel_commands.EndedCommand) -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        parallel_commands.run(
            [(sys.executable, "-c", AWAITS, str(pid))],
            1,
            lambda line: None,
            after=refuse,
            beside=lambda: waiting.pop() if waiting else None,
            most_beside=1,
        )
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
