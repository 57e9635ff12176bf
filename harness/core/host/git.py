"""Runs git in a folder, and reads which commit of Inferometer runs here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import harness


def commit() -> tuple[str | None, bool | None]:
    """The commit, and whether tracked files differ from it; (None, None) outside a checkout."""
    folder = Path(harness.__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return None, None
    head = printed_by_git(folder, "rev-parse", "HEAD")
    changed = printed_by_git(folder, "status", "--porcelain", "--untracked-files=no")
    return (None, None) if head is None or changed is None else (head.strip(), bool(changed.strip()))


def git(folder: Path, *words: str, timeout_s: float = 10) -> subprocess.CompletedProcess[str] | None:
    """Run git in a folder; None where git is missing or does not end in time."""
    command = ["git", "-C", str(folder), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)  # noqa: S603 - a list of words
    except (OSError, subprocess.TimeoutExpired):
        return None


def printed_by_git(folder: Path, *words: str, timeout_s: float = 10) -> str | None:
    """The output of git; None where it fails, too."""
    done = git(folder, *words, timeout_s=timeout_s)
    return done.stdout if done is not None and done.returncode == 0 else None
