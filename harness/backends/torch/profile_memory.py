"""Allocations and frees in one pass of a PyTorch backend, as PyTorch's own allocators report them."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from harness.backends.base import BackendJob
from harness.backends.torch.base import TorchBackend
from harness.core.schemas.profile_record import Category, Fragmentation, MemoryBlock, MemoryTimeline
from harness.core.store import translate_storage_errors

SNAPSHOT = "memory.pickle"

MAX_ENTRIES = 20_000
"""Allocations and frees in a snapshot: the last of them in a longer pass."""

MAX_SNAPSHOT_BYTES = 32 << 20
"""Each entry has the stack of Python that it came from."""


@dataclass(frozen=True)
class GpuSnapshot:
    """snapshot: the file's name; None where it was too large, and `notes` says so."""

    fragmentation: Fragmentation
    snapshot: str | None
    notes: tuple[str, ...]


def allocated_before() -> int:
    """Bytes that the allocator has given out now."""
    return torch.cuda.memory_allocated()


def on_gpu(one_pass: Callable[[], None], folder: Path, memory: Any = torch.cuda.memory) -> GpuSnapshot:
    """Watch one more pass for the viewer, then look at the segments. memory: PyTorch's module of that name.

    StorageError where the disk does not take the snapshot.
    """
    memory._record_memory_history(max_entries=MAX_ENTRIES, stacks="python")
    one_pass()
    path = folder / SNAPSHOT
    with translate_storage_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        memory._dump_snapshot(str(path))
    memory._record_memory_history(enabled=None)
    fragmentation = fragmentation_of(memory.memory_snapshot())
    size = path.stat().st_size
    if size <= MAX_SNAPSHOT_BYTES:
        return GpuSnapshot(fragmentation, SNAPSHOT, ())
    path.unlink()
    note = f"snapshot: not kept, {size:,} bytes are more than {MAX_SNAPSHOT_BYTES:,}; profile a smaller batch"
    return GpuSnapshot(fragmentation, None, (note,))


def fragmentation_of(segments: Iterable[Mapping[str, Any]]) -> Fragmentation:
    """Segments as torch.cuda.memory_snapshot() reports them."""
    known = list(segments)
    reserved = sum(segment["total_size"] for segment in known)
    allocated = sum(segment["allocated_size"] for segment in known)
    free = [block["size"] for segment in known for block in segment["blocks"] if block["state"] == "inactive"]
    return Fragmentation(
        reserved_bytes=reserved,
        allocated_bytes=allocated,
        unused_bytes=reserved - allocated,
        unused_share=(reserved - allocated) / reserved if reserved else 0,
        largest_free_bytes=max(free, default=0),
        unused_at_peak_bytes=0,
    )


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
        """The block of the record."""
        name, shapes = (self.operator.name, self.operator.shapes) if self.operator else (None, "")
        return MemoryBlock(size_bytes=self.size_bytes, category=self.category, operator=name, shapes=shapes)


@dataclass(frozen=True)
class AllocationHistory:
    """The changes of one pass, in order.

    at: time of each in µs; by: bytes more or less; reserved: by the allocator after each (0 on a CPU). frees: how many
    of the changes are frees. foreign: (place, bytes) of frees of earlier blocks.
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
        """Bytes after each change, beyond those before the pass."""
        return list(accumulate(self.by))

    def peak_place(self) -> int:
        """The change after which most is allocated; −1: before the first change, where the pass only freed memory."""
        sums = self.running()
        return max(range(len(sums)), key=sums.__getitem__) if max(sums, default=0) > 0 else -1

    def alive(self, place: int) -> list[Allocation]:
        """Blocks of the pass that exist after a change, the largest first."""
        living = [
            block for block in self.blocks if block.born <= place and (block.freed is None or block.freed > place)
        ]
        return sorted(living, key=lambda block: -block.size_bytes)

    def given_back(self, place: int) -> int:
        """Bytes from before the pass that are freed by then."""
        return sum(size for when, size in self.foreign if when <= place)

    def running_of(self, category: Category) -> list[int]:
        """Bytes of the pass's blocks of one category after each change."""
        changes: Counter[int] = Counter()
        for block in self.blocks:
            if block.category == category:
                changes[block.born] += block.size_bytes
                if block.freed is not None:
                    changes[block.freed] -= block.size_bytes
        return list(accumulate(changes[place] for place in range(len(self.by))))


