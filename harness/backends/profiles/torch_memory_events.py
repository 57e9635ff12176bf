"""torch.profiler's memory events → allocations with who made them, and what was alive when (pure)."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from harness.core.schemas.profile_memory import Category, MemoryBlock

DEVICE_TYPES = {"cpu": 0, "cuda": 1}
"""c10::DeviceType, as events have it."""


@dataclass(frozen=True)
class Operator:
    """One call of an operator by the model: start and end in µs of the trace."""

    name: str
    shapes: str
    start: float
    end: float


@dataclass(frozen=True)
class Allocation:
    """One block of a pass. born, freed: places among the changes; freed is None where the pass leaves it."""

    size_bytes: int
    born: int
    operator: Operator | None
    freed: int | None = None
    temporary: bool = False

    @property
    def category(self) -> Category:
        """`temporaries` where it was freed before its operator returned."""
        if self.operator is None:
            return "unattributed"
        return "temporaries" if self.temporary else "activations"

    def block(self) -> MemoryBlock:
        """As the record has it."""
        name, shapes = (self.operator.name, self.operator.shapes) if self.operator else (None, "")
        return MemoryBlock(size_bytes=self.size_bytes, category=self.category, operator=name, shapes=shapes)


@dataclass(frozen=True)
class Watched:
    """The changes of one pass, in order.

    at: time of each in µs; by: bytes more or less; reserved: by the allocator after each (0 on a CPU). frees: how many
    of the changes are frees. foreign: (place, bytes) of frees of what was there before.
    """

    at: list[float] = field(default_factory=list)
    by: list[int] = field(default_factory=list)
    reserved: list[int] = field(default_factory=list)
    blocks: list[Allocation] = field(default_factory=list)
    foreign: list[tuple[int, int]] = field(default_factory=list)

    @property
    def frees(self) -> int:
        """Changes that are frees."""
        return sum(change < 0 for change in self.by)

    def running(self) -> list[int]:
        """Bytes after each change, beyond what was there before."""
        return list(accumulate(self.by))

    def peak_place(self) -> int:
        """The change after which most is allocated; −1: before the first one, where the pass only gave back."""
        sums = self.running()
        return max(range(len(sums)), key=sums.__getitem__) if max(sums, default=0) > 0 else -1

    def alive(self, place: int) -> list[Allocation]:
        """Blocks of the pass that exist after a change, the largest first."""
        found = [one for one in self.blocks if one.born <= place and (one.freed is None or one.freed > place)]
        return sorted(found, key=lambda one: -one.size_bytes)

    def given_back(self, place: int) -> int:
        """Bytes from before the pass that are freed by then."""
        return sum(size for when, size in self.foreign if when <= place)

    def running_of(self, category: Category) -> list[int]:
        """Bytes of the pass's blocks of one category after each change."""
        changes: Counter[int] = Counter()
        for one in self.blocks:
            if one.category == category:
                changes[one.born] += one.size_bytes
                if one.freed is not None:
                    changes[one.freed] -= one.size_bytes
        return list(accumulate(changes[place] for place in range(len(self.by))))


def watched(events: Iterable[Mapping[str, Any]], device_type: int) -> Watched:
    """A trace of one pass → its changes of one kind of memory. ts: of each event, in µs."""
    traced = list(events)
    operators = _called([event for event in traced if event.get("cat") == "cpu_op"])
    starts = [operator.start for operator in operators]
    memory = [event for event in traced if event["name"] == "[memory]" and event["args"]["Device Type"] == device_type]
    found = Watched()
    alive: dict[int, int] = {}
    for place, event in enumerate(sorted(memory, key=lambda event: (event["ts"], event["args"]["Bytes"]))):
        at, about = float(event["ts"]), event["args"]
        size, address = int(about["Bytes"]), int(about["Addr"])
        found.at.append(at)
        found.by.append(size)
        found.reserved.append(int(about["Total Reserved"]))
        if size > 0:
            alive[address] = len(found.blocks)
            found.blocks.append(Allocation(size, place, _around(at, operators, starts)))
        elif address in alive:
            _free(found.blocks, alive.pop(address), place, at)
        else:
            found.foreign.append((place, -size))
    return found


def _free(blocks: list[Allocation], index: int, place: int, at: float) -> None:
    block = blocks[index]
    within = block.operator is not None and at <= block.operator.end
    blocks[index] = replace(block, freed=place, temporary=within)


def _called(events: Iterable[Mapping[str, Any]]) -> list[Operator]:
    """The operators that the model calls itself, by start. Those without a namespace are no operators but what stands
    around them: TorchScript's `forward`, `Torch-Compiled Region`."""
    found: list[Operator] = []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        end = event["ts"] + event["dur"]
        if "::" in event["name"] and not (found and event["ts"] < found[-1].end):
            found.append(Operator(event["name"], _shapes(event["args"]), event["ts"], end))
    return found


def _around(at: float, operators: Sequence[Operator], starts: Sequence[float]) -> Operator | None:
    place = bisect_right(starts, at) - 1
    return operators[place] if place >= 0 and at <= operators[place].end else None


def _shapes(about: Mapping[str, Any]) -> str:
    return " ".join(json.dumps(shape, separators=(",", ":")) for shape in about.get("Input Dims", ()) if shape)
