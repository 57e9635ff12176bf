"""Nightly runs of configs/smoke.yaml, a commit that makes one backend slower, and what `make history` says about it.

    .venv/bin/python -m benchmarks.history_demo --work /tmp/nightly                     # part of the configuration
    .venv/bin/python -m benchmarks.history_demo --work /tmp/nightly --whole             # every backend of it
    .venv/bin/python -m benchmarks.history_demo --work /tmp/nightly --publish results/published/<machine>/<date>-history

The measured code is a git repository in <work>/code with a plugin: the backend `nightly`, which is ONNX Runtime. Its
second commit makes a histogram in each pass, some milliseconds of work. The first runs are of the first commit, the
others of the second; the other backends of the plan do not change. Every run is a real one: run, aggregate, history.
Then an A/B run of both commits decides the candidate. An interrupted loop goes on where it was: the store has the runs.

Exit code 1 where the change is not found or not confirmed, or where another shift is.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness.comparison.run_history import analyse
from harness.core import store
from harness.core.host.git import git, printed_by_git
from harness.core.layout import Results, RunStore
from harness.core.schemas import History, HistoryRun, Shift
from harness.planning.run_store import load_decisions, load_runs
from harness.reporting.tables.history_table import shifts_table
from harness.reporting.writers.markdown import table_text

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "configs/smoke.yaml"
OWN = "nightly"
PART = ("noop", "onnxruntime", OWN)
"""A control without work, a control with the same library, and the measured code."""
WHOLE = ("noop", "torch-eager", "onnxruntime", "openvino", OWN)
MEASURED = (0, 10)
"""Exit codes of a stage that went through its plan."""

TABLE = """\"\"\"The entry of the backend `nightly`.\"\"\"

from harness.backends import BackendInfo

NIGHTLY = BackendInfo(
    target="nightly_backend:Nightly",
    summary="ONNX Runtime, as this repository sets it up",
    requires=("onnxruntime",),
    preload=("onnxruntime",),
    environment={"ORT_DISABLE_TELEMETRY": "1"},
    precisions={"cpu": ("fp32",)},
    artifact="onnx",
    not_offered=dict.fromkeys(("tf32", "fp16", "bf16", "int8"), "only the fp32 file is run"),
)
"""

BEFORE = """\"\"\"The backend `nightly`.\"\"\"

from harness.backends.onnxruntime.cpu import OnnxRuntime


class Nightly(OnnxRuntime):
    \"\"\"ONNX Runtime with all graph optimisations.\"\"\"
"""

AFTER = """\"\"\"The backend `nightly`.\"\"\"

import numpy as np

from harness.backends.onnxruntime.cpu import OnnxRuntime


class Nightly(OnnxRuntime):
    \"\"\"ONNX Runtime, with a histogram in each pass.\"\"\"

    values = np.random.default_rng(0).normal(size=VALUES)

    def infer(self):
        super().infer()
        np.histogram(self.values, bins=256)
"""

FILES = {
    "nightly_table.py": TABLE,
    "nightly-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: nightly\nVersion: 1.0\n",
    "nightly-1.0.dist-info/entry_points.txt": "[inferometer.backends]\nnightly = nightly_table:NIGHTLY\n",
    CONFIG: (ROOT / CONFIG).read_text(),
}
VALUES = 200_000
"""Of the histogram: 2.3 ms of one core of an AMD EPYC."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder that the demonstration owns")
    parser.add_argument("--runs", type=int, default=36)
    parser.add_argument("--slower-from", type=int, default=26, help="first run of the second commit")
    parser.add_argument("--values", type=int, default=VALUES, help="of the histogram: how much slower it becomes")
    parser.add_argument("--rounds", type=int, default=10, help="of the A/B run")
    parser.add_argument("--whole", action="store_true", help=f"{', '.join(WHOLE)}, not only {', '.join(PART)}")
    parser.add_argument("--publish", type=Path, help="copy the store and what was found into this folder")
    options = parser.parse_args()
    work = options.work.resolve()
    backends = WHOLE if options.whole else PART
    code, files = work / "code", RunStore(work / "store")
    after = AFTER.replace("VALUES", str(options.values))
    commits = repository(code, after)
    template = planned(work, backends)
    nightly(work, template, commits, options.runs, options.slower_from)
    problems = decided(work, files, commits, options.rounds)
    text = said(files, commits, options.slower_from, backends, after, problems)
    print(text)
    if options.publish:
        publish(files, options.publish, text)
    if problems:
        sys.exit(1)


