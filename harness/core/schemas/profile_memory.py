"""results/profiles/<case_id>/memory.json: what one pass of a case allocates and frees, change by change."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.schemas.vocabulary import Device, Record

Category = Literal["parameters", "inputs", "held", "activations", "temporaries", "unattributed"]
"""parameters: with buffers. inputs: every batch that lies where the model reads it. held: what else the library's
allocator holds between passes, such as workspaces. temporaries: freed before the operator that made them returned.
activations: what an operator made and left. unattributed: one of the two, made where the profiler names no operator."""


class MemoryBlock(Record):
    """One allocation of the pass."""

    size_bytes: int
    category: Category
    operator: str | None
    """The one that was called, not one that it calls in turn; None where the profiler names none."""
    shapes: str
    """Of that operator's inputs."""


class Fragmentation(Record):
    """How a caching allocator's reserved memory is used once the pass is over."""

    reserved_bytes: int
    allocated_bytes: int
    unused_bytes: int
    """reserved_bytes − allocated_bytes."""
    unused_share: Annotated[float, Field(ge=0, le=1)]
    """Of what is reserved; 0 where nothing is."""
    largest_free_bytes: int
    """The largest request that it can serve without reserving more."""
    unused_at_peak_bytes: int
    """The same difference when most was allocated."""


class MemoryProfile(Record):
    """One warm pass of one batch. Bytes are those of the library's own allocator."""

    schema_version: Literal[1] = 1
    case_id: str
    device: Device
    by: str
    """How it was measured."""
    allocations: int
    """In the pass."""
    frees: int
    peak_bytes: int
    """Most bytes at once, with what lay there before the pass."""
    at_peak: dict[Category, int]
    """Who holds them; adds up to peak_bytes."""
    alive_at_peak: tuple[MemoryBlock, ...]
    """Of the pass, the largest first, at most harness.backends.profiles.torch_memory.MAX_BLOCKS."""
    pass_peak_bytes: int
    """Less what lay there before the pass."""
    activations_peak_bytes: int | None
    """Most bytes of activations at once, which need not be at the same moment; None where some are unattributed."""
    at_ns: tuple[int, ...]
    """Host time of each change, from the first one on: on a GPU that of the call, which the kernel's follows."""
    allocated_bytes: tuple[int, ...]
    """From each change on."""
    temporaries_bytes: tuple[int, ...]
    """How much of them is temporary."""
    reserved_bytes: tuple[int, ...] | None
    """What a caching allocator had taken from the device by then; None where there is none."""
    fragmentation: Fragmentation | None
    snapshot: str | None
    """File for PyTorch's memory viewer (pytorch.org/memory_viz), beside this one."""
    notes: tuple[str, ...] = ()
    """What cannot be told, and why."""
