"""What only PyTorch's CUDA allocator tells: its segments, and a history for PyTorch's memory viewer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.core.schemas.profile_memory import Fragmentation
from harness.core.store import translate_storage_errors

SNAPSHOT = "memory.pickle"

MAX_ENTRIES = 20_000
"""Allocations and frees in a snapshot: the last ones of a longer pass."""

MAX_SNAPSHOT_BYTES = 32 << 20
"""Each entry has the stack of Python that it came from."""


@dataclass(frozen=True)
class Gpu:
    """snapshot: the file's name; None where it was too large, and `notes` says so."""

    fragmentation: Fragmentation
    snapshot: str | None
    notes: tuple[str, ...]


def allocated_before() -> int:
    """Bytes that the allocator has given out now."""
    return torch.cuda.memory_allocated()


def on_gpu(one_pass: Callable[[], None], folder: Path, memory: Any = torch.cuda.memory) -> Gpu:
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
        return Gpu(fragmentation, SNAPSHOT, ())
    path.unlink()
    note = f"snapshot: not kept, {size:,} bytes are more than {MAX_SNAPSHOT_BYTES:,}; profile a smaller batch"
    return Gpu(fragmentation, None, (note,))


def fragmentation_of(segments: Iterable[Mapping[str, Any]]) -> Fragmentation:
    """Segments as torch.cuda.memory_snapshot() tells them."""
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