def repository(code: Path, after: str) -> tuple[str, str]:
    """The two commits of the measured code; makes the repository where it is missing."""
    commits = (
        ("The backend nightly is ONNX Runtime", {**FILES, "nightly_backend.py": BEFORE}),
        ("Keep a histogram of the values", {"nightly_backend.py": after}),
    )
    if not (code / ".git").is_dir() or printed_by_git(code, "rev-parse", "--verify", "--quiet", "after") is None:
        shutil.rmtree(code, ignore_errors=True)
        code.mkdir(parents=True)
        _git(code, "init", "--quiet")
        for message, content in commits:
            for name, text in content.items():
                (code / name).parent.mkdir(parents=True, exist_ok=True)
                (code / name).write_text(text)
            _git(code, "add", "--all")
            _git(code, "commit", "--quiet", "--message", message)
        _git(code, "branch", "--force", "after")
    return _git(code, "rev-parse", "after~1").strip(), _git(code, "rev-parse", "after").strip()


def _git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=nightly", "-c", "user.email=nightly@localhost", "-c", "core.hooksPath=/dev/null"]
    done = git(folder, *who, *words)
    if done is None or done.returncode:
        sys.exit(f"git {words[0]}: {done.stderr if done else 'no answer'}")
    return done.stdout


def planned(work: Path, backends: Sequence[str]) -> Results:
    """A results folder with the plan, the export and the limits that every run begins with."""
    template = Results(work / "template")
    if not template.roof.is_file():
        stage(work, template, "plan", "--config", CONFIG, "--backends", ",".join(backends))
        stage(work, template, "export", "--models-dir", str(work / "models"))
        stage(work, template, "roof")
    return template


