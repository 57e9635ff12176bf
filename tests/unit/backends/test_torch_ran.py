"""The words for what PyTorch ran: only what was asked for, and nothing less, passes for the label."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from harness.backends.torch.readback import (
    Compiled,
    compiled_of,
    gpu_precision,
    with_shortfalls,
)


@pytest.mark.parametrize(
    ("floating", "matmul", "convolution", "word"),
    [
        (["fp32"], False, False, "fp32"),
        (["fp32"], True, True, "tf32"),
        (["fp32"], True, False, "fp32+tf32"),
        (["fp32"], False, True, "fp32+tf32"),
        (["fp16"], True, True, "fp16"),
        (["fp16", "fp32"], True, True, "fp16+fp32"),
    ],
)
def test_fp32_is_fp32_only_where_no_switch_allows_tf32(
    floating: list[str], matmul: bool, convolution: bool, word: str
) -> None:
    assert gpu_precision(floating, matmul_tf32=matmul, convolution_tf32=convolution) == word


def test_one_graph_recorded_once_falls_short_of_nothing() -> None:
    assert Compiled(graphs=1, breaks=0).shortfalls() == ()
    assert Compiled(graphs=1, breaks=0).eager_parts() is None
    assert Compiled(graphs=1, breaks=0, recorded=1, recorded_before=1).shortfalls() == ()
    assert with_shortfalls("fp16", ()) == "fp16"


@pytest.mark.parametrize(
    ("compiled", "said"),
    [
        (Compiled(graphs=1, breaks=0, recorded=0, recorded_before=0), ("its CUDA graph was skipped",)),
        (Compiled(graphs=1, breaks=0, skips=1, recorded=1, recorded_before=1), ("its CUDA graph was skipped",)),
        (Compiled(graphs=1, breaks=0, recorded=9, recorded_before=1), ("CUDA graphs were recorded while timing",)),
    ],
)
def test_anything_less_is_said_and_passes_for_no_precision(compiled: Compiled, said: tuple[str, ...]) -> None:
    assert compiled.shortfalls() == said
    assert with_shortfalls("fp16", said) not in ("fp16", "")


@pytest.mark.parametrize(
    ("compiled", "said"),
    [
        (Compiled(graphs=0, breaks=0), "nothing was compiled (by default PyTorch compiles no RNN, GRU or LSTM)"),
        (Compiled(graphs=2, breaks=1), "1 graph breaks and 2 graphs compiled for one shape"),
        (Compiled(graphs=8, breaks=0), "8 graphs compiled for one shape"),
        (Compiled(graphs=1, breaks=1, recorded=1, recorded_before=1), "1 graph breaks"),
    ],
)
def test_more_than_one_graph_for_one_shape_ran_eagerly_in_part(compiled: Compiled, said: str) -> None:
    assert compiled.eager_parts() == said


def test_counters_are_read_by_dynamos_names_and_absent_ones_count_nothing() -> None:
    counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
    assert compiled_of(counters) == Compiled(graphs=0, breaks=0)
    counters["stats"]["unique_graphs"] = 2
    counters["graph_break"]["print"] = 3
    counters["inductor"].update({"cudagraph_skips": 1, "cudagraph_recorded_non_static_inputs": 2})
    assert compiled_of(counters, 4, 5) == Compiled(2, 3, skips=1, input_copies=2, recorded=4, recorded_before=5)


def test_cuda_graphs_are_in_the_row_only_where_they_were_requested() -> None:
    assert Compiled(graphs=1, breaks=0).settings() == {"graphs": 1, "graph_breaks": 0}
    assert Compiled(graphs=1, breaks=0, input_copies=2, recorded=1).settings()["cuda_graph_input_copies"] == 2
