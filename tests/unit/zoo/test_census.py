"""The elements of a file's weights by type."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")

from harness.zoo.onnx.torch_to_onnx import dtype_census, value_census
from tests.fixtures import odd_onnx as files


def test_weights_are_counted_wherever_a_file_keeps_them(tmp_path: Path) -> None:
    assert dtype_census(files.linear(tmp_path / "initializers.onnx")) == {"float": 32}
    assert dtype_census(files.with_nodes_for_weights(tmp_path / "nodes.onnx")) == {"int8": 32, "float": 1}
    assert dtype_census(files.with_function(tmp_path / "function.onnx")) == {"float": 32}


def test_values_are_counted_only_where_no_weight_is_a_float(tmp_path: Path) -> None:
    assert value_census(files.with_function(tmp_path / "function.onnx")) == {}
    assert value_census(files.pooling(tmp_path / "pooling.onnx")) == {"float": 1}
    assert value_census(files.with_nodes_for_weights(tmp_path / "nodes.onnx")) == {"float": 2}
