"""The package as `make wheel` builds it, in an environment of its own: whole, and at work outside the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.fixtures.stages import ROOT, two_lines

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in ("harness", "configs"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [*PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(source / "dist"), "."]
    done = subprocess.run(command, cwd=source, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (result,) = (source / "dist").glob("inferometer-*.whl")
    return result


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `inferometer` of an environment that has the wheel, and the libraries of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    install = ["--python", str(python), "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    done = subprocess.run([*PIP, *install], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (site,) = folder.glob("lib/python*/site-packages")
    # A path in a .pth file is only searched: an editable installation that lies there does not come along.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin/inferometer"


def run(command: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "INFEROMETER_FRONT")}
    return subprocess.run(
        [str(command), *arguments], cwd=folder, env=env, check=False, capture_output=True, text=True, timeout=900
    )


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "harness", "configs"],  # noqa: S607
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    files = [name for name in listed if (ROOT / name).is_file() and not name.endswith(".md")]
    wanted = {name if name.startswith("harness/") else f"harness/{name}" for name in files}
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert len(wanted) > 300
    assert wanted <= packed
    assert not [name for name in packed if name.startswith(("tests/", "build/"))]


def test_the_command_plans_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    assert run(installed, tmp_path, "--help").stdout.startswith("Usage: inferometer <command>")
    assert run(installed, tmp_path, "--version").stdout.startswith("inferometer 0.")
    done = run(installed, tmp_path, "plan", "--config", "smoke", "--results", "my run", "--backends", "noop")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "my run/plan.json").read_text())["config"] == "smoke"
    assert (tmp_path / "my run/command.txt").read_text().startswith("inferometer plan ")
    # Its hints can be typed as they are.
    _, hint = two_lines(run(installed, tmp_path, "report", "--results", "my run"))
    assert hint == "Hint:  Run `inferometer aggregate --results 'my run'` first."


def test_the_default_configuration_comes_with_the_package(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "bench", "no-such-model", "--results", "r")
    assert done.returncode == 2
    assert two_lines(done)[0] == "Error: Unknown model `no-such-model`."


def test_the_plan_reports_a_missing_library(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    for name, problem in (("modle.onnx", "There is no file modle.onnx."), ("./folder", "There is no folder folder.")):
        done = run(installed, tmp_path, "bench", name, "--config", "smoke")
        assert done.returncode == 3
        error, hint = two_lines(done)
        assert error == f"Error: {problem}"
        assert ("Did you mean model.onnx?" in hint) is name.endswith(".onnx")
    assert not (tmp_path / "results/plan.json").exists()
