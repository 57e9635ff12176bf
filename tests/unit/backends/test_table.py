"""The table of backends against the files and libraries that it names."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from harness.backends import BUILT_IN, backend_info
from harness.core.errors import ConfigError
from harness.core.schemas import Device, Precision

ROOT = Path(__file__).parents[3]
NAMES = list(BUILT_IN)


@pytest.mark.parametrize("name", NAMES)
def test_the_target_is_a_class_in_a_file_of_the_backends_name(name: str) -> None:
    module, _, target = BUILT_IN[name].target.partition(":")
    assert module == f"harness.backends.{name.replace('-', '_')}"
    tree = ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text())
    assert target in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def test_no_file_of_a_backend_is_left_out_of_the_table() -> None:
    shared = {"__init__", "base", "batches", "cuda", "cuda_graph", "slowdown", "ran", "onnxruntime_kernels"}
    shared |= {"info", "plugins"}  # what the table is made of
    shared |= {"peaks", "cpu_peaks"}  # what the stage `roof` measures with
    shared |= {"settings", "loads", "onnx_of", "cuda_libraries", "cuda_buffers", "full_memory"}
    shared |= {f"onnxruntime_{part}" for part in ("cuda", "session", "placement")}
    shared |= {f"torch_{part}" for part in ("base", "place", "cpu", "cuda", "cuda_inputs", "graphs", "ran", "computed")}
    files = {path.stem for path in (ROOT / "harness/backends").glob("*.py")} - shared
    assert files == {name.replace("-", "_") for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_what_it_requires_and_preloads_are_modules(name: str) -> None:
    info = backend_info(name)
    for module in info.requires:
        assert "." not in module  # its absence is asked with find_spec, which imports the parents of dotted names
    for module in info.preload:
        root = module.partition(".")[0]
        if importlib.util.find_spec(root) is None:
            pytest.skip(f"{root} is not installed here")
        if root == "harness":
            assert (ROOT / (module.replace(".", "/") + ".py")).is_file()


@pytest.mark.parametrize("name", NAMES)
def test_every_precision_is_offered_or_explained_on_every_device(name: str) -> None:
    info = backend_info(name)
    assert info.precisions
    assert set(info.precisions) <= set(get_args(Device))
    for offered in info.precisions.values():
        assert offered
        for precision in set(get_args(Precision)) - set(offered):
            assert info.not_offered[precision].strip()
    everywhere = set.intersection(*(set(offered) for offered in info.precisions.values()))
    assert not everywhere & set(info.not_offered)


@pytest.mark.parametrize("name", NAMES)
def test_artifacts_are_of_a_known_kind_and_summaries_are_one_line(name: str) -> None:
    info = backend_info(name)
    assert info.artifact in ("module", "onnx", "engine", "none")
    assert info.computes is (info.artifact != "none")
    assert info.summary
    assert "\n" not in info.summary


def test_an_unknown_backend_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="torch-eagr") as caught:
        backend_info("torch-eagr")
    assert "`torch-eager`?" in caught.value.hint


def test_reading_the_table_imports_no_library() -> None:
    code = (
        "import sys, harness.backends; sys.exit(bool({'torch', 'numpy', 'onnxruntime', 'openvino'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
