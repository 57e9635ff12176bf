"""The timed loop against a clock that only moves when the backend works."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from harness.timing import clock, loop
from harness.timing.loop import measure, warm_up
from harness.timing.modes import Sync
from tests.fixtures.loops import settings

MS = 1_000_000


class Scripted:
    """A backend whose n-th inference takes latency(n) nanoseconds: half in infer, half in synchronize."""

    def __init__(self, latency: Callable[[int], int], select_ns: int = 0) -> None:
        self.latency, self.select_ns = latency, select_ns
        self.now_ns = 0
        self.selected: list[int] = []
        self.done = 0

    def select(self, index: int) -> None:
        self.selected.append(index)
        self.now_ns += self.select_ns

    def infer(self) -> None:
        self.now_ns += self.latency(self.done) // 2

    def synchronize(self) -> None:
        self.now_ns += self.latency(self.done) - self.latency(self.done) // 2
        self.done += 1


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scripted]:
    def make(latency: Callable[[int], int], select_ns: int = 0) -> Scripted:
        backend = Scripted(latency, select_ns)
        for module in (loop, clock):
            monkeypatch.setattr(module, "now_ns", lambda: backend.now_ns)
        return backend

    return make


Make = Callable[..., Scripted]


def drifting(number: int) -> int:
    return int(10 * MS * 1.01**number)


def test_warm_up_ends_when_three_windows_agree(scripted: Make) -> None:
    backend = scripted(lambda number: (50 if number < 7 else 10) * MS)
    result = warm_up(Sync(backend, 8), settings(window_s=0.05, warmup_min_s=0.0))
    assert result.steady
    # Seven windows of one slow inference would agree too, if ten iterations were not asked for; then the first
    # window of fast ones disagrees with the slow, and the third agrees.
    assert list(result.samples_ns) == [50 * MS] * 7 + [10 * MS] * 15


def test_warm_up_lasts_its_shortest_time(scripted: Make) -> None:
    result = warm_up(Sync(scripted(lambda _: 10 * MS), 8), settings(window_s=0.05, warmup_min_s=0.4))
    assert (len(result.samples_ns), result.steady) == (40, True)


def test_warm_up_has_its_fewest_iterations(scripted: Make) -> None:
    result = warm_up(Sync(scripted(lambda _: 100 * MS), 8), settings(window_s=0.05, warmup_min_iterations=25))
    assert (len(result.samples_ns), result.steady) == (25, True)


def test_warm_up_that_never_gets_steady_ends_at_its_limit_and_says_so(scripted: Make) -> None:
    result = warm_up(Sync(scripted(drifting), 8), settings(window_s=0.05, warmup_max_s=2.0))
    assert not result.steady
    assert list(result.samples_ns) == [drifting(number) for number in range(len(result.samples_ns))]
    assert sum(result.samples_ns) >= 2_000 * MS
    assert sum(result.samples_ns[:-5]) < 2_000 * MS


def test_windows_within_the_tolerance_agree_and_just_outside_do_not(scripted: Make) -> None:
    def steps(height: float) -> Callable[[int], int]:
        return lambda number: int(10 * MS * (1 + height * (number // 5 % 3)))  # a window of five is one step

    limits = {"window_s": 0.05, "warmup_max_s": 1.0}
    assert warm_up(Sync(scripted(steps(0.0049)), 8), settings(**limits)).steady
    assert not warm_up(Sync(scripted(steps(0.0051)), 8), settings(**limits)).steady


def test_warm_up_keeps_max_samples_and_goes_on(scripted: Make) -> None:
    backend = scripted(lambda _: MS // 100)
    result = warm_up(Sync(backend, 8), settings(max_samples=50))
    assert len(result.samples_ns) == 50
    assert backend.done >= 4 * 5_000
    assert result.steady


@pytest.mark.parametrize("max_samples", [1, 10, 63, 64, 65])
def test_warm_up_rotates_over_all_inputs_at_any_size_of_the_buffer(scripted: Make, max_samples: int) -> None:
    backend = scripted(lambda _: MS)
    warm_up(Sync(backend, 64), settings(max_samples=max_samples))
    assert backend.selected == [number % 64 for number in range(len(backend.selected))]


def test_warm_up_lasts_until_both_parts_together_can_last_their_shortest_time(scripted: Make) -> None:
    limits = {"window_s": 0.05, "min_s": 1.0, "max_samples": 50}
    result = warm_up(Sync(scripted(lambda _: MS), 8), settings(**limits))
    assert result.steady
    assert result.elapsed_ns == 1_000 * MS  # 50 samples are 0.05 s, of which 0.045 s are counted on
    assert warm_up(Sync(scripted(lambda _: MS), 8), settings(**limits, warmup_max_s=0.5)).elapsed_ns == 500 * MS
    assert warm_up(Sync(scripted(lambda _: 10 * MS), 8), settings(window_s=0.05, min_s=1.0)).elapsed_ns == 200 * MS


def test_between_windows_of_the_warm_up_something_else_may_run(scripted: Make) -> None:
    heard: list[int] = []
    backend = scripted(lambda _: 10 * MS)
    warm_up(Sync(backend, 8), settings(window_s=0.05), lambda: heard.append(backend.done))
    assert heard == [5, 10, 15, 20]


def ignore(index: int) -> None:
    del index


def test_measuring_stops_when_the_answer_is_precise_enough(scripted: Make) -> None:
    result = measure(Sync(scripted(lambda _: 5 * MS), 8), settings(), ignore)
    assert result.stop == "converged"
    assert len(result.samples_ns) == 100  # min_samples: five blocks of 20


def test_measuring_goes_on_until_warm_up_and_timed_part_have_their_shortest_time(scripted: Make) -> None:
    for warmed_ns, samples in ((200 * MS, 160), (900 * MS, 100), (None, 100)):
        result = measure(Sync(scripted(lambda _: 5 * MS), 8), settings(min_s=1.0), ignore, warmed_ns)
        assert (result.stop, len(result.samples_ns)) == ("converged", samples)
    short = measure(Sync(scripted(lambda _: 5 * MS), 8), settings(min_s=1.0, max_s=0.5), ignore, 200 * MS)
    assert short.stop == "time limit"


def test_any_input_can_be_the_last_of_a_block(scripted: Make) -> None:
    def last(seed: int | None) -> list[int]:
        heard: list[int] = []
        chance = None if seed is None else random.Random(seed)  # noqa: S311 - no secret
        measure(Sync(scripted(drifting), 64), settings(max_s=20.0), heard.append, None, chance)
        return heard

    # Blocks of 20, but for the one that the time limit ends: three of four inputs would never be looked at.
    assert {index % 4 for index in last(None)[:-1]} == {3}
    seen = {index for seed in range(40) for index in last(seed)}
    assert seen == set(range(64))
    assert last(7) == last(7)


def test_a_longer_block_is_no_more_than_half_longer(scripted: Make) -> None:
    chance = random.Random(1)  # noqa: S311 - no secret
    result = measure(Sync(scripted(drifting), 8), settings(max_s=20.0), ignore, None, chance)
    lengths = [block.iterations for block in result.blocks[:-1]]
    assert min(lengths) >= 20
    assert max(lengths) <= 31
    assert len(set(lengths)) > 1


def test_three_equal_blocks_are_too_few_samples_and_one_block_is_too_few_blocks(scripted: Make) -> None:
    result = measure(Sync(scripted(lambda _: 5 * MS), 8), settings(min_samples=1), ignore)
    assert (len(result.blocks), result.stop) == (3, "converged")


def test_measuring_stops_at_the_time_limit_and_keeps_its_samples(scripted: Make) -> None:
    result = measure(Sync(scripted(drifting), 8), settings(max_s=3.0), ignore)
    assert result.stop == "time limit"
    assert sum(result.samples_ns[:-1]) < 3_000 * MS <= sum(result.samples_ns)


def test_one_inference_longer_than_the_time_limit_is_still_a_sample(scripted: Make) -> None:
    result = measure(Sync(scripted(lambda _: 60_000 * MS), 8), settings(max_s=1.0), ignore)
    assert (list(result.samples_ns), result.stop) == ([60_000 * MS], "time limit")
    assert [block.iterations for block in result.blocks] == [1]


@pytest.mark.parametrize("max_samples", [1, 19, 20, 50])
def test_measuring_stops_at_the_sample_limit(scripted: Make, max_samples: int) -> None:
    result = measure(Sync(scripted(lambda _: MS), 8), settings(max_samples=max_samples), ignore)
    assert (len(result.samples_ns), result.stop) == (max_samples, "sample limit")


@pytest.mark.parametrize("latency_ns", [MS // 50, MS, 7 * MS, 300 * MS])
def test_blocks_cover_all_samples_and_are_long_enough(scripted: Make, latency_ns: int) -> None:
    result = measure(Sync(scripted(lambda number: latency_ns + number % 7 * latency_ns // 10), 8), settings(), ignore)
    assert sum(block.iterations for block in result.blocks) == len(result.samples_ns)
    for block in result.blocks[:-1]:
        assert block.iterations >= 20
        assert block.wall_ns >= 100 * MS


def test_inputs_rotate_and_the_callback_hears_which_one_ran_last(scripted: Make) -> None:
    backend = scripted(drifting)
    heard: list[tuple[int, int]] = []
    result = measure(Sync(backend, 9), settings(max_s=5.0), lambda index: heard.append((index, backend.selected[-1])))
    assert backend.selected == [number % 9 for number in range(len(result.samples_ns))]
    assert all(index == selected for index, selected in heard)
    assert len(heard) == len(result.blocks) > 2


def test_a_sample_holds_the_inference_and_nothing_else(scripted: Make) -> None:
    backend = scripted(lambda number: MS + number, select_ns=3 * MS)

    def after_block(index: int) -> None:
        backend.now_ns += 500 * MS

    result = measure(Sync(backend, 8), settings(max_s=20.0), after_block)
    assert list(result.samples_ns) == [MS + number for number in range(len(result.samples_ns))]
    # A block's wall time holds the choosing of inputs, as a caller's would, and not what happens between blocks.
    first = result.blocks[0]
    assert first.wall_ns == sum(result.samples_ns[: first.iterations]) + first.iterations * 3 * MS


def test_the_clock_knows_its_own_cost() -> None:
    result = clock.calibrate()
    assert result.name == "perf_counter_ns"
    assert result.overhead_ns >= 0
    assert result.resolution_ns > 0
