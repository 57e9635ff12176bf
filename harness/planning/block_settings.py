"""Selects the named settings and threads of each backend for a block of the matrix (pure)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.backends import BackendInfo, backend_info
from harness.core.errors import ConfigError, UsageError
from harness.core.schemas import Case, Device, Kind, Precision
from harness.core.text import unknown_name
from harness.planning.config import MatrixBlock

THREADS = ("1-thread", "2-threads")
"""Examples of the settings that every backend has on a CPU, for a hint."""

Backends = Sequence[tuple[str, BackendInfo]]


def refuse_unknown_settings(block: MatrixBlock, backends: Backends, device: Device, where: str) -> None:
    """Raise ConfigError for a setting that none of the block's backends has, and for settings beside `tune`."""
    known = list(dict.fromkeys(name for _, table in backends for name in table.settings_on(device)))
    for name in block.settings or ():
        if not any(table.has_setting(device, name) for _, table in backends):
            problem, hint = unknown_name("setting", name, [*known, *(THREADS if device == "cpu" else ())])
            raise ConfigError(f"{where}.settings: {problem}", hint)
    if block.settings and block.tune:
        raise ConfigError(
            f"{where}: `tune` tries every setting, and `settings` names some.", "Leave one of the two out."
        )


def settings_of(
    block: MatrixBlock, table: BackendInfo, device: Device, kind: Kind, precision: Precision
) -> tuple[str, ...]:
    """Names of the settings that a backend is measured with, at least one.

    Settings without effect for a kind of model or a precision are left out; a block that names only settings of other
    backends leaves this backend its usual setting.
    """
    fitting = {
        name: setting
        for name, setting in table.settings_on(device).items()
        if kind in setting.kinds and (setting.precisions is None or precision in setting.precisions)
    }
    if block.tune:
        return tuple(name for name, setting in fitting.items() if setting.tried)
    asked = block.settings or ()
    threads = [name for name in asked if name not in table.settings_on(device) and table.has_setting(device, name)]
    return (*(name for name in fitting if name in asked), *threads) or (next(iter(fitting)),)


def threads_of(case: Case, usual: int) -> int:
    """The threads of a case: its setting's number, else the number of every backend in the plan."""
    return backend_info(case.backend).setting(case.device, case.setting).threads or usual


def parse_interpreters(texts: Sequence[str]) -> dict[str, Path]:
    """`tensorrt=/opt/trt/bin/python` → path by backend; one text may have several, separated by commas.

    Raises ConfigError for an unknown backend, UsageError for a path that is not an executable.
    """
    paths: dict[str, Path] = {}
    for text in (part for given in texts for part in given.split(",") if part):
        backend, sign, path = text.partition("=")
        if not sign or not path:
            raise UsageError(
                f"`{text}` is not <backend>=<python>.", "For example: BACKEND_PYTHONS=tensorrt=/opt/trt/bin/python."
            )
        backend_info(backend)
        executable = shutil.which(path)
        if executable is None:
            inside = Path(path) / "bin" / "python"
            hint = f"BACKEND_PYTHONS={backend}={inside}" if inside.is_file() else "Name a Python interpreter."
            raise UsageError(f"{path}, named for {backend}, is not an executable.", hint)
        # Not resolved: a virtual environment's python is a link and must be called by the link's path.
        paths[backend] = Path(os.path.abspath(executable))  # noqa: PTH100
    return paths