def watched(events: Iterable[Mapping[str, Any]], device_type: int) -> AllocationHistory:
    """A trace of one pass → its changes of one kind of memory. ts: of each event, in µs."""
    traced = list(events)
    operators = _called([event for event in traced if event.get("cat") == "cpu_op"])
    starts = [operator.start for operator in operators]
    memory = [event for event in traced if event["name"] == "[memory]" and event["args"]["Device Type"] == device_type]
    history = AllocationHistory()
    alive: dict[int, int] = {}
    for place, event in enumerate(sorted(memory, key=lambda event: (event["ts"], event["args"]["Bytes"]))):
        at, about = float(event["ts"]), event["args"]
        size, address = int(about["Bytes"]), int(about["Addr"])
        history.at.append(at)
        history.by.append(size)
        history.reserved.append(int(about["Total Reserved"]))
        if size > 0:
            alive[address] = len(history.blocks)
            history.blocks.append(Allocation(size, place, _operator_around(at, operators, starts)))
        elif address in alive:
            _free(history.blocks, alive.pop(address), place, at)
        else:
            history.foreign.append((place, -size))
    return history


def _free(blocks: list[Allocation], index: int, place: int, at: float) -> None:
    block = blocks[index]
    within = block.operator is not None and at <= block.operator.end
    blocks[index] = replace(block, freed=place, temporary=within)


def _called(events: Iterable[Mapping[str, Any]]) -> list[Operator]:
    """The operators that the model calls itself, by start. Names without a namespace are not operators but
    ranges around them: TorchScript's `forward`, `Torch-Compiled Region`."""
    operators: list[Operator] = []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        end = event["ts"] + event["dur"]
        if "::" in event["name"] and not (operators and event["ts"] < operators[-1].end):
            operators.append(Operator(event["name"], _shapes(event["args"]), event["ts"], end))
    return operators


def _operator_around(at: float, operators: Sequence[Operator], starts: Sequence[float]) -> Operator | None:
    place = bisect_right(starts, at) - 1
    return operators[place] if place >= 0 and at <= operators[place].end else None


def _shapes(about: Mapping[str, Any]) -> str:
    return " ".join(json.dumps(shape, separators=(",", ":")) for shape in about.get("Input Dims", ()) if shape)


MAX_BLOCKS = 20
MAX_CHANGES = 20_000
"""Of the timeline in the record; a pass of a 24-layer encoder has some thousand."""

_OF_THE_PASS: tuple[Category, ...] = ("activations", "temporaries", "unattributed")

_CPU = "measured: allocations less frees of PyTorch's CPU allocator in one warm pass (torch.profiler)"
_CUDA = "measured: allocations less frees of PyTorch's CUDA allocator in one warm pass without a CUDA graph"
_OUTSIDE = "held: a CPU allocator does not report what was there before, and libraries' own buffers are not PyTorch's"
_UNNAMED = "unattributed: the profiler names no operator there, so activations and temporaries are not separated"
_THINNED = f"timeline: only the highest of several changes is kept, {MAX_CHANGES:,} at most are kept"


def memory_profile(job: BackendJob, make: Callable[[BackendJob], TorchBackend], folder: Path) -> MemoryTimeline:
    """One warm pass of the case's first batch. make: the backend of a job; folder: where a GPU's snapshot goes.

    A CUDA graph owns its memory from its recording on, so the pass runs without a graph.
    """
    running = make(dataclasses.replace(job, options=_without_graph(job.options)))
    running.load()
    running.compile()
    running.select(0)
    for _ in range(2):  # the first pass makes lasting allocations: kernels' workspaces, packed weights
        _one_pass(running)
    device = job.case.device
    before = _before(running, allocated_before() if device == "cuda" else None)
    history = watched(_events(running), DEVICE_TYPES[device])
    gpu = on_gpu(lambda: _one_pass(running), folder) if device == "cuda" else None
    running.close()
    return _record(job, before, history, gpu)


