"""One export for all tests of stages, and a results folder for each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.layout import Models
from tests.fixtures.stages import POLLUTING, TINY, Folder, made_once


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """The tiny modules, exported once for all processes of pytest-xdist. Each gets a copy: tests compile into it."""

    def export(root: Path) -> None:
        folder = Folder(root, Models(root / "models"))
        folder.plan({"backends": ["torch-eager", "onnxruntime"]}, models=(TINY, POLLUTING))
        done = folder("export")
        assert done.returncode == 0, done.stderr

    shared = made_once(tmp_path_factory, "exports", export)
    own = tmp_path_factory.mktemp("exports")
    shutil.copytree(shared / "models", own / "models")
    return Models(own / "models")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the models that test_export.py names in TRAINED, exported once for all processes. To be copied."""
    from tests.fixtures.exporting import TRAINED, run_export, write_plan

    def export(root: Path) -> None:
        write_plan(root / "results", TRAINED)
        done = run_export(root)
        assert (done.returncode, done.stderr) == (0, "")

    return made_once(tmp_path_factory, "trained", export) / "models"


@pytest.fixture(scope="session")
def instructions() -> None:
    """What torch.compile may use of this CPU. It compiles to learn this, again for each new cache folder: here once."""
    from torch._inductor import cpu_vec_isa

    cpu_vec_isa.valid_vec_isa_list()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Folder]:
    """A results folder with a models folder of its own, which must leave no process behind."""
    folder = Folder(tmp_path, Models(tmp_path / "models"))
    yield folder
    assert folder.orphans() == []


@pytest.fixture(autouse=True)
def _nothing_else_is_exported(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that exported a shared module with settings of its own would change what the tests after it measure."""
    if "exports" not in request.fixturenames:
        yield
        return
    root = request.getfixturevalue("exports").root
    before = _export_records(root)
    yield
    after = _export_records(root)
    for path, content in before.items():
        path.write_bytes(content)
    assert after == before, "this test exported into the folder that all tests share: it needs its own"


def _export_records(root: Path) -> dict[Path, bytes]:
    """The record of each model's latest export."""
    return {path: path.read_bytes() for path in sorted(root.glob("*/export.json"))}


@pytest.fixture
def folder(tmp_path: Path, exports: Models) -> Iterator[Folder]:
    """A results folder that must leave no process behind."""
    result = Folder(tmp_path, exports)
    yield result
    assert result.orphans() == []
