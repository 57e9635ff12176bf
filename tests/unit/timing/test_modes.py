"""Pipelined and offline against a device that works behind the submitting thread, on a clock that only work moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.timing import clock, loop
from harness.timing.loop import measure, warm_up
from harness.timing.modes import (
    MODES,
    Mode,
    Offline,
    Pipelined,
    Sync,
)
from tests.fixtures.loops import room, settings

MS = 1_000_000
WORK_NS = 10 * MS
SUBMIT_NS = MS // 10
SELECT_NS = MS // 20


class Device:
    """A queue that is worked off one after the other, each taking work(n); submitting and choosing cost host time."""

    def __init__(self, work: Callable[[int], int] = lambda number: WORK_NS) -> None:
        self.work = work
        self.now_ns = 0
        self.free_at = 0
        self.queue: list[int] = []
        self.most_in_flight = 0
        self.submitted: list[int] = []
        self.done: list[int] = []
        self.waits = 0
        self.clock_reads: list[int] = []
        self._selected = -1

    def read(self) -> int:
        self.clock_reads.append(len(self.submitted))
        return self.now_ns

    def select(self, index: int) -> None:
        self.now_ns += SELECT_NS
        self._selected = index

    def submit(self) -> None:
        self.now_ns += SUBMIT_NS
        begin = max(self.now_ns, self.free_at)
        self.free_at = begin + self.work(len(self.submitted))
        self.submitted.append(self._selected)
        self.queue.append(self.free_at)
        self.most_in_flight = max(self.most_in_flight, len(self.queue))

    infer = submit

    def wait(self) -> None:
        self.waits += 1
        self.now_ns = max(self.now_ns, self.queue.pop(0))
        self.done.append(self.submitted[len(self.done)])

    def synchronize(self) -> None:
        while self.queue:
            self.wait()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Device]:
    def make(work: Callable[[int], int] = lambda number: WORK_NS) -> Device:
        result = Device(work)
        for module in (loop, clock):
            monkeypatch.setattr(module, "now_ns", result.read)
        return result

    return make


Make = Callable[..., Device]


def test_every_mode_of_a_case_has_its_class() -> None:
    assert {"sync": Sync, "pipelined": Pipelined, "offline": Offline} == MODES


# --- pipelined ----------------------------------------------------------------------------------------------------


def test_two_are_in_flight_and_never_three(device: Make) -> None:
    result = device()
    Pipelined(result, 8).block(room(), 0, 500 * MS, 20)
    assert result.most_in_flight == 2
    assert result.queue == []  # nothing runs on into what follows a block


def test_a_sample_holds_the_wait_behind_the_one_before(device: Make) -> None:
    samples = room()
    block = Pipelined(device(), 8).block(samples, 0, 500 * MS, 20)
    # Submitted as soon as the one before it begins, it waits for that one and then runs: all but the host's own time.
    assert set(samples[: block.iterations]) == {2 * WORK_NS - SELECT_NS}


def test_wall_time_is_that_of_the_batches_that_count(device: Make) -> None:
    result = device()
    block = Pipelined(result, 8).block(room(), 0, 500 * MS, 20)
    assert block.wall_ns == block.iterations * WORK_NS  # the host's time is hidden behind the device's
    assert len(result.submitted) == block.iterations + 2  # one fills the pipeline, one empties it


def test_the_oldest_of_two_unequal_is_the_one_that_is_timed(device: Make) -> None:
    result = device(lambda number: WORK_NS * (1 + number % 3))
    samples = room()
    block = Pipelined(result, 8).block(samples, 0, 500 * MS, 20)
    # Number n + 1 counts as sample n: it waits for number n, which begins when it is submitted, and then runs itself.
    expected = [result.work(n) + result.work(n + 1) - SELECT_NS for n in range(block.iterations)]
    assert list(samples[: block.iterations]) == expected


def test_inputs_go_on_in_the_rotation_and_the_last_one_is_known(device: Make) -> None:
    result = device()
    heard: list[tuple[int, int]] = []
    timed = measure(Pipelined(result, 8), settings(), lambda index: heard.append((index, result.done[-1])))
    assert len(timed.blocks) > 2
    assert all(index == done for index, done in heard)
    first = timed.blocks[0].iterations
    assert result.submitted[: first + 2] == [(number - 1) % 8 for number in range(first + 2)]


@pytest.mark.parametrize("size", [1, 2, 19])
def test_a_full_buffer_ends_the_block(device: Make, size: int) -> None:
    samples = room(size)
    block = Pipelined(device(), 8).block(samples, 0, 500 * MS, 20)
    assert (block.iterations, min(samples) > 0) == (size, True)


def test_one_alone_is_submitted_and_waited_for(device: Make) -> None:
    result = device()
    mode = Pipelined(result, 8)
    mode.select_batch(5)
    mode.run_once()
    assert (result.submitted, result.done, result.queue) == ([5], [5], [])


# --- offline ------------------------------------------------------------------------------------------------------


def warmed(found: Device) -> Offline:
    mode = Offline(found, 8)
    mode.block(room(), 0, 0, 1)
    return mode


def test_a_block_is_back_to_back_with_one_synchronise_at_its_end(device: Make) -> None:
    result = device()
    mode = warmed(result)
    result.clock_reads.clear()
    before = len(result.submitted)
    block = mode.block(room(), 0, 500 * MS, 20)
    assert result.most_in_flight == block.iterations  # nothing was waited for inside
    assert {reads - before for reads in result.clock_reads} == {0, block.iterations}


def test_the_block_before_decides_how_many_batches_fill_the_time(device: Make) -> None:
    mode = warmed(device())
    block = mode.block(room(), 0, 500 * MS, 20)
    assert block.iterations == pytest.approx(50, abs=1)
    assert block.wall_ns == pytest.approx(500 * MS, rel=0.02)


def test_the_number_is_at_least_the_request_and_never_above_the_rest(device: Make) -> None:
    result = device()
    mode = warmed(result)
    assert mode.block(room(), 0, 1, 20).iterations == 20
    assert mode.block(room(), 0, 500 * MS, 20, deadline=result.now_ns + 5 * WORK_NS).iterations == pytest.approx(
        5, abs=1
    )
    assert mode.block(room(), 0, 500 * MS, 20, deadline=result.now_ns - 1).iterations == 1
    assert mode.block(room(7), 3, 500 * MS, 20).iterations == 4


def test_offline_has_no_samples_and_its_blocks_have_all_batches(device: Make) -> None:
    result = device()
    warm = warm_up(Offline(result, 8), settings())
    before = len(result.submitted)
    timed = measure(Offline(result, 8), settings(), lambda index: None)
    assert (len(warm.samples_ns), len(timed.samples_ns), warm.steady, timed.stop) == (0, 0, True, "converged")
    assert sum(block.iterations for block in timed.blocks) == len(result.submitted) - before


def test_offline_stops_by_the_time_per_batch_of_its_blocks(device: Make) -> None:
    noisy = device(lambda number: WORK_NS * (1 + number // 20 % 2))
    assert measure(Offline(noisy, 8), settings(max_s=4.0), lambda index: None).stop == "time limit"


def test_offline_inputs_rotate(device: Make) -> None:
    result = device()
    last: list[tuple[int, int]] = []
    measure(Offline(result, 9), settings(), lambda index: last.append((index, result.submitted[-1])))
    assert result.submitted == [number % 9 for number in range(len(result.submitted))]
    assert all(index == ran for index, ran in last)


@pytest.mark.parametrize("kind", [Sync, Offline, Pipelined])
def test_a_steady_device_converges_in_every_mode(device: Make, kind: type[Mode]) -> None:
    result = measure(kind(device(), 8), settings(), lambda index: None)
    assert result.stop == "converged"
