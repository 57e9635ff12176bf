"""Which Python runs which backend, where libraries do not all fit into one (pure but for a look at the files)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.backends import BACKENDS
from harness.core.errors import UsageError
from harness.core.names import unknown_name


def interpreters(texts: Sequence[str]) -> dict[str, Path]:
    """`tensorrt=/opt/trt/bin/python` → path by backend; several may stand in one text, with commas between.

    Raises UsageError for an unknown backend and for what is not an executable.
    """
    found: dict[str, Path] = {}
    for text in (part for given in texts for part in given.split(",") if part):
        backend, sign, path = text.partition("=")
        if not sign or not path:
            raise UsageError(
                f"`{text}` is not <backend>=<python>.", "For example: PYTHONS=tensorrt=/opt/trt/bin/python."
            )
        if backend not in BACKENDS:
            raise UsageError(*unknown_name("backend", backend, BACKENDS))
        executable = shutil.which(path)
        if executable is None:
            raise UsageError(f"{path}, named for {backend}, is not an executable.", "Name a Python interpreter.")
        # Not resolved: a virtual environment's python is a link that must be called by its own name.
        found[backend] = Path(os.path.abspath(executable))  # noqa: PTH100
    return found
