"""Which state of the code a process gets: a commit's, a folder's, the working folder's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.errors import UsageError
from harness.core.layout import Results
from harness.planning.exports import Exports
from harness.planning.run_time import time_of_pairs_in_words
from harness.processes import code_states as module
from harness.processes.code_states import (
    CodeState,
    code_states,
    files_digest,
    require_own_modules,
)
from harness.processes.launcher import Code
from tests.synthetic_results import RESNET, Synthetic, case_of

WHO = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *WHO, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A commit in which nets.VALUE is 1, and a working folder in which it is 2, below the top of the repository."""
    here = tmp_path / "repository" / "models"
    here.mkdir(parents=True)
    (here / "nets.py").write_text("VALUE = 1\n")
    git(here.parent, "init", "--quiet")
    git(here.parent, "add", ".")
    git(here.parent, "commit", "--quiet", "--message", "one")
    (here / "nets.py").write_text("VALUE = 2\n")
    monkeypatch.setenv("PYTHONPATH", str(here))
    return here


def value(state: CodeState) -> tuple[str, str]:
    """(nets.VALUE, where harness comes from), as a process of a state sees them."""
    script = "import nets, harness, pathlib; print(nets.VALUE, pathlib.Path(harness.__file__).resolve())"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **state.code.environment},
        cwd=state.code.root,
        check=True,
        capture_output=True,
        text=True,
    )
    first, _, second = done.stdout.strip().partition(" ")
    return first, second


def test_a_commit_is_checked_out_beside_and_gone_afterwards(repository: Path) -> None:
    (repository / "harness").mkdir()
    (repository / "harness" / "__init__.py").write_text("raise SystemExit('not this one')\n")
    with code_states("HEAD", repository, {}, []) as (against, here):
        root = against.code.root
        ours = str(Path(__file__).parents[3] / "harness" / "__init__.py")
        assert (value(against), value(here)) == (("1", ours), ("2", ours))
        assert against.state.name == f"commit {git(repository, 'rev-parse', 'HEAD')[:10]} (HEAD)"
        assert here.state.name.endswith(", changed")
    assert not root.exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_a_folder_is_a_state_and_another_python_is_one(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "nets.py").write_text("VALUE = 3\n")
    with code_states(str(other), repository, {}, []) as (against, here):
        assert (value(against)[0], value(here)[0]) == ("3", "2")
    with code_states(f"onnxruntime={sys.executable}", repository, {}, []) as (against, here):
        assert against.code.root == here.code.root
        assert (list(against.interpreters), list(here.interpreters)) == (["onnxruntime"], [])
        assert against.state != here.state


@pytest.mark.parametrize("against", ["no-such-thing", "--help", "models"])
def test_a_text_that_is_no_state_is_an_error_with_the_forms(repository: Path, against: str) -> None:
    with (
        pytest.raises(UsageError, match="is no folder and no commit") as caught,
        code_states(against, repository, {}, []),
    ):
        pass
    assert "AGAINST=<commit>" in caught.value.hint


def test_outside_a_repository_a_commit_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="in no git repository"), code_states("HEAD", tmp_path, {}, []):
        pass


def test_a_stamp_changes_with_any_file_but_those_left_out(repository: Path) -> None:
    results = repository / "results"
    results.mkdir()
    first = files_digest(repository, [results])
    (results / "plan.json").write_text("{}")
    assert files_digest(repository, [results]) == first
    (repository / "nets.py").write_text("VALUE = 22\n")
    assert files_digest(repository, [results]) != first


def test_a_module_that_the_other_state_would_lend_is_refused(tmp_path: Path) -> None:
    first, other = tmp_path / "one", tmp_path / "other"
    for folder in (first, other):
        folder.mkdir()
    (other / "borrowed_nets.py").touch()
    borrowed = Code(first, (str(first), str(other)))
    with pytest.raises(UsageError, match="which is the other state"):
        require_own_modules(borrowed, Code(other, (str(other),)), ["borrowed_nets.inner"])
    require_own_modules(Code(other, (str(other),)), Code(first, (str(first),)), ["borrowed_nets"])


@pytest.mark.parametrize("pairs", [0, 2])
def test_the_time_of_the_pending_pairs_is_said_before_they_begin(
    pairs: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of(RESNET, "torch-eager", "fp32", 1)
    plan = Synthetic(models=(RESNET,), cases=[case]).plan
    said: list[str] = []

    class Pool:
        def __enter__(self) -> Pool:
            said.append(capsys.readouterr().out)
            return self

        def __exit__(self, *_error: object) -> None:
            pass

        def measure(self, _turn: object) -> None:
            pass

        def renew(self) -> None:
            pass

    rounds = [[((number, case), True)] for number in range(1, pairs + 1)]
    side: Any = SimpleNamespace(plan=plan, results=Results(Path()), exports=Exports({}, {}, 64))
    monkeypatch.setattr(module, "_pending", lambda *_: (rounds, 0))
    monkeypatch.setattr(module, "_pool", lambda *_, **__: Pool())
    monkeypatch.setattr(module, "_forget", lambda *_: None)
    assert module.measure_in_turn(side, side) == 0
    time = f"{module.BOTH_STATES}{time_of_pairs_in_words([case] * pairs, plan.measurement)}\n"
    assert (time in said[0], module.BOTH_STATES in said[0]) == (pairs > 0, pairs > 0)
