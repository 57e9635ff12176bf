"""The current folder of a process that runs a user's code: relative paths begin there."""

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
