"""Commands at the same time: their CPUs, their order, and the report of which ones run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

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


def test_progress_names_what_runs_and_counts_what_ended() -> None:
    seen: list[tuple[Sequence[int], int]] = []
    commands = [(sys.executable, "-c", f"print({number})") for number in range(3)]
    ended = parallel_commands.run(commands, 1, lambda line: None, lambda running, ended: seen.append((running, ended)))
    assert seen == [([0], 0), ([1], 1), ([2], 2)]
    assert [(end.code, end.printed) for end in ended] == [(0, "0\n"), (0, "1\n"), (0, "2\n")]
