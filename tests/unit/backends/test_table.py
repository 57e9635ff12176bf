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


def classes(module: str) -> dict[str, ast.ClassDef]:
    tree = ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("name", NAMES)
def test_the_target_is_a_class_in_a_file_of_the_backends(name: str) -> None:
    module, _, target = BUILT_IN[name].target.partition(":")
    assert module.startswith("harness.backends.")
    assert target in classes(module)


def test_no_class_that_infers_is_left_out_of_the_table() -> None:
    targets = {target for info in BUILT_IN.values() for target in (info.target, *info.targets.values())}
    shared = {"Backend", "TorchBackend", "SpinOnGpu", "DecoderPhase", "TimedPass"}
    """What backends inherit, the form of spin that it makes by itself, and the passes that profilers time."""
    modules = (
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "harness/backends").rglob("*.py")
    )
    results = {
        f"{module}:{name}"
        for module in modules
        for name, node in classes(module).items()
        if name not in shared and any(isinstance(part, ast.FunctionDef) and part.name == "infer" for part in node.body)
    }
    assert results
    assert results <= targets


@pytest.mark.parametrize("name", NAMES)
def test_its_required_and_preloaded_names_are_modules(name: str) -> None:
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
    assert info.precisions or info.decoder_precisions
    assert {*info.precisions, *(info.decoder_precisions or {})} <= set(get_args(Device))
    for offered in info.precisions.values():
        assert offered
        for precision in set(get_args(Precision)) - {*offered, "int4"}:  # int4 is of generation alone
            assert info.not_offered[precision].strip()
    everywhere = set.intersection(*map(set, info.precisions.values())) if info.precisions else set()
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
