"""Two states of the user's code, measured in one run: each case of a round in both, directly after the other.

A commit is checked out into a temporary git worktree. This Inferometer runs both states, even where their folders
contain another: the comparison is of the user's model, not of the harness.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import harness
from harness.core import cli, store
from harness.core.errors import UsageError
from harness.core.host import limits
from harness.core.host.git import git, printed_by_git
from harness.core.layout import Models, Results
from harness.core.schemas import Failed, Plan, StateId
from harness.planning.block_settings import parse_interpreters
from harness.planning.exports import Exports, built_engines
from harness.planning.resume import finished_turns
from harness.planning.run_time import sample_times, time_of_pairs_in_words
from harness.planning.schedule import Turn, paired_rounds
from harness.processes.launcher import Code
from harness.processes.pool import WorkerPool, split_off_unexported

_FORMS = "AGAINST=<commit>, AGAINST=<folder>, or AGAINST=<backend>=<python>."
_SHORT = 10
"""Digits of a commit in a name."""
_TIMEOUT_S = 600


@dataclass(frozen=True)
class CodeState:
    """One of the two states. interpreters: by backend, as in BACKEND_PYTHONS."""

    state: StateId
    code: Code
    interpreters: Mapping[str, Path] = field(default_factory=dict)


@contextmanager
def code_states(
    against: str, here: Path, pythons: Mapping[str, Path], left_out: Sequence[Path]
) -> Iterator[tuple[CodeState, CodeState]]:
    """(the state that `against` names, the state of the folder `here`). A temporary worktree is removed at the end.

    pythons: interpreters of the state here, and of the other state where it names no others. left_out: folders below
    `here` that the run writes and that hold no code. Raises UsageError where `against` names no state.
    """
    with tempfile.TemporaryDirectory(prefix="inferometer-") as temporary:
        place = Path(temporary)
        only_ours = place / "harness-alone"
        only_ours.mkdir()
        (only_ours / "harness").symlink_to(Path(harness.__file__).resolve().parent, target_is_directory=True)
        here_state = CodeState(
            StateId(name=_name_of(here), stamp=files_digest(here, left_out)), _code(here, here, only_ours), pythons
        )
        with _named(against, here, place) as (root, name, digits, others):
            state = StateId(name=name, stamp=digits or files_digest(root, left_out))
            yield CodeState(state, _code(root, here, only_ours), {**pythons, **others}), here_state


Named = tuple[Path, str, str | None, Mapping[str, Path]]
"""Folder, name, stamp (None: to be read from the files), other interpreters."""


@contextmanager
def _named(against: str, here: Path, place: Path) -> Iterator[Named]:
    folder = here / against
    if "=" in against and not folder.exists():
        others = parse_interpreters([against])
        yield here, ", ".join(f"{backend} by {path}" for backend, path in others.items()), None, others
        return
    commit = _commit(against, here)
    if commit is not None and folder.is_dir():
        raise UsageError(f"{against} is both a folder and a commit.", f"AGAINST=./{against}, or the commit's digits.")
    if commit is not None:
        with _worktree(commit, here, place / "worktree") as root:
            name = f"commit {commit[:_SHORT]}"
            yield root, name if commit.startswith(against) else f"{name} ({against})", commit, {}
    elif folder.is_dir():
        yield folder.resolve(), f"folder {against}", None, {}
    else:
        repository = "" if _git(here, "rev-parse", "--git-dir") else " The current folder is in no git repository."
        raise UsageError(f"{against} is no folder and no commit here.{repository}", _FORMS)


@contextmanager
def _worktree(commit: str, here: Path, target: Path) -> Iterator[Path]:
    """A worktree of a commit; yields the folder in it that corresponds to the current one. Raises UsageError."""
    top = Path((_git(here, "rev-parse", "--show-toplevel") or "").strip()).resolve()
    # Without the repository's own hooks, which must not run in a measurement.
    add = ["-c", "core.hooksPath=/dev/null", "worktree", "add", "--detach", "--quiet", str(target), commit]
    done = git(top, *add, timeout_s=_TIMEOUT_S)
    if done is None or done.returncode:
        reason = ((done.stderr if done else "").strip().splitlines() or ["no reason given"])[-1]
        raise UsageError(f"git could not check {commit[:_SHORT]} out: {reason}", f"Check it out yourself: {_FORMS}")
    try:
        root = target / here.resolve().relative_to(top)
        if not root.is_dir():
            raise UsageError(
                f"{commit[:_SHORT]} has no folder {root.relative_to(target)}.", "Name a later commit: AGAINST=<commit>."
            )
        yield root
    finally:
        _git(top, "worktree", "remove", "--force", str(target))


def _code(root: Path, here: Path, only_ours: Path) -> Code:
    """Where a state's modules come from. PYTHONPATH entries inside `here` become those of the state's root."""
    inherited = [Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    moved = [root / path.relative_to(here) if path.is_relative_to(here) else path for path in inherited]
    own = [root, *([root / "src"] if (root / "src").is_dir() else [])]
    return Code(root, tuple(dict.fromkeys(map(str, (only_ours, *own, *moved)))))


def _name_of(here: Path) -> str:
    commit = _commit("HEAD", here)
    if commit is None:
        return "working folder"
    changed = bool(_git(here, "status", "--porcelain", "--untracked-files=no"))
    return f"working folder at {commit[:_SHORT]}{', changed' if changed else ''}"


def files_digest(root: Path, left_out: Sequence[Path]) -> str:
    """SHA-256 of the names, sizes and dates of all files, without hidden folders, caches of Python and `left_out`."""
    aside = {path.resolve() for path in left_out}
    digest = hashlib.sha256()
    for folder, below, files in os.walk(root):
        below[:] = sorted(
            name
            for name in below
            if not name.startswith(".") and name != "__pycache__" and (Path(folder) / name).resolve() not in aside
        )
        for name in sorted(files):
            path = Path(folder) / name
            if path.is_file():
                known = path.stat()
                digest.update(
                    f"{path.relative_to(root)}\0{known.st_size}\0{known.st_mtime_ns}\n".encode(errors="replace")
                )
    return digest.hexdigest()


def _commit(text: str, here: Path) -> str | None:
    """The commit's digits; None where git knows no such commit."""
    commit = _git(here, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
    return commit.strip() if commit else None


_git = partial(printed_by_git, timeout_s=_TIMEOUT_S)


def require_own_modules(own: Code, other: Code, modules: Sequence[str]) -> None:
    """Raise UsageError where a state would import a module from the other state's folder, as with an editable
    installation: both states would then run the same code."""
    script = (
        "import importlib.util, sys\n"
        "for name in sys.argv[1:]:\n"
        "    found = importlib.util.find_spec(name)\n"
        "    places = [] if found is None else [found.origin, *(found.submodule_search_locations or ())]\n"
        "    print(next((place for place in places if place), ''))\n"
    )
    names = list(dict.fromkeys(module.partition(".")[0] for module in modules))
    done = subprocess.run(  # noqa: S603 - our own words and names of modules
        [sys.executable, "-c", script, *names],
        env={**os.environ, **own.environment},
        cwd=own.root,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    for name, place in zip(names, done.stdout.splitlines(), strict=False):
        path = Path(place).resolve() if place else None
        if path and path.is_relative_to(other.root.resolve()) and not path.is_relative_to(own.root.resolve()):
            raise UsageError(
                f"`{name}` of the state in {own.root} would be imported from {other.root}, which is the other state.",
                f"Uninstall the editable installation of {name}, or put {name} into the folder that is named.",
            )


RENEWED_AFTER = 2
"""Rounds after which each state gets new servers, from which its cases are forked. All forks of one server share its
memory layout: with one server for a whole run, a lucky layout would look like a property of the state. Two rounds of
one server correlate at most as far as the test allows (harness/comparison/paired.py). Fewer rounds would cost more
imports."""

Pairs = list[list[tuple[Turn, bool]]]
"""By round: each turn, and whether the state here goes first."""


@dataclass(frozen=True)
class InterleavedState:
    """One state with its plan, files and exports. label: its name in the lines of the run."""

    label: str
    state: CodeState
    plan: Plan
    models: Models
    results: Results
    exports: Exports


BOTH_STATES = "Both states: "
"""How the line begins that says how long the pairs take."""


def measure_in_turn(against: InterleavedState, here: InterleavedState) -> int:
    """Measure the pending pairs of both states; returns the number of failed processes and of turns without an export.

    Where one half of a pair is missing, both are measured again: the two must be close in time.
    """
    settings = here.plan.measurement
    rounds, lacking = _pending(against, here)
    number = sum(map(len, rounds))
    threads = settings.threads or limits.thread_count()
    every = sum(map(len, _pairs(against.plan, here.plan)))
    kept = f"; {every - number} pairs measured before are kept (FORCE=1 measures again)" if every > number else ""
    cli.say(f"{number} pairs of processes to run with {threads} threads each, both states in turn{kept}.")
    if number:
        pairs = [case for turns in rounds for (_, case), _ in turns]
        known = sample_times(here.exports.intact.values())
        cli.say(f"{BOTH_STATES}{time_of_pairs_in_words(pairs, settings, known)}")
    failures = lacking
    with (
        _pool(here, threads, 2 * number) as here_pool,
        _pool(against, threads, 2 * number, beside=here_pool) as against_pool,
    ):
        cases = {case.case_id: case for case in against.plan.cases}
        for turns in rounds:
            for (count, case), goes_first in turns:
                _forget(against.results, here.results, case.case_id, count)
                here_turn, against_turn = (here_pool, (count, case)), (against_pool, (count, cases[case.case_id]))
                for pool, turn in (here_turn, against_turn) if goes_first else (against_turn, here_turn):
                    record = pool.measure(turn)
                    failures += isinstance(record, Failed) and not record.refused
            if turns and turns[0][0][0] % RENEWED_AFTER == 0:
                here_pool.renew()
                against_pool.renew()
    return failures


def _pool(side: InterleavedState, threads: int, turns: int, beside: WorkerPool | None = None) -> WorkerPool:
    state = side.state
    return WorkerPool(
        side.plan,
        side.models,
        side.results,
        threads,
        turns,
        fork=True,
        interpreters=state.interpreters,
        code=state.code,
        label=side.label,
        beside=beside,
    )


def _pairs(against: Plan, here: Plan) -> Pairs:
    """Turns of the cases that both plans run."""
    theirs = {case.case_id for case in against.cases if case.skip_reason is None}
    cases = [case for case in here.cases if case.case_id in theirs]
    return paired_rounds(cases, here.measurement.rounds, here.measurement.seed)


def _pending(against: InterleavedState, here: InterleavedState) -> tuple[Pairs, int]:
    """(pending pairs by round, number of turns without an export)."""
    rounds = _pairs(against.plan, here.plan)
    turns = [turn for pairs in rounds for turn, _ in pairs]
    keys = [_measurable(side, turns) for side in (against, here)]
    lacking = sum(len(turns) - len(turn) for turn in keys)
    both = keys[0] & keys[1]
    done = _finished(against, turns) & _finished(here, turns)
    pending = both - done
    return [[pair for pair in pairs if _key(pair[0]) in pending] for pairs in rounds], lacking


Key = tuple[int, str]


def _key(turn: Turn) -> Key:
    return turn[0], turn[1].case_id


def _measurable(side: InterleavedState, turns: Sequence[Turn]) -> set[Key]:
    return {_key(turn) for turn in split_off_unexported(side.plan, turns, side.exports, side.results)}


def _finished(side: InterleavedState, turns: Sequence[Turn]) -> set[Key]:
    damaged: list[str] = []
    engines = {
        name: built_engines(side.models.folder(export.slug), damaged) for name, export in side.exports.intact.items()
    }
    elsewhere = frozenset(side.state.interpreters)
    done = finished_turns(side.plan, turns, side.exports.intact, side.results, elsewhere, engines)
    for note in (*damaged, *done.notes):
        cli.warn(note)
    return {_key(turn) for turn in turns if done.has(turn)}


def _forget(side: Results, other: Results, case_id: str, number: int) -> None:
    for results in (side, other):
        for path in (results.raw_file(case_id, number), results.usage_file(case_id, number)):
            with store.translate_storage_errors(path):
                path.unlink(missing_ok=True)
