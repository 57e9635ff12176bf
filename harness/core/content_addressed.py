"""Folders named by a hash of their files: written under a temporary name, then renamed, and never changed afterwards.

A reader of such a folder needs no lock, and two writers of the same content produce a single folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.core.store import sha256_file, translate_storage_errors

DIGITS = 16
_STAGED = ".exporting-"


@contextmanager
def staging_folder(home: Path) -> Iterator[Path]:
    """A new folder below home for the life of the block. First removes the staging folders of killed processes."""
    with translate_storage_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        for path in home.glob(f"{_STAGED}*"):
            with _locked(path) as free:
                if free:
                    shutil.rmtree(path, ignore_errors=True)
        staged = Path(tempfile.mkdtemp(prefix=_STAGED, dir=home))
        mask = os.umask(0)
        os.umask(mask)
        staged.chmod(0o777 & ~mask)  # mkdtemp makes it private
    try:
        with _locked(staged):
            yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the folder's lock, which the kernel frees when its holder dies; False where another process holds it."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # deleted meanwhile
        yield False
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def content_name(folder: Path, *besides: str) -> str:
    """The name of a folder: a hash of its files by path, and of the words in `besides`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{path.relative_to(folder).as_posix()} {sha256_file(path)}" for path in files]
    return hashlib.sha256("\n".join([*besides, *lines]).encode()).hexdigest()[:DIGITS]


def publish(staged: Path, target: Path) -> None:
    """Rename a staged folder to its final name. Raises FileExistsError where that folder already exists."""
    with translate_storage_errors(target):
        try:
            staged.rename(target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise FileExistsError(str(target)) from error
            raise


def share_equal_files(staged: Path, others: Iterable[Path]) -> None:
    """Hard-link each file that another folder has with the same name and content, to save space.

    Where the file system has no hard links, the copies stay.
    """
    for other in others:
        for path in (path for path in staged.rglob("*") if path.is_file()):
            twin = other / path.relative_to(staged)
            if not twin.is_file() or twin.is_symlink() or twin.stat().st_size != path.stat().st_size:
                continue
            if path.samefile(twin) or sha256_file(path) != sha256_file(twin):
                continue
            linked = path.with_name(f".{path.name}.linked")
            with contextlib.suppress(OSError):
                os.link(twin, linked)
                linked.replace(path)
