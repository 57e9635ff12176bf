"""Device samples and blocks of a row's processes → its figures."""

from __future__ import annotations

from typing import Any

import pytest

from harness.aggregation.row import device_times_of, hidden_share
from harness.core.schemas import Block, Clock, DeviceSamples, Measured, Row
from tests import synthetic_results as made

CASE = made.case_of(made.RESNET, "torch-eager", "fp32", 4)
EVENTS = Clock(name="CUDA events", resolution_ns=500.0, overhead_ns=1_200)


def samples(*device: int, **more: Any) -> DeviceSamples:
    return DeviceSamples(clock=EVENTS, device_ns=device, enqueue_ns=more.pop("enqueue", device), **more)


def record(number: int, device: DeviceSamples | None, **changes: Any) -> Measured:
    return made.measured(CASE, made.RESNET, number, device=device, **changes)


def test_a_row_is_the_median_of_process_medians_not_of_pooled_samples() -> None:
    rounds = [(10, 10, 10), (14, 14, 14, 14, 14, 14, 14), (11, 11, 90)]
    device = device_times_of([record(n, samples(*values, enqueue=(n,))) for n, values in enumerate(rounds, 1)], "sync")
    assert device is not None
    assert (device.device, device.enqueue, device.clock) == (11, 2, EVENTS)
    assert device.device_ci95 is not None
    assert device.device_ci95.low < 11 < device.device_ci95.high
    assert (device.h2d, device.compute, device.d2h, device.overlap) == (None,) * 4


def test_one_process_has_no_interval() -> None:
    device = device_times_of([record(1, samples(10, 12, 11))], "sync")
    assert device is not None
    assert (device.device, device.device_ci95) == (11, None)


def test_the_parts_of_the_transfer_boundary_are_medians_as_well() -> None:
    parts = {"h2d_ns": (1, 3, 2), "compute_ns": (5, 5, 5), "d2h_ns": (4, 4, 9)}
    device = device_times_of([record(n, samples(10, 12, 16, **parts)) for n in (1, 2)], "sync")
    assert device is not None
    assert (device.h2d, device.compute, device.d2h) == (2, 5, 4)


@pytest.mark.parametrize(
    ("batch", "compute", "copies", "share"),
    [
        (100, 100, 40, 1.0),  # a batch takes what its pass takes
        (130, 100, 40, 0.25),  # 30 of the copies' 40 come on top
        (140, 100, 40, 0.0),  # one after the other
        (170, 100, 40, 0.0),  # and 30 in which nothing ran
        (99, 100, 40, 1.0),  # two clocks, two roundings
        (60, 20, 80, 0.5),  # the longer copy is the limit
        (100, 100, 0, None),  # nothing is copied
    ],
)
def test_copies_are_hidden_as_far_as_they_do_not_make_a_batch_longer(
    batch: float, compute: float, copies: float, share: float | None
) -> None:
    assert hidden_share(batch, compute, copies) == share


def test_the_hidden_share_of_a_row_comes_from_all_blocks_and_is_the_median_of_processes() -> None:
    parts = {"h2d_ns": (20, 30, 25), "compute_ns": (100, 100, 400), "d2h_ns": (15, 15, 15)}

    def process(number: int, *walls: int) -> Measured:
        blocks = tuple(Block(iterations=10, wall_ns=wall) for wall in walls)
        return record(number, samples(150, 150, 150, **parts), blocks=blocks)

    records = [process(1, 1_100, 1_300), process(2, 1_300), process(3, 1_400)]  # 120, 130 and 140 a batch
    device = device_times_of(records, "pipelined")
    assert device is not None
    assert device.overlap == pytest.approx(1 - 30 / 40)
    sync = device_times_of(records, "sync")
    assert sync is not None
    assert sync.overlap is None
    compute = device_times_of([record(1, samples(10, 12, 11))], "pipelined")
    assert compute is not None
    assert compute.overlap is None


def test_offline_blocks_count_by_their_batches() -> None:
    def blocks(*times: tuple[int, int, int]) -> tuple[Block, ...]:
        return tuple(Block(iterations=n, wall_ns=d + 9, device_ns=d, enqueue_ns=e) for n, d, e in times)

    first = record(1, samples(), latency_ns=(), blocks=blocks((10, 1_000, 50), (30, 2_000, 150)))
    other = record(2, samples(), latency_ns=(), blocks=blocks((10, 950, 40)))
    device = device_times_of([first, other], "sync")
    assert device is not None
    assert (device.device, device.enqueue) == ((75 + 95) / 2, (5 + 4) / 2)


def test_without_a_gpu_there_are_none() -> None:
    assert device_times_of([record(1, None), record(2, None)], "sync") is None
    assert device_times_of([record(1, samples(), latency_ns=())], "sync") is None  # nothing was timed


def test_the_summary_has_them_and_their_conclusions() -> None:
    def on_gpu(case: Any, record_on_host: Measured) -> Measured:
        device = tuple(value - 9_000 for value in record_on_host.latency_ns)
        return record_on_host.model_copy(update={"device": samples(*device)})

    (row,) = made.Synthetic(models=(made.RESNET,), cases=[CASE], change=on_gpu).summary().rows
    assert isinstance(row, Row)
    assert row.device_ns is not None
    assert row.latency_ns is not None
    assert row.device_ns.device == pytest.approx(row.latency_ns.median - 9_000)
    assert "ENQUEUE_BOUND" in {flag.name for flag in row.flags}


def test_the_summary_says_how_much_of_the_copies_was_hidden() -> None:
    case = CASE.model_copy(update={"device": "cuda", "boundary": "transfer", "mode": "pipelined"})

    def on_gpu(case: Any, record_on_host: Measured) -> Measured:
        count = len(record_on_host.latency_ns)
        each = sum(block.wall_ns for block in record_on_host.blocks) / sum(
            block.iterations for block in record_on_host.blocks
        )
        # A quarter of the copies' time is missing between the pass and what a batch takes.
        parts = {"h2d_ns": (8_000,) * count, "compute_ns": (round(each) - 3_000,) * count, "d2h_ns": (4_000,) * count}
        return record_on_host.model_copy(update={"device": samples(*record_on_host.latency_ns, **parts)})

    (row,) = made.Synthetic(models=(made.RESNET,), cases=[case], change=on_gpu).summary().rows
    assert row.void is not None, "the record is of a CPU"
    assert row.void.device_ns is not None
    assert row.void.device_ns.overlap == pytest.approx(0.75, abs=0.001)


def test_a_row_of_a_cpu_is_as_it_was() -> None:
    (row,) = made.Synthetic(models=(made.RESNET,), cases=[CASE]).summary().rows
    assert (row.device_ns, row.flags, row.grade) == (None, (), "A")
