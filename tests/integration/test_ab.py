"""`ab` for real: a module of a git repository against its last commit, unchanged and made slower on purpose."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.core import store
from harness.core.layout import Results
from harness.core.schemas import Comparison, Summary
from tests.fixtures.forked import run_forked

ROOT = Path(__file__).parents[2]
NETS = """
import time

import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(128, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 128))

    def forward(self, x):
        # As long on a busy machine as on a calm one.
        end = time.perf_counter() + {seconds}
        while time.perf_counter() < end:
            pass
        return self.layers(x)

def build():
    torch.manual_seed({seed})
    return Net(), torch.randn(8, 128)
"""
CONFIG = """
models: [{name: "module:nets:build"}]
matrix: [{backends: [torch-eager], precisions: [fp32], batch_sizes: [4]}]
measurement: {warmup_max_s: 0.3, max_s: 0.2, min_s: 0.2, parity_samples: 8, threads: 1}
"""
ROUNDS = 6


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    (folder / "nets.py").write_text(NETS.format(seconds=0.004, seed=0))
    (folder / "ab.yaml").write_text(CONFIG)
    who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "one"]):
        command = ["git", *who, *words]
        subprocess.run(command, cwd=folder, check=True)
    return folder


def ab(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["--against", "HEAD", "--config", "ab.yaml", "--rounds", str(ROUNDS), *options]
    words += ["--exporter", "torchscript"]  # the quicker one, twice; nothing here measures its file
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    environment["PYTHONPATH"] = str(ROOT)
    return run_forked("harness.ab", words, folder, environment)


def ab_of_a_calm_machine(folder: Path) -> subprocess.CompletedProcess[str]:
    """Other work on the CPUs can give a side grade C, and then nothing is compared: it is measured again."""
    done = ab(folder)
    for _ in range(4):
        if "grade C" not in done.stderr:
            break
        done = ab(folder, "--force")
    return done


def found(folder: Path) -> Comparison:
    return store.load(Results(folder / "results").ab.comparison, Comparison, "make ab")


@pytest.mark.slow
def test_no_change_is_no_regression_and_records_are_kept(repository: Path) -> None:
    # A wide margin: whether a restless machine calls equal states different is benchmarks/paired_alarms.py's to count.
    done = ab(repository, "--max-regression", "50%")
    assert done.returncode == 0, done.stderr
    comparison = found(repository)
    assert comparison.design == "paired"
    assert comparison.baseline is not None
    assert comparison.baseline.state is not None
    assert comparison.baseline.state.endswith("(HEAD)")
    (row,) = comparison.rows
    assert row.rounds == (ROUNDS, ROUNDS)
    again = ab(repository, "--max-regression", "50%")
    assert again.returncode == 0, again.stderr
    assert f"{ROUNDS} pairs measured before are kept" in again.stdout
    assert ["Both states: " in run.stdout for run in (done, again)] == [True, False]
    assert (Results(repository / "results").ab.report_page).is_file()
    listing = ["git", "worktree", "list"]
    worktrees = subprocess.run(listing, cwd=repository, check=True, capture_output=True, text=True)
    assert len(worktrees.stdout.splitlines()) == 1


def test_a_model_that_became_slower_ends_with_the_exit_code_of_compare(repository: Path) -> None:
    (repository / "nets.py").write_text(NETS.format(seconds=0.04, seed=1))
    done = ab_of_a_calm_machine(repository)
    assert done.returncode == 1, done.stderr + done.stdout
    assert "Error: 1 of 1 compared row regressed" in done.stderr
    (row,) = found(repository).rows
    assert row.verdict == "SLOWER"
    against = store.load(Results(repository / "results").ab.against.summary, Summary, "make ab")
    assert against.rows[0].artifacts != {}
    assert "### Performance: regressed" in Results(repository / "results").ab.pr_comment.read_text()


@pytest.mark.slow
def test_a_change_that_cannot_be_built_ends_with_its_reason(repository: Path) -> None:
    (repository / "nets.py").write_text("def build():\n    raise ValueError('not yet')\n")
    done = ab(repository)
    assert done.returncode == 8
    assert "not yet" in done.stderr


@pytest.mark.slow
def test_a_model_that_the_other_state_lacks_is_not_compared(repository: Path) -> None:
    (repository / "nets.py").write_text(NETS.format(seconds=0.004, seed=0).replace("build", "build_anew"))
    (repository / "ab.yaml").write_text(CONFIG.replace("nets:build", "nets:build_anew"))
    done = ab(repository)
    assert done.returncode == 2, done.stderr
    assert "nets has no function build_anew" in done.stderr
