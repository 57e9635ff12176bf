"""The attack before a release, one of each kind: nothing lost, nothing false, no traceback (benchmarks/attack.py)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest

from benchmarks import attack
from benchmarks.forked_stages import Ended, FaultError, start
from benchmarks.hostile_inputs import CASES, _without
from tests.fixtures.stages import ROOT
from tests.synthetic_results import RESNET, Synthetic

pytestmark = pytest.mark.stages


def attacked(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.attack", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "tried"),
    [
        ("inputs", 12),
        # tests/integration/test_kill.py has two kills.
        *(
            pytest.param(name, tried, marks=pytest.mark.slow)
            for name, tried in (("kills", 4), ("disks", 2), ("stops", 2))
        ),
    ],
)
def test_one_of_each_kind_holds(name: str, tried: int) -> None:
    done = attacked("--quick", "--only", name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"{name}: {tried} of {tried} held in")


@pytest.mark.slow
def test_twelve_kills_hold() -> None:
    done = attacked("--only", "kills", "--kills", "12")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_failed_property_is_counted_and_named_with_the_command_that_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def one(number: int, _chooser: random.Random, _place: Path) -> str:
        if number == 1:
            raise FaultError("a record is lost")
        return "kind"

    score = attack.attack("kills", one, range(3), 7, tmp_path)
    assert (score.tried, len(score.fell), score.kinds["kind"]) == (3, 1, 2)
    assert "--seed 7 --only kills --number 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "ended",
    [
        Ended(0, "", ""),
        Ended(70, "", "Error: x\nHint:  y\n"),
        Ended(-11, "", ""),
        Ended(4, "", "Error: x\n"),
        Ended(4, "", "Error: x\nHint:  y\nmore\n"),
    ],
)
def test_only_an_error_of_two_lines_is_a_refusal(ended: Ended) -> None:
    with pytest.raises(FaultError):
        ended.refused()


@pytest.mark.parametrize(
    ("name", "changed", "words"),
    [("2.json", True, "other figures"), ("2.usage.json", True, "does not say so"), ("2.json", False, None)],
)
def test_a_damaged_record_must_be_out_of_the_figures_and_named(name: str, changed: bool, words: str | None) -> None:
    whole = Synthetic(models=(RESNET,), cases=CASES, rounds=3, samples=60)
    spoilt = Path("results/raw", CASES[0].case_id, name)
    with pytest.raises(FaultError, match=words) if words else nullcontext():
        _without(whole.summary(), whole, spoilt, changed)


def test_chance_is_the_same_for_the_same_attempt(tmp_path: Path) -> None:
    drawn: list[float] = []

    def one(_number: int, chooser: random.Random, _place: Path) -> str:
        drawn.append(chooser.random())
        return "kind"

    attack.attack("kills", one, [3, 4], 7, tmp_path)
    attack.attack("kills", one, [4], 7, tmp_path)
    assert drawn[1] == drawn[2] != drawn[0]


def test_a_stage_that_is_killed_at_its_first_instruction_still_has_an_end(tmp_path: Path) -> None:
    def killed() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def never(_arguments: Sequence[str]) -> None:
        raise AssertionError

    with mock.patch.object(os, "setsid", killed):
        ended = start(never, place=tmp_path).wait()
    assert (ended.code, ended.out, ended.err) == (-signal.SIGKILL, "", "")
