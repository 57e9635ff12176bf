"""The order of the windows on several devices, and what happens where a process ends early."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.errors import CaseError
from harness.core.protocol import GIVE_UP, GO, OVER, WINDOW_ENDED
from harness.processes.copies import Conductor, CopiesStep, window_order
from harness.timing.windows import WindowSignals


def test_each_device_works_alone_and_all_together_in_mirrored_order() -> None:
    steps = window_order(3, "a")
    assert [len(places) for _, places in steps] == [1, 1, 1, 3, 3, 1, 1, 1]
    assert steps == steps[::-1]
    assert {places[0] for situation, places in steps[:3] if situation == "alone"} == {0, 1, 2}
    assert len({tuple(window_order(4, str(seed))) for seed in range(20)}) > 1


@pytest.fixture
def fifos(tmp_path: Path) -> Iterator[tuple[list[Path], list[int]]]:
    paths = [tmp_path / str(place) for place in range(2)]
    for path in paths:
        os.mkfifo(path)
    pipes = [os.open(path, os.O_RDWR) for path in paths]
    yield paths, pipes
    for pipe in pipes:
        os.close(pipe)


STEPS: list[CopiesStep] = [("alone", (1,)), ("together", (0, 1)), ("alone", (0,))]


def test_no_process_works_while_another_is_to_be_alone(fifos: tuple[list[Path], list[int]]) -> None:
    paths, pipes = fifos
    conductor = Conductor(pipes)
    working: set[int] = set()
    seen: list[tuple[int, str]] = []
    beside: dict[str, set[int]] = {"alone": set(), "together": set()}
    left: list[int] = []
    guard = threading.Lock()

    def process(place: int) -> None:
        signals = WindowSignals(str(paths[place]))
        conductor.entered(place, "measure")
        for _ in range(2):
            situation = signals.next()
            with guard:
                working.add(place)
                beside[situation].add(len(working))
                seen.append((place, situation))
            with guard:
                working.remove(place)
            conductor.entered(place, WINDOW_ENDED)
        signals.over()
        with guard:
            left.append(len(seen))
        conductor.ended(place)

    threads = [threading.Thread(target=process, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    assert conductor.conduct(STEPS)
    for thread in threads:
        thread.join()
    # No process went on to its checks, or ended, before the last window of all.
    assert left == [4, 4]
    assert beside["alone"] == {1}
    assert seen[0] == (1, "alone")
    assert sorted(seen[1:3]) == [(0, "together"), (1, "together")]
    assert seen[3] == (0, "alone")


def test_where_a_process_ends_early_the_others_are_given_up(fifos: tuple[list[Path], list[int]]) -> None:
    paths, pipes = fifos
    conductor = Conductor(pipes)
    signals = WindowSignals(str(paths[0]))
    conductor.entered(0, "measure")
    conductor.ended(1)
    assert not conductor.conduct(STEPS)
    with pytest.raises(CaseError, match="another device ended early"):
        signals.next()


def test_the_give_up_starts_no_window() -> None:
    assert len({GIVE_UP, OVER, *GO.values()}) == 4
