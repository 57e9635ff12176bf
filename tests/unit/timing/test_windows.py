"""The windows of a process beside others: when it waits, what is timed, and what is overwritten."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator

import pytest

from harness.core.errors import CaseError
from harness.core.protocol import WindowRequest
from harness.core.schemas import Block, Situation
from harness.timing import windows
from harness.timing.modes import Mode
from harness.timing.windows import WindowedPart
from tests.fixtures.loops import settings


class Counted(Mode):
    """Blocks of four inferences; each sample is its number, counted from the first inference of the process."""

    def __init__(self) -> None:
        self.batches = 3
        self.firsts: list[int] = []
        self._ran = 0

    def block(
        self, samples: array[int], first: int, block_ns: int, min_iterations: int, deadline: int | None = None
    ) -> Block:
        del min_iterations, deadline
        self.firsts.append(first)
        for place in range(first, min(first + 4, len(samples))):
            samples[place] = self._ran
            self._ran += 1
        return Block(iterations=4, wall_ns=block_ns)


def run(mode: Counted, order: list[Situation]) -> tuple[WindowedPart, list[str], object]:
    shown: list[str] = []
    waits: Iterator[Situation] = iter(order)

    class Scripted:
        def next(self) -> Situation:
            shown.append("wait")
            return next(waits)

        def over(self) -> None:
            shown.append("over")

    request = WindowRequest(fifo="", count=len(order), window_s=2e-7, warm_s=1e-7)
    part = WindowedPart(request, Scripted(), lambda: shown.append("done"))
    timed = part(mode, settings(), lambda index: shown.append(f"input {index}"), 0, random.Random(0))  # noqa: S311
    return part, shown, timed


def test_each_window_waits_warms_up_and_overwrites_its_warm_up() -> None:
    mode = Counted()
    part, shown, timed = run(mode, ["alone", "together"])
    assert shown == ["wait", "input 0", "done", "wait", "input 1", "done", "over"]
    assert mode.firsts == [0, 0, 4, 4]
    # Inferences 0 to 3 and 8 to 11 warmed up; only the others are in the record.
    assert list(timed.samples_ns) == [4, 5, 6, 7, 12, 13, 14, 15]  # type: ignore[attr-defined]
    assert [block.wall_ns for block in timed.blocks] == [200, 200]  # type: ignore[attr-defined]
    assert [window.situation for window in part.windows] == ["alone", "together"]
    assert all(window.start_ns <= window.end_ns for window in part.windows)
    assert part.windows[0].end_ns <= part.windows[1].start_ns


def test_more_inferences_than_a_record_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOST_SAMPLES", 8)
    with pytest.raises(CaseError, match="more than 8"):
        run(Counted(), ["alone", "together", "alone"])
