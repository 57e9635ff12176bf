"""NVTX ranges as Nsight Systems gets them: by a real library that NVTX loads into the process. Needs no GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

ROOT = Path(__file__).parents[2]
HEADER = "nvtx3/nvToolsExt.h"
PLACES = (*(Path(sys.prefix) / "lib").glob("python*/site-packages/nvidia/*/include"), Path("/usr/local/cuda/include"))

TWO_PASSES = """
import torch
from harness.backends.torch.profile_modules import nvtx_ranges
module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.ReLU()))
with nvtx_ranges(module):
    module(torch.ones(1, 2))
module(torch.ones(1, 2))
"""


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    include = next((place for place in PLACES if (place / HEADER).is_file()), None)
    compiler = shutil.which("cc") or shutil.which("gcc")
    if include is None or compiler is None or torch.version.cuda is None:
        pytest.skip(f"needs a C compiler, {HEADER} and a torch that was built for CUDA")
    library = tmp_path / "tool.so"
    source = ROOT / "tests/fixtures/nvtx_tool.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-I", include, source, "-o", library], check=True)
    return library


def test_a_tool_gets_every_module_inside_its_parents_and_nothing_afterwards(tool: Path, tmp_path: Path) -> None:
    log = tmp_path / "ranges.txt"
    environment = {**os.environ, "NVTX_INJECTION64_PATH": str(tool), "NVTX_TOOL_LOG": str(log)}
    subprocess.run([sys.executable, "-c", TWO_PASSES], cwd=ROOT, env=environment, check=True)
    assert log.read_text().split() == ["(model)", "0", "pop", "1", "1.0", "pop", "pop", "pop"]
