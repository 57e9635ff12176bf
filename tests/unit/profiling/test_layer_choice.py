"""Which layers a table shows, and that no time gets lost by choosing."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.schemas.profile_record import LayerRow
from harness.profiling.layers import (
    LayerChoice,
    chosen_layers,
    matches,
    near_names,
    total_ns,
    unmatched_words,
)


def layer(name: str, kind: str, self_ns: int, parent: str | None = None, depth: int = 0, **more: Any) -> LayerRow:
    return LayerRow(name=name, kind=kind, self_ns=self_ns, total_ns=self_ns, parent=parent, depth=depth, **more)


TREE = (
    layer("(model)", "Encoder", 1, flops=100),
    layer("model", "BertModel", 2, "(model)", 1, flops=100),
    layer("model.layer.0", "BertLayer", 4, "model", 2, flops=70),
    layer("model.layer.0.attention", "BertAttention", 8, "model.layer.0", 3, flops=30, group="attention"),
    layer("model.layer.0.attention.norm", "LayerNorm", 16, "model.layer.0.attention", 4, group="normalisation"),
    layer("model.layer.0.output", "BertOutput", 32, "model.layer.0", 3, flops=40, group="mlp"),
    layer("model.layer.10", "BertLayer", 64, "model", 2, flops=30),
)
GRAPH = (
    layer("node_1", "MatMul", 5, "model.layer.0.attention", group="attention"),
    layer("node_2", "Gelu", 7, "model.layer.0.output", group="mlp"),
    layer("Reorder_1", "Reorder", 11, group="layout"),
)


def names(choice: LayerChoice, layers: tuple[LayerRow, ...] = TREE) -> list[str]:
    return [row.name for row in chosen_layers(layers, choice)]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("attention", ["model.layer.0.attention"]),  # a group: its normalisation has its own
        ("BertLayer", ["model.layer.0", "model.layer.10"]),
        ("Bert*put", ["model.layer.0.output"]),
        ("layer.1", []),
        ("layer.10", ["model.layer.10"]),
        ("layer.1*", ["model.layer.10"]),
        ("layer.0.attention", ["model.layer.0.attention", "model.layer.0.attention.norm"]),
        ("model.layer.0*", [row.name for row in TREE if row.name.startswith("model.layer.0")]),
        ("layer.*.norm", ["model.layer.0.attention.norm"]),
        ("bertlayer", []),
    ],
)
def test_words_are_groups_classes_and_paths(word: str, expected: list[str]) -> None:
    assert names(LayerChoice((word,))) == expected


def test_nodes_of_a_graph_are_chosen_by_their_module_and_their_own_name() -> None:
    assert names(LayerChoice(("layer.0",)), GRAPH) == ["node_1", "node_2"]
    assert names(LayerChoice(("node_2", "layout")), GRAPH) == ["node_2", "Reorder_1"]
    assert not matches(GRAPH[2], "model")


@pytest.mark.parametrize("depth", range(6))
def test_a_depth_loses_no_time_and_no_flops(depth: int) -> None:
    result = chosen_layers(TREE, LayerChoice(depth=depth))
    assert total_ns(result) == total_ns(TREE)
    assert sum(row.flops or 0 for row in result) == 100
    assert max(row.depth for row in result) == min(depth, 4)


def test_without_a_choice_rows_keep_their_time_and_have_their_own_flops() -> None:
    results = {row.name: row for row in chosen_layers(TREE)}
    assert [row.self_ns for row in results.values()] == [row.self_ns for row in TREE]
    assert results["model.layer.0"].flops == 0
    assert results["model.layer.10"].flops == 30
    assert results["model.layer.0.attention.norm"].flops is None


def test_words_and_a_depth_show_where_the_matching_time_is() -> None:
    (result,) = chosen_layers(TREE, LayerChoice(("attention",), depth=2))
    assert (result.name, result.self_ns, result.flops, result.group) == ("model.layer.0", 8, 30, "attention")
    (mixed,) = chosen_layers(TREE, LayerChoice(("attention", "mlp"), depth=2))
    assert (mixed.self_ns, mixed.flops, mixed.group) == (40, 70, "other")


def test_a_graph_has_no_depth() -> None:
    assert chosen_layers(GRAPH, LayerChoice(depth=0)) == GRAPH


def test_a_word_counts_as_known_where_any_profile_has_it() -> None:
    words = ("MatMul", "BertLayer", "pooling", "layr.0")
    assert unmatched_words(words, (TREE, GRAPH)) == ["pooling", "layr.0"]
    assert unmatched_words(words, ()) == list(words)


@pytest.mark.parametrize(
    ("word", "nearest"),
    [("atention", "attention"), ("bertlayer", "BertLayer"), ("model.layr.*", "model.layer.*"), ("matmull", "MatMul")],
)
def test_near_names_come_nearest_first(word: str, nearest: str) -> None:
    assert near_names(word, (TREE, GRAPH))[0] == nearest


def test_near_names_are_the_groups_where_none_is_near() -> None:
    assert near_names("zzzz", (GRAPH,)) == ["attention", "mlp", "layout"]
    assert near_names("zzzz", ()) == []