def stage(work: Path, results: Results, name: str, *arguments: str, accepted: Sequence[int] = MEASURED) -> str:
    """Run a stage with the measured code as its folder; returns its output."""
    done = subprocess.run(
        [sys.executable, "-m", f"harness.{name}", "--results", str(results.root), *arguments],
        cwd=work / "code",
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(work / "code")))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode not in accepted:
        sys.exit(f"{name} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def nightly(work: Path, template: Results, commits: tuple[str, str], runs: int, slower_from: int) -> None:
    """Add the missing runs to the store, one after the other."""
    files = RunStore(work / "store")
    first = len(load_runs(files)[0]) + 1
    began = time.monotonic()
    for number in range(first, runs + 1):
        commit = commits[number >= slower_from]
        _git(work / "code", "checkout", "--quiet", "--detach", commit)
        results = Results(work / "run")
        shutil.rmtree(results.root, ignore_errors=True)  # half a run of an interrupted loop
        shutil.copytree(template.root, results.root)
        stage(work, results, "run", "--models-dir", str(work / "models"))
        stage(work, results, "aggregate", "--models-dir", str(work / "models"))
        shown = stage(work, results, "history", "--store", str(files.root), "--commit", commit)
        state = next((line for line in shown.splitlines() if "Shifts:" in line), "")
        left = (time.monotonic() - began) / (number - first + 1) * (runs - number)
        print(f"{number}/{runs}, commit {commit[:10]}, {left / 60:.0f} min left: {state}", flush=True)


def decided(work: Path, files: RunStore, commits: tuple[str, str], rounds: int) -> list[str]:
    """Decide the candidate between the two commits by an A/B run; returns what is not as it should be."""
    own = [shift for shift in _history(files).shifts if shift.commits == commits and OWN in shift.case_id]
    if not own:
        return [f"No shift of {OWN} between the commits was found."]
    shift = own[0]
    if shift.state == "candidate":
        before, after = commits
        _git(work / "code", "checkout", "--quiet", "--detach", after)
        place = Results(work / "ab")
        words = ["--against", before, "--config", CONFIG, "--backends", OWN, "--rounds", str(rounds)]
        print(f"A/B run of {before[:10]} and {after[:10]}, {rounds} rounds", flush=True)
        shown = stage(work, place, "ab", *words, "--models-dir", str(work / "models"), accepted=range(11))
        print("\n".join(shown.splitlines()[-15:]))
        print(stage(work, place, "history", "--store", str(files.root), "--confirm", shift.shift_id, accepted=(0, 1)))
        shift = next(entry for entry in _history(files).shifts if entry.shift_id == shift.shift_id)
    problems = [] if shift.state == "confirmed" else [f"{shift.shift_id} is {shift.state}."]
    others = [entry for entry in _history(files).shifts if entry.shift_id != shift.shift_id]
    return problems + [f"Another shift: {entry.case_id}, {entry.ratio - 1:+.1%}, {entry.state}." for entry in others]


def _history(files: RunStore) -> History:
    return store.load(files.history, History, "make history")


def first_seen(runs: Sequence[HistoryRun], commits: tuple[str, str]) -> int | None:
    """How many runs the history had when it first showed the change; None where it never did."""
    for length in range(1, len(runs) + 1):
        if any(_is_own(shift, commits) for shift in analyse(runs[:length], [], "").shifts):
            return length
    return None


def _is_own(shift: Shift, commits: tuple[str, str]) -> bool:
    return OWN in shift.case_id and shift.commits == commits


def said(
    files: RunStore,
    commits: tuple[str, str],
    slower_from: int,
    backends: Sequence[str],
    after: str,
    problems: Sequence[str],
) -> str:
    """What was measured and what was found, as Markdown."""
    runs, history = load_runs(files)[0], _history(files)
    names = ("before/nightly_backend.py", "after/nightly_backend.py")
    change = "".join(difflib.unified_diff(BEFORE.splitlines(True), after.splitlines(True), *names))
    seen = first_seen(runs, commits)
    table = shifts_table(history, runs)
    result = (
        "The history alone never shows the change."
        if seen is None
        else f"The history first shows the change with run {seen}, run {seen - slower_from + 1} of the second commit."
    )
    lines = [
        "# A history of real runs with a slower commit",
        "",
        f"{len(runs)} runs of {CONFIG} ({', '.join(backends)}) on {runs[-1].machine}, {runs[0].measured_from[:16]} to "
        f"{runs[-1].measured_to[:16]} UTC. Runs 1 to {slower_from - 1}: commit {commits[0][:10]}; the others: "
        f"{commits[1][:10]}. The page: history.html. Made by `python -m benchmarks.history_demo`.",
        "",
        result,
        "",
        table_text(table) if table is not None else "No shift.",
        "",
        *(f"- {problem}" for problem in problems or ["Nothing else was found."]),
        "",
        "The second commit:",
        "",
        f"```diff\n{change}```",
    ]
    return "\n".join(lines) + "\n"


def publish(files: RunStore, target: Path, text: str) -> None:
    """Copy the page, the analysis, and the records of the runs and of the decision, which has the A/B run's verdict."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    copied = RunStore(target)
    shutil.copy(files.page, copied.page)
    shutil.copy(files.history, copied.history)
    for run in load_runs(files)[0]:
        copied.run(run.run_id).parent.mkdir(parents=True)
        shutil.copy(files.run(run.run_id), copied.run(run.run_id))
    if load_decisions(files)[0]:
        shutil.copytree(files.decisions, copied.decisions)
    (target / "README.md").write_text(text)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"{target}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
