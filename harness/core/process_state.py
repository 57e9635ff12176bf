"""The current folder, where relative paths begin, and the environment of a process while it runs other code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def stay_here() -> Iterator[None]:
    """Around a user's code, which may make another folder the current one: afterwards it is the same as before.

    contextlib.chdir does the same from Python 3.11 on; TensorRT 8.6 needs Python 3.10.
    """
    here = Path.cwd()
    try:
        yield
    finally:
        os.chdir(here)


@contextmanager
def variable_set(name: str, value: str) -> Iterator[None]:
    """An environment variable has this value; afterwards it is the same as before."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