def _record(
    job: BackendJob, before: Mapping[Category, int], history: AllocationHistory, gpu: GpuSnapshot | None
) -> MemoryTimeline:
    place = history.peak_place()
    alive = history.alive(place)
    base, heights, temporaries = sum(before.values()), history.running(), history.running_of("temporaries")
    kept = _recorded_places(heights)
    unused = history.reserved[place] - base - heights[place] if gpu and place >= 0 else 0
    all_named = all(block.operator is not None for block in history.blocks)
    notes = [_OUTSIDE] if gpu is None else list(gpu.notes)
    notes += [] if all_named else [_UNNAMED]
    notes += [_THINNED] if len(kept) < len(history.by) else []
    at_peak: dict[Category, int] = {
        **before,
        "held": before["held"] - history.given_back(place),
        **{kind: sum(block.size_bytes for block in alive if block.category == kind) for kind in _OF_THE_PASS},
    }
    return MemoryTimeline(
        case_id=job.case.case_id,
        device=job.case.device,
        by=_CPU if gpu is None else _CUDA,
        allocations=len(history.blocks),
        frees=history.frees,
        peak_bytes=sum(at_peak.values()),
        at_peak=at_peak,
        alive_at_peak=tuple(block.block() for block in alive[:MAX_BLOCKS]),
        pass_peak_bytes=sum(at_peak.values()) - base,
        activations_peak_bytes=max(history.running_of("activations"), default=0) if all_named else None,
        at_ns=tuple(round((history.at[index] - history.at[0]) * 1e3) for index in kept),
        allocated_bytes=tuple(base + heights[index] for index in kept),
        temporaries_bytes=tuple(temporaries[index] for index in kept),
        reserved_bytes=tuple(history.reserved[index] for index in kept) if gpu else None,
        fragmentation=gpu.fragmentation.model_copy(update={"unused_at_peak_bytes": max(0, unused)}) if gpu else None,
        snapshot=gpu.snapshot if gpu else None,
        notes=tuple(notes),
    )


def _one_pass(running: TorchBackend) -> None:
    running.infer()
    running.synchronize()


def _without_graph(options: Mapping[str, str | int | bool]) -> dict[str, str | int | bool]:
    """torch.compile records a graph too, in its mode reduce-overhead."""
    graphless = {**options, "graph": False}
    return {**graphless, "mode": "default"} if options.get("mode") == "reduce-overhead" else graphless


def _before(running: TorchBackend, allocated: int | None) -> dict[Category, int]:
    """Bytes in use between passes. allocated: all of them, where the allocator reports them."""
    module = running.module
    parameters = _storages([*module.parameters(), *module.buffers()])
    inputs = _storages([tensor for batch in running.input_sets for tensor in batch])
    held = 0 if allocated is None else allocated - parameters - inputs
    return {"parameters": parameters, "inputs": inputs, "held": held}


def _storages(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages of tensors; a shared storage counts once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def _events(running: TorchBackend) -> list[dict[str, Any]]:
    """Allocation events of one pass, as in a trace."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as seen:
        _one_pass(running)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(trace))
        events: list[dict[str, Any]] = json.loads(trace.read_bytes())["traceEvents"]
    return events


def _recorded_places(heights: Sequence[int]) -> list[int]:
    """Places of the changes that the record keeps: all, or the highest of each group of neighbours."""
    step = -(-len(heights) // MAX_CHANGES) or 1
    return [
        max(range(start, min(start + step, len(heights))), key=heights.__getitem__)
        for start in range(0, len(heights), step)
    ]
