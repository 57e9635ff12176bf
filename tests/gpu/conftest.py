"""GPU tests: real cards, real libraries, the stages as a user runs them.

They need the libraries of DEVICE=cuda and skip elsewhere. Run them with `python -m pytest tests/gpu -rs`; where
TensorRT lives in another interpreter, name it first: BACKEND_PYTHONS=tensorrt=/path/to/python (docs/gpu-machine.md).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.core import store
from harness.core.errors import UnavailableError
from harness.core.host import gpu as devices
from harness.core.layout import Models
from harness.core.schemas import Plan, Summary
from tests.fixtures.stages import Folder

CONVOLUTIONAL = "module:tests.fixtures.models:convolutional"


def _missing() -> str | None:
    try:
        devices.require("cuda")
    except UnavailableError as error:
        return error.problem
    absent = [name for name in ("torch", "pycuda") if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = _missing()
    if reason is not None:
        here = str(Path(__file__).parent)
        for item in items:
            if str(item.path).startswith(here):
                item.add_marker(pytest.mark.skip(reason=f"{reason} How to run: docs/gpu-machine.md."))


class Gpu(Folder):
    """The stages of a GPU run in a temporary folder, each a process of its own, as a user runs it."""

    def __call__(self, stage: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a stage to its end. Its seconds are in the output of a test that fails: GPU time is short."""
        start = time.monotonic()
        done = self.subprocess(stage, *arguments)
        sys.stdout.write(f"{stage}: {time.monotonic() - start:.0f} s\n")
        return done

    def bench(self, *blocks: Mapping[str, Any], **more: Any) -> Summary:
        """Plan, export, engines, run, aggregate; cases may fail, stages may not."""
        self.prepare(*blocks, **more)
        self.measured()
        return store.load(self.results.summary, Summary, "make aggregate")

    def prepare(self, *blocks: Mapping[str, Any], **more: Any) -> Plan:
        """Plan, export, engines."""
        more.setdefault("models", (CONVOLUTIONAL,))
        config = self.configure(*blocks, **more)
        self.must("plan", "--config", str(config), "--device", "cuda")
        self.must("export")
        self.must("build_engine", *pythons())
        return store.load(self.results.plan, Plan, "make plan")

    def measured(self) -> subprocess.CompletedProcess[str]:
        """Run and aggregate."""
        done = self("run", *pythons())
        assert done.returncode in (0, 10), done.stderr
        self.must("aggregate")
        return done

    def must(self, stage: str, *arguments: str) -> None:
        """Run a stage that has to succeed."""
        done = self(stage, *arguments)
        assert done.returncode == 0, f"{stage}: {done.stdout}\n{done.stderr}"


def pythons() -> tuple[str, ...]:
    """The option that names other interpreters, where BACKEND_PYTHONS does."""
    given = os.environ.get("BACKEND_PYTHONS")
    return ("--python", given) if given else ()


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """One folder of exports and engines for all tests: an engine takes half a minute to build, and stays valid."""
    return Models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def gpu(tmp_path: Path, exported: Models) -> Gpu:
    return Gpu(tmp_path, exported)


@pytest.fixture
def spoiled(gpu: Gpu, tmp_path: Path) -> Gpu:
    """The same with a copy of the folder, for tests that damage it."""
    gpu.prepare({"backends": ["tensorrt"], "precisions": ["fp16"], "batch_sizes": [4]})
    shutil.copytree(gpu.models.root, tmp_path / "models")
    return Gpu(tmp_path, Models(tmp_path / "models"))


def has(backend_library: str) -> bool:
    """Whether TensorRT (say) is here, or in the interpreter that BACKEND_PYTHONS names for it."""
    result = importlib.util.find_spec(backend_library) is not None
    return result or f"{backend_library}=" in os.environ.get("BACKEND_PYTHONS", "")
