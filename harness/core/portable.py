"""Removes folders of this machine from texts: a published text must not show where its owner keeps files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

from harness.core.schemas import Failed, LoadFailure

_CHECKOUT = Path(__file__).resolve().parents[2]
_END = r"(?![\w.-])"
"""A path ends here or continues below: /home/me is not a parent of /home/me2."""
_BEGIN = r"(?<![\w.~/-])"


def portable(text: str) -> str:
    """The text with paths below the working directory and the checkout made relative, and the home folder as `~`."""
    for root, instead in _roots():
        path = re.escape(root)
        text = re.sub(f"{_BEGIN}{path}/", f"{instead}/" if instead else "", text)
        text = re.sub(f"{_BEGIN}{path}{_END}", instead or ".", text)
    return text


def portable_path(path: str) -> str:
    """A user's path for a record: below the working directory `./…`, below home `~/…`, else unchanged.

    `Path.expanduser` reads both forms.
    """
    given, here, home = Path(path), _here(), _home()
    if not given.is_absolute():
        return path
    if here and given.is_relative_to(here):
        return f"./{given.relative_to(here).as_posix()}"
    return f"~/{given.relative_to(home).as_posix()}" if home and given.is_relative_to(home) else path


F = TypeVar("F", Failed, LoadFailure)


def portable_failure(record: F) -> F:
    """A failed record whose texts name no folder of this machine."""
    return record.model_copy(
        update={name: portable(getattr(record, name)) for name in ("error", "hint", "stderr_tail")}
    )


def _roots() -> list[tuple[str, str]]:
    """(folder, its replacement), inner folders first."""
    folders = {str(root): "" for root in (_here(), _CHECKOUT) if root}
    if home := _home():
        folders.setdefault(str(home), "~")
    return sorted(folders.items(), key=lambda folder: -len(folder[0]))


def _here() -> Path | None:
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return None
    return here if here != Path("/") else None


def _home() -> Path | None:
    try:
        home = Path.home()
    except RuntimeError:  # the home folder is unknown
        return None
    return home if home != Path("/") else None
