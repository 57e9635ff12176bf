"""Samples against the wall time that they were taken in, and iterations that are far longer than the others."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest

from harness.aggregation import checks, flags
from harness.core import schemas
from harness.core.schemas import Block, Case, Measured
from harness.timing.modes import MODES
from tests.fixtures.loops import room
from tests.synthetic_results import EFFICIENTNET, case_of, cpu_use, measured

MS = 1_000_000
SYNC = case_of(EFFICIENTNET, "onnxruntime", "fp32", 1)
PIPELINED = SYNC.model_copy(update={"mode": "pipelined"})
OVERLAPPED = PIPELINED.model_copy(update={"device": "cuda", "boundary": "transfer"})
OFFLINE = SYNC.model_copy(update={"mode": "offline"})


def record(samples: tuple[int, ...], blocks: tuple[Block, ...], number: int = 1, **changes: Any) -> Measured:
    wall_ns = 10 * sum(block.wall_ns for block in blocks)
    fields = {"latency_ns": samples, "blocks": blocks, "cpu_use": cpu_use(wall_ns), **changes}
    return measured(SYNC, EFFICIENTNET, number, 120).model_copy(update=fields)


def overlapping(depth: int, batches: int = 40) -> Measured:
    """As its mode would record: each batch begins when the one `depth` before it ends, one ends every 5 ms."""
    samples = tuple(5 * MS * depth - 20_000 for _ in range(batches))
    half = batches // 2
    return record(samples, (Block(iterations=half, wall_ns=5 * MS * half),) * 2)


def times(record: Measured, factor: float) -> Measured:
    return record.model_copy(update={"latency_ns": tuple(int(value * factor) for value in record.latency_ns)})


@pytest.mark.parametrize(("case", "depth"), [(SYNC, 1), (PIPELINED, 2), (OVERLAPPED, 3)])
@pytest.mark.parametrize(("factor", "caps"), [(1.0, None), (4.0, "F"), (0.25, "C")])
def test_samples_add_up_to_the_time_that_they_were_taken_in(
    case: Case, depth: int, factor: float, caps: str | None
) -> None:
    result = flags.mismatch(case, [overlapping(depth), times(overlapping(depth), factor)])
    assert [(entry.flag.name, entry.caps_at) for entry in result] == ([("SAMPLES_MISMATCH", caps)] if caps else [])


class Steady:
    """A backend that takes 5 ms of its own clock a batch, two in flight or one."""

    def __init__(self) -> None:
        self.now_ns, self.done = 0, list[int]()

    def select(self, _index: int) -> None:
        self.now_ns += 20_000

    def infer(self) -> None:
        self.submit()
        self.wait()

    def synchronize(self) -> None:
        pass

    def submit(self) -> None:
        self.done.append(max([self.now_ns, *self.done]) + 5 * MS)

    def wait(self) -> None:
        self.now_ns = max(self.now_ns, self.done.pop(0))


@pytest.mark.parametrize(("mode", "case"), [("sync", SYNC), ("pipelined", PIPELINED)])
@pytest.mark.parametrize("iterations", [1, 2, 20])
def test_the_records_of_a_mode_add_up(
    mode: schemas.ModeName, case: Case, iterations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Steady()
    monkeypatch.setattr("harness.timing.clock.now_ns", lambda: backend.now_ns)
    samples = room()
    block = MODES[mode](backend, 8).block(samples, 0, 0, iterations)
    assert flags.mismatch(case, [record(tuple(samples[: block.iterations]), (block,))]) == []


@pytest.mark.parametrize(
    ("device", "between_ns", "flagged"),
    [("cuda", 25_000, False), ("cuda", 40_000, True), ("cpu", 18_000, False), ("cpu", 20_000, True)],
)
def test_some_time_may_pass_between_short_samples_and_no_more(device: str, between_ns: int, flagged: bool) -> None:
    blocks = (Block(iterations=2_000, wall_ns=2_000 * (100_000 + between_ns)),)
    case = SYNC.model_copy(update={"device": device})
    assert bool(flags.mismatch(case, [record((100_000,) * 2_000, blocks)])) == flagged


@pytest.mark.parametrize(("waited", "left_out", "flagged"), [(0.04, 0.05, True), (0.2, 0.2, False), (0.2, 0.3, True)])
def test_a_starved_process_waits_between_its_samples_too(waited: float, left_out: float, flagged: bool) -> None:
    samples, wall_ns = (5 * MS,) * 100, int(500 * MS / (1 - left_out))
    window = cpu_use(wall_ns, threads=1, waited_ns=int(waited * wall_ns))
    busy = record(samples, (Block(iterations=100, wall_ns=wall_ns),), cpu_use=window, threads=1)
    found, _ = checks.check_rounds(SYNC, checks.timed_rounds([busy], {}, {1: "not watched"}, None))
    names = {entry.flag.name for entry in found}
    assert ("SAMPLES_MISMATCH" in names, "STARVED" in names) == (flagged, waited > 0.05)


def test_blocks_are_not_longer_than_the_process_ran() -> None:
    whole = overlapping(1)
    for seconds, flagged in ((0.2, False), (0.19, True)):
        short = whole.model_copy(update={"cpu_use": cpu_use(int(seconds * 1e9)), "latency_ns": ()})
        assert bool(flags.mismatch(OFFLINE, [short])) == flagged


def test_a_sample_that_belongs_to_no_block_is_a_mismatch() -> None:
    whole = overlapping(1)
    (result,) = flags.mismatch(SYNC, [whole.model_copy(update={"latency_ns": whole.latency_ns[:-1]})])
    assert (result.caps_at, result.flag.detail) == ("F", "round 1: 40 iterations in its blocks and 39 samples")


@pytest.mark.parametrize(
    ("long", "times_longer", "caps"),
    [
        (0, 1, None),
        (5, 5, None),  # scatter
        (5, 40, "C"),  # of a hundred: two thirds of the time
        (1, 12, "B"),
        (1, 60, "C"),  # recompiles once
    ],
)
def test_time_in_long_iterations_is_not_in_the_median(long: int, times_longer: int, caps: str | None) -> None:
    samples = tuple(MS * (times_longer if number < long else 1) for number in range(100))
    blocks = (Block(iterations=100, wall_ns=sum(samples)),)
    result = flags.long_iterations([record(samples, blocks, number) for number in (1, 2, 3)])
    assert [entry.caps_at for entry in result] == ([caps] if caps else [])
    if caps:
        assert f"{long} iterations of more than 5 times the median" in result[0].flag.detail


def test_a_minority_of_rounds_with_long_iterations_costs_the_a_alone() -> None:
    samples = (60 * MS, *(MS,) * 99)
    single = record(samples, (Block(iterations=100, wall_ns=sum(samples)),), 2)
    clean = [overlapping(1).model_copy(update={"round": number}) for number in (1, 3)]
    (result,) = flags.long_iterations([clean[0], single, clean[1]])
    assert (result.caps_at, result.flag.detail[:8]) == ("B", "round 2:")


def test_blocks_of_the_offline_mode_count_as_its_iterations() -> None:
    blocks = tuple(Block(iterations=20, wall_ns=20 * MS * (8 if number == 3 else 1)) for number in range(10))
    (result,) = flags.long_iterations([record((), blocks)])
    assert result.caps_at == "C"
    assert result.flag.detail.startswith("round 1: 20 iterations")


def test_a_block_scatters_less_than_an_iteration_so_that_three_times_its_length_is_long() -> None:
    blocks = tuple(Block(iterations=20, wall_ns=20 * MS * (3 if number == 3 else 1)) for number in range(20))
    (result,) = flags.long_iterations([record((), blocks)])
    assert "more than 2 times the median" in result.flag.detail


def test_the_longest_pause_is_in_a_sample_in_a_gap_or_in_a_block_and_a_usual_pass_is_none() -> None:
    block, slow, long = (Block(iterations=2, wall_ns=wall_ns * MS) for wall_ns in (2, 7, 20))
    assert flags.longest_pause_ns(record((MS, MS), (block,), warmup_ns=(9 * MS,))) == 8 * MS
    assert flags.longest_pause_ns(record((MS, MS), (slow,), warmup_ns=())) == 5 * MS
    assert flags.longest_pause_ns(record((10 * MS, 10 * MS), (long,), warmup_ns=())) == 0
    assert flags.longest_pause_ns(record((), (block, slow, Block(iterations=40, wall_ns=40 * MS)))) == 5 * MS
    # Of one alone it is unknown how long a usual one takes.
    assert flags.longest_pause_ns(record((), (block,))) == 2 * MS
    assert flags.longest_pause_ns(record((MS,), (Block(iterations=1, wall_ns=MS),), warmup_ns=())) == MS


def test_synthetic_records_add_up() -> None:
    result = measured(SYNC, EFFICIENTNET, 1)
    assert list(accumulate(block.iterations for block in result.blocks))[-1] == len(result.latency_ns)
    assert flags.mismatch(SYNC, [result]) == flags.long_iterations([result]) == []
