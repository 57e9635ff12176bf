"""Which Python runs which backend, where libraries do not all fit into one (pure but for a look at the files)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.backends import backend_info
from harness.core.errors import UsageError


def interpreters(texts: Sequence[str]) -> dict[str, Path]:
    """`tensorrt=/opt/trt/bin/python` → path by backend; several may stand in one text, with commas between.

    Raises ConfigError for an unknown backend, UsageError for what is not an executable.
    """
    found: dict[str, Path] = {}
    for text in (part for given in texts for part in given.split(",") if part):
        backend, sign, path = text.partition("=")
        if not sign or not path:
            raise UsageError(
                f"`{text}` is not <backend>=<python>.", "For example: BACKEND_PYTHONS=tensorrt=/opt/trt/bin/python."
            )
        backend_info(backend)
        executable = shutil.which(path)
        if executable is None:
            raise UsageError(f"{path}, named for {backend}, is not an executable.", "Name a Python interpreter.")
        # Not resolved: a virtual environment's python is a link that must be called by its own name.
        found[backend] = Path(os.path.abspath(executable))  # noqa: PTH100
    return found
