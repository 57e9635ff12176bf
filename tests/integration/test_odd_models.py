"""Models of kinds that users have: one that cannot be measured says why and stops no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.layout import Models
from harness.core.schemas import Row
from tests.fixtures.stages import Folder

pytestmark = pytest.mark.stages

ODD = "module:tests.fixtures.odd_models:"
ONE = {"backends": ["torch-eager"]}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Folder]:
    """A results folder with a models folder of its own, which must leave no process behind."""
    found = Folder(tmp_path, Models(tmp_path / "models"))
    yield found
    assert found.orphans() == []


def bench(folder: Folder, *names: str, backends: tuple[str, ...] = ("torch-eager",)) -> dict[str, Row]:
    """Plan, export, run, aggregate and report; by model (of one backend), or `model backend`."""
    folder.plan({"backends": list(backends)}, models=names)
    assert folder("export").returncode in (0, 8, 10)
    ran = folder("run")
    assert ran.returncode in (0, 10), ran.stderr
    rows = folder.summary().rows
    reported = folder("report", "--no-charts")
    assert reported.returncode == 0, reported.stderr
    short = {row.case_id: row.model.removeprefix(ODD) for row in rows}
    return {short[row.case_id] if len(backends) == 1 else f"{short[row.case_id]} {row.backend}": row for row in rows}


def test_what_a_models_code_does_to_its_process_is_its_own_failed_row(own: Folder) -> None:
    names = ("crashing", "leaving", "endless", "exits", "no_exception", "refused_file", "leaving_late", "plain")
    rows = bench(own, *(f"{ODD}{name}" for name in names))
    said = {name: row.reason or row.status for name, row in rows.items()}
    assert "crashed with signal 11" in said["crashing"]
    assert "ended its own process with exit code 0" in said["leaving"]
    assert "RecursionError" in said["endless"]
    assert "SystemExit: there is no GPU here" in said["exits"]
    assert "NoException: not even an Exception" in said["no_exception"]
    assert "Permission denied: '/data/weights.bin'" in said["refused_file"]
    assert "SystemExit: no licence here" in said["leaving_late"]
    assert said["plain"] == "measured"
    crash = own.models.folder(rows["crashing"].case_id.partition("-torch")[0]).failure_log.read_text()
    assert "odd_models.py" in crash
