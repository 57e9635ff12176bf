"""The CUDA allocator's segments, and the bound of its snapshot, with a recording fake in PyTorch's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from harness.backends.torch import profile_memory
from harness.backends.torch.profile_memory import SNAPSHOT, fragmentation_of, on_gpu

MIB = 1 << 20


def segment(*blocks: tuple[int, str]) -> dict[str, Any]:
    total = sum(size for size, _ in blocks)
    used = sum(size for size, state in blocks if state == "active_allocated")
    return {
        "total_size": total,
        "allocated_size": used,
        "blocks": [{"size": size, "state": state} for size, state in blocks],
    }


SEGMENTS = [
    segment((1 * MIB, "active_allocated"), (1 * MIB, "inactive")),
    segment((4 * MIB, "inactive"), (10 * MIB, "active_allocated"), (2 * MIB, "active_pending_free")),
]


class Memory:
    """torch.cuda.memory. `calls`: what was asked of it, in order."""

    def __init__(self, snapshot: bytes) -> None:
        self.calls: list[str] = []
        self._snapshot = snapshot

    def _record_memory_history(self, enabled: str | None = "all", **how: Any) -> None:
        self.calls.append(f"history {enabled} {sorted(how)}")

    def _dump_snapshot(self, filename: str) -> None:
        self.calls.append("dump")
        Path(filename).write_bytes(self._snapshot)

    def memory_snapshot(self) -> list[dict[str, Any]]:
        return SEGMENTS


def test_memory_reserved_and_not_allocated_is_unused() -> None:
    fragmentation = fragmentation_of(SEGMENTS)
    assert (fragmentation.reserved_bytes, fragmentation.allocated_bytes, fragmentation.unused_bytes) == (
        18 * MIB,
        11 * MIB,
        7 * MIB,
    )
    assert fragmentation.unused_share == pytest.approx(7 / 18)
    assert fragmentation.largest_free_bytes == 4 * MIB


def test_an_allocator_that_reserved_nothing_has_no_fragmentation() -> None:
    fragmentation = fragmentation_of([])
    assert (fragmentation.unused_share, fragmentation.largest_free_bytes) == (0, 0)


def test_the_history_covers_the_pass_and_ends_with_it(tmp_path: Path) -> None:
    memory = Memory(b"snapshot")
    result = on_gpu(lambda: memory.calls.append("pass"), tmp_path / "case", memory)
    assert memory.calls == ["history all ['max_entries', 'stacks']", "pass", "dump", "history None []"]
    assert (result.snapshot, result.notes) == (SNAPSHOT, ())
    assert (tmp_path / "case" / SNAPSHOT).read_bytes() == b"snapshot"


def test_a_snapshot_that_is_too_large_is_not_kept_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_memory, "MAX_SNAPSHOT_BYTES", 3)
    result = on_gpu(lambda: None, tmp_path, Memory(b"four"))
    assert result.snapshot is None
    assert "4 bytes are more than 3" in result.notes[0]
    assert list(tmp_path.iterdir()) == []
