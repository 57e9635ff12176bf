"""What an engine's own inspector proves about the precision that it computes in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.backends.tensorrt.layers import precision_of, read_layers, weight_precisions

M = 1_000_000


class Engine:
    """Replaces an ICudaEngine: its inspector answers as TensorRT does."""

    def __init__(self, layers: list[Any]) -> None:
        self.text = json.dumps({"Layers": layers, "Bindings": ["image"]})

    def create_engine_inspector(self) -> Engine:
        return self

    def get_engine_information(self, wanted: str) -> str:
        assert wanted == "JSON"
        return self.text


def convolution(kind: str) -> dict[str, Any]:
    return {"Name": "conv", "LayerType": "CaskConvolution", "Weights": {"Type": kind, "Count": 9408}}


MYELIN = {"Name": "{ForeignNode[a...b]}", "LayerType": "Myelin", "Inputs": []}
COPY = {"Name": "Reformatting CopyNode", "LayerType": "Reformat", "Weights": {"Type": "Float", "Count": 0}}


def census(*layers: Any) -> dict[str, int]:
    return weight_precisions(read_layers(Engine(list(layers)), "JSON"))


def test_layers_with_weights_are_counted_by_their_type_and_others_not() -> None:
    results = census(convolution("Half"), convolution("Half"), convolution("Float"), convolution("Int8"), COPY)
    assert results == {"fp16": 2, "fp32": 1, "int8": 1}


def test_compiled_nodes_are_counted_by_type_or_name() -> None:
    assert census(MYELIN, "{ForeignNode[a...b]}", "a name alone") == {"fused": 2}


def test_a_type_that_is_not_known_keeps_its_own_name() -> None:
    assert census(convolution("FP4")) == {"FP4": 1}


@pytest.mark.parametrize(
    ("found", "asked", "shown"),
    [
        ({"fp16": 50, "fp32": 3}, "fp16", "fp16"),
        ({"fp16": 3, "fp32": 50}, "fp16", "fp32"),
        ({"fp32": 53}, "fp32", "fp32"),
        ({"fp32": 53}, "tf32", "tf32"),
        ({"fp16": 53}, "fp32", "fp16"),
        ({"int8": 40, "fp16": 13}, "int8", "int8"),
    ],
)
def test_most_layers_with_weights_decide(found: dict[str, int], asked: str, shown: str) -> None:
    assert precision_of(found, asked, engine_bytes=1, parameters=None) == shown


@pytest.mark.parametrize(
    ("bytes_a_weight", "asked", "shown"),
    [(2.1, "fp16", "fp16"), (4.2, "fp16", "fp32"), (4.2, "fp32", "fp32"), (4.2, "tf32", "tf32"), (2.1, "fp32", "fp16")],
)
def test_of_a_fused_engine_the_size_of_its_weights_decides(bytes_a_weight: float, asked: str, shown: str) -> None:
    assert precision_of({"fused": 1}, asked, int(bytes_a_weight * 110 * M), parameters=110 * M) == shown
    assert precision_of({"fused": 1, "fp32": 1}, asked, int(bytes_a_weight * 110 * M), parameters=110 * M) == shown


def test_tables_that_are_only_looked_up_may_lie_in_fp32() -> None:
    tables, multiplied = 12 * M, 11 * M
    mixed = 4 * tables + 2 * multiplied + 4096
    assert precision_of({"fused": 1}, "fp16", mixed, tables + multiplied, looked_up=tables) == "fp16"
    assert precision_of({"fused": 1}, "fp16", mixed, tables + multiplied) == "fp32"
    assert precision_of({"fused": 1}, "fp16", 4 * (tables + multiplied), tables + multiplied, tables) == "fp32"


def test_a_fused_engine_of_unknown_weights_passes_for_nothing() -> None:
    assert precision_of({"fused": 1}, "fp16", 220 * M, parameters=None).startswith("unknown")
