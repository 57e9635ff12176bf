"""ONNX → engine at the library's boundary: what the builder gets, and what is shown when it refuses."""

from __future__ import annotations

import ctypes
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import ExportError
from harness.core.schemas import EngineRequest, ShapeProfile
from tests.fixtures import tensorrt, tensorrt_builder
from tests.fixtures.computing_gpu import FakeGpu

MODEL: dict[str, Any] = {"scale": 2.0, "inputs": {"x": "FLOAT"}, "outputs": {"y": "FLOAT"}}
NETWORK = [
    ["conv", "CONVOLUTION"],
    ["norm", "NORMALIZATION"],
    ["softmax", "SOFTMAX"],
    ["mean", "REDUCE"],
    ["square", "ELEMENTWISE", "POW"],
    ["sum", "ELEMENTWISE", "SUM"],
    ["shape mean", "REDUCE", None, "INT32"],
]
PROFILE = ShapeProfile(minimum=(1, 3), optimum=(4, 3), maximum=(8, 3))


def absent(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(ctypes, "CDLL", absent)
    return tensorrt.install(monkeypatch, FakeGpu(), **tensorrt_builder.names())


def build(folder: Path, protect: bool = False, cache: bytes = b"", *, precision: str = "fp16", **model: Any) -> Any:
    onnx = folder / "model.onnx"
    onnx.write_text(json.dumps({**MODEL, **model}))
    request = EngineRequest.model_validate(
        {"onnx": onnx.name, "onnx_sha256": "0", "precision": precision, "profiles": {"x": PROFILE}}
    )
    return importlib.import_module("harness.backends.tensorrt.builder").build(request, onnx, cache, protect)


def test_the_builder_gets_profile_precision_and_explicit_batch(library: Any, tmp_path: Path) -> None:
    built = build(tmp_path)
    ((network, config),) = library.Builder.made
    assert network.flags == 1 << library.NetworkDefinitionCreationFlag.EXPLICIT_BATCH
    assert config.profiles == [{"x": ((1, 3), (4, 3), (8, 3))}]
    assert config.flags == {"FP16"}
    assert config.profiling_verbosity == "DETAILED"
    assert json.loads(built.engine) == MODEL
    assert built.kept_fp32 == ()


@pytest.mark.parametrize(
    ("precision", "flags"), [("fp32", set()), ("tf32", {"TF32"}), ("fp16", {"FP16"})], ids=["fp32", "tf32", "fp16"]
)
def test_tf32_is_on_only_where_it_is_asked_for(library: Any, tmp_path: Path, precision: str, flags: set[str]) -> None:
    build(tmp_path, precision=precision)
    assert library.Builder.made[0][1].flags == flags


def test_a_precision_without_a_flag_is_refused(library: Any, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"TensorRT 8\.6\.0 builds no bf16 engines"):
        build(tmp_path, precision="bf16")
    assert library.Builder.made == []


def test_without_cudnn_the_sources_that_need_it_are_left_out_and_this_is_reported(library: Any, tmp_path: Path) -> None:
    listed = build(tmp_path).builder
    assert library.Builder.made[0][1].sources == 1 << 3 | 1 << 4
    assert listed["tactic_sources"] == "EDGE_MASK_CONVOLUTIONS, JIT_CONVOLUTIONS"


class Library:
    """libcudnn.so.8."""

    def __init__(self, version: int) -> None:
        self._version = version

    def cudnnGetVersion(self) -> int:  # noqa: N802 - the library's own name
        return self._version


@pytest.mark.parametrize(("version", "restricted"), [(8900, False), (1, True)], ids=["real", "a stub"])
def test_a_library_that_does_nothing_is_distinguished_from_a_real_one(
    library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, restricted: bool
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Library(version))
    listed = build(tmp_path).builder
    assert (library.Builder.made[0][1].sources is not None) == restricted
    assert ("JIT" in listed["tactic_sources"]) == restricted


def test_floating_layers_that_may_overflow_are_kept_in_fp32_and_named(library: Any, tmp_path: Path) -> None:
    built = build(tmp_path, protect=True, network=NETWORK)
    assert built.kept_fp32 == ("norm", "softmax", "mean", "square")
    ((network, config),) = library.Builder.made
    assert "OBEY" in config.flags
    for layer in network.layers:
        expected = "FLOAT" if layer.name in built.kept_fp32 else None
        assert (layer.precision, layer.output_type) == (expected, expected)


def test_without_protection_no_layer_is_touched(library: Any, tmp_path: Path) -> None:
    build(tmp_path, network=NETWORK)
    ((network, config),) = library.Builder.made
    assert "OBEY" not in config.flags
    assert [layer.precision for layer in network.layers] == [None] * len(NETWORK)


def test_every_error_of_the_parser_is_shown_with_its_node(library: Any, tmp_path: Path) -> None:
    errors = [[7, "No importer registered for op: Gelu"], [9, "Plugin not found"]]
    with pytest.raises(ExportError, match=r"TensorRT 8\.6\.0 does not read") as caught:
        build(tmp_path, errors=errors)
    for node, text in errors:
        assert f"node {node}: {text}" in caught.value.problem
    assert library.Builder.made == []


def test_a_builder_that_gives_up_is_quoted_whole_without_its_warnings(library: Any, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="built no engine") as caught:
        build(tmp_path, reasons=["Error Code 10", "out of tactics"])
    assert "Error Code 10 | out of tactics" in caught.value.problem
    assert "only a warning" not in caught.value.problem


def test_a_library_that_has_no_builder_gives_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = tensorrt_builder.names(tensorrt_builder.NoBuilder)
    tensorrt.install(monkeypatch, FakeGpu(), **names)
    with pytest.raises(ExportError, match="CUDA initialization failure with error: 35"):
        build(tmp_path)


@pytest.mark.parametrize(
    ("stored", "grown"),
    [(b"", b"+kernels"), (b"old", b"old+kernels"), (b"damaged", b"+kernels"), (b"of another driver", b"+kernels")],
)
def test_timings_of_earlier_builds_are_used_where_they_fit(
    library: Any, tmp_path: Path, stored: bytes, grown: bytes
) -> None:
    assert build(tmp_path, cache=stored).timing_cache == grown
