"""Allocations of a trace: paired with their frees, by the operator that made them, alive at the peak."""

from __future__ import annotations

from harness.backends.torch.profile_memory import AllocationHistory, watched
from tests.fixtures.memory_events import CPU, CUDA, call, change

CONVOLUTION = [
    call("aten::conv2d", 10, 10, [1, 3, 8, 8], [4, 3, 3, 3]),
    call("aten::mkldnn_convolution", 11, 8),  # inside the one that the model calls
    change(12, 100, 1),
    change(13, 900, 2),
    change(14, -900, 2),  # reordered weights, gone before the operator returns
    call("aten::relu", 30, 5, [1, 4, 8, 8]),
    change(31, 100, 3),
    change(36, -100, 1),
]


def peak(found: AllocationHistory) -> list[tuple[int, str, str | None]]:
    alive = [entry.block() for entry in found.alive(found.peak_place())]
    return [(entry.size_bytes, entry.category, entry.operator) for entry in alive]


def test_memory_that_an_operator_frees_before_it_returns_is_temporary() -> None:
    result = watched(reversed(CONVOLUTION), CPU)
    assert result.running() == [100, 1000, 100, 200, 100]
    assert peak(result) == [(900, "temporaries", "aten::conv2d"), (100, "activations", "aten::conv2d")]
    assert (len(result.blocks), result.frees) == (3, 2)
    assert result.blocks[0].block().shapes == "[1,3,8,8] [4,3,3,3]"


def test_activations_have_a_peak_of_their_own() -> None:
    result = watched(CONVOLUTION, CPU)
    assert max(result.running_of("activations")) == 200
    assert result.running_of("temporaries") == [0, 900, 0, 0, 0]


def test_a_block_outside_every_operator_is_not_attributed() -> None:
    events = [call("forward", 0, 100), call("Torch-Compiled Region: 0/0", 1, 90), change(2, 8, 1), change(3, -8, 1)]
    result = watched(events, CPU)
    assert peak(result) == [(8, "unattributed", None)]
    assert result.running_of("activations") == [0, 0]


def test_an_address_that_is_used_again_is_another_block() -> None:
    result = watched([change(1, 8, 5), change(2, -8, 5), change(3, 16, 5)], CPU)
    assert peak(result) == [(16, "unattributed", None)]
    assert [(block.born, block.freed) for block in result.blocks] == [(0, 1), (2, None)]


def test_frees_of_earlier_memory_are_no_blocks_of_the_pass() -> None:
    result = watched([change(1, -50, 9), change(2, 20, 1)], CPU)
    assert result.running() == [-50, -30]
    assert result.peak_place() == -1
    assert (result.given_back(-1), result.given_back(1)) == (0, 50)
    assert watched([], CPU).peak_place() == -1


def test_only_one_kind_of_memory_is_counted() -> None:
    events = [change(1, 8, 1), change(2, 512, 1, CUDA, reserved=2048), change(3, -512, 1, CUDA, reserved=2048)]
    result = watched(events, CUDA)
    assert (result.running(), result.reserved) == ([512, 0], [2048, 2048])
