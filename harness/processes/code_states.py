"""Two states of the user's code side by side: the working folder, and a commit, a folder or another Python.

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
from harness.core.errors import UsageError
from harness.core.host.git import git, printed_by_git
from harness.core.schemas import State
from harness.planning.block_settings import interpreters
from harness.processes.launcher import Code

_FORMS = "AGAINST=<commit>, AGAINST=<folder>, or AGAINST=<backend>=<python>."
_SHORT = 10
"""Digits of a commit in a name."""
_TIMEOUT_S = 600


@dataclass(frozen=True)
class CodeState:
    """One of the two states. interpreters: by backend, as in BACKEND_PYTHONS."""

    state: State
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
        ours = CodeState(State(name=_name_of(here), stamp=stamp(here, left_out)), _code(here, here, only_ours), pythons)
        with _named(against, here, place) as (root, name, digits, others):
            state = State(name=name, stamp=digits or stamp(root, left_out))
            yield CodeState(state, _code(root, here, only_ours), {**pythons, **others}), ours


Named = tuple[Path, str, str | None, Mapping[str, Path]]
"""Folder, name, stamp (None: to be read from the files), other interpreters."""


@contextmanager
def _named(against: str, here: Path, place: Path) -> Iterator[Named]:
    folder = here / against
    if "=" in against and not folder.exists():
        others = interpreters([against])
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
        said = ((done.stderr if done else "").strip().splitlines() or ["no reason given"])[-1]
        raise UsageError(f"git could not check {commit[:_SHORT]} out: {said}", f"Check it out yourself: {_FORMS}")
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


def stamp(root: Path, left_out: Sequence[Path]) -> str:
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
    found = _git(here, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
    return found.strip() if found else None


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
