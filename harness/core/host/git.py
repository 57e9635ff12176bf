"""Runs git in a folder, and reads which commit of Inferometer runs here."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

import harness

TIMEOUT_S = 60.0
"""Reading a checkout from a cold, busy disk takes many seconds; a longer call hangs."""


class Commit(NamedTuple):
    """The commit, and whether tracked files differ from it. missing: why both are unknown although there is a checkout;
    None where they are known, and where there is no checkout."""

    head: str | None = None
    changed: bool | None = None
    missing: str | None = None


def commit(timeout_s: float = TIMEOUT_S) -> Commit:
    """The commit of Inferometer's own checkout, if it has one."""
    folder = Path(harness.__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return Commit()
    answers = list[str]()
    for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no")):
        done = git(folder, *words, timeout_s=timeout_s)
        if done is None:
            return Commit(missing=f"git is not installed, or did not end within {timeout_s:g} s")
        if done.returncode != 0:
            return Commit(missing=f"`git {words[0]}` failed with exit code {done.returncode}")
        answers.append(done.stdout.strip())
    head, changed = answers
    return Commit(head, bool(changed))


def git(folder: Path, *words: str, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str] | None:
    """Run git in a folder; None where git is missing or does not end in time."""
    command = ["git", "-C", str(folder), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)  # noqa: S603 - a list of words
    except (OSError, subprocess.TimeoutExpired):
        return None


def printed_by_git(folder: Path, *words: str, timeout_s: float = TIMEOUT_S) -> str | None:
    """The output of git; None where it fails, too."""
    done = git(folder, *words, timeout_s=timeout_s)
    return done.stdout if done is not None and done.returncode == 0 else None
