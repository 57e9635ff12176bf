"""Which commit of Inferometer runs here."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit() -> tuple[str | None, bool | None]:
    """Commit and whether tracked files differ from it; (None, None) outside a checkout."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None, None
    try:
        head = _output(folder, "rev-parse", "HEAD").strip()
        changed = _output(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None, None
    return head, bool(changed.strip())


def _output(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout  # noqa: S603 - fixed words
