"""bundle and verify after a real run: packed from the files of the stages, verified from the archive alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core import archive, store
from harness.core.layout import BUNDLE_MANIFEST
from harness.core.schemas import Bundle
from tests.fixtures.stages import ROOT, Folder

pytestmark = pytest.mark.stages


def verify(path: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.verify", "--bundle", str(path)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_a_real_run_is_packed_and_comes_out_again_with_its_charts(folder: Folder, tmp_path: Path) -> None:
    plan = folder.plan({"backends": ["torch-eager", "onnxruntime"]}, rounds=2)
    for stage in ("run", "aggregate", "report", "bundle"):
        done = folder(stage)
        assert done.returncode == 0, done.stderr
    packed = folder.results.bundle(plan.plan_id)
    elsewhere = tmp_path / "elsewhere.tar.xz"
    shutil.move(packed, elsewhere)
    shutil.rmtree(folder.results.root)  # nothing but the archive may be needed
    done = verify(elsewhere, ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "results/charts/overview.png" in done.stdout
    files = archive.unpack(elsewhere)
    manifest = store.parse(elsewhere, files[BUNDLE_MANIFEST], Bundle, "make bundle")
    assert manifest.command is not None
    assert "--config" in manifest.command
    assert {"config.yaml", "constraints.txt"} <= set(files)


def test_a_damaged_archive_is_two_lines_and_the_exit_code_of_formats(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.xz"
    path.write_bytes(b"not an archive at all")
    done = verify(path, ROOT)
    assert done.returncode == 4
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["Error", "Hint"]
