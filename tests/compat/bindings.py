"""The vendor's own Python bindings without the library behind them: a wheel of 1.3 MB and a few C functions.

Importing needs only that the names below exist. Nothing can be built or run; what the bindings offer can be asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
VERSIONS = ("10.16.1.11", "11.4.0.106")
"""The newest of 10.16 and of 11.4 on the package index."""

_LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser")
_ENTRY_POINTS = (
    "createInferBuilder_INTERNAL",
    "createInferRefitter_INTERNAL",
    "createInferRuntime_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL",
    "createNvOnnxParser_INTERNAL",
    "getBuilderPluginRegistry",
    "getNvOnnxParserVersion",
    "getPluginRegistry",
    "initLibNvInferPlugins",
)


@dataclass(frozen=True)
class Bindings:
    """One version, ready to be imported by a process of its own."""

    packages: Path
    stubs: Path

    def run(self, *command: str) -> str:
        """Standard output of this interpreter with the bindings on its path; the test fails where it fails."""
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.stubs),
            "PYTHONPATH": os.pathsep.join((str(self.packages), str(ROOT))),
        }
        done = subprocess.run([sys.executable, *command], env=environment, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


def prepare(version: str, cache: Path) -> Bindings:
    """Fetch and unpack the wheel and compile the stubs, or skip with the reason. `cache` keeps them for later tests."""
    bindings = Bindings(cache / version / "packages", cache / version / "stubs")
    with FileLock(cache / f"{version}.lock"):  # of several processes of tests one prepares it
        if not bindings.packages.is_dir():
            _unpack(_wheel(version, cache / version), bindings.packages)
        for library in _LIBRARIES:
            _stub(library, version.partition(".")[0], bindings.stubs)
    return bindings


def _wheel(version: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"]
    done = subprocess.run(
        [*command, str(folder), f"tensorrt-cu13-bindings=={version}"], check=False, capture_output=True, text=True
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
        pytest.skip(f"tensorrt-cu13-bindings {version} could not be fetched from the package index: {reason}")
    return wheels[0]


def _unpack(wheel: Path, target: Path) -> None:
    """Into a folder of another name first: an interrupted test leaves nothing that looks whole."""
    half = target.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    with zipfile.ZipFile(wheel) as file:
        file.extractall(half)
    # Its own name for the bindings; `import tensorrt` comes from a second wheel that fetches the whole library.
    (half / "tensorrt_bindings").rename(half / "tensorrt")
    half.rename(target)


def _stub(library: str, major: str, folder: Path) -> None:
    target = folder / f"lib{library}.so.{major}"
    if target.is_file():
        return
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make the stub libraries with")
    folder.mkdir(parents=True, exist_ok=True)
    source = "".join(f"void *{name}(void) {{ return 0; }}\n" for name in _ENTRY_POINTS)
    command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{target.name}", "-x", "c", "-", "-o", str(target)]
    subprocess.run(command, input=source, text=True, check=True, capture_output=True)
