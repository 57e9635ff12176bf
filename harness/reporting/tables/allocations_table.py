"""The table of the allocations of one pass: its peak by holder, its largest blocks (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas.profile_record import Fragmentation, MemoryBlock, MemoryTimeline
from harness.reporting import units
from harness.reporting.table import Block, Column, Table, texts, titled, words
from harness.reporting.units import ABSENT

TOP = 5
"""Number of blocks in the table; memory.json has more."""

_MAX_SHAPES = 48


def memory_blocks(found: MemoryTimeline, chart: str | None = None) -> list[Block]:
    """The peak by holder, its largest blocks, the use of the allocator, and unknown parts. chart: its file."""
    alone = found.activations_peak_bytes
    counts = f"{units.count(found.allocations, 'allocation')} and {units.count(found.frees, 'free')}"
    besides = "" if alone is None else f", activations alone at most {units.in_mib(alone)} MiB"
    line = (
        f"{found.by[0].upper()}{found.by[1:]}. The pass makes {counts}; it holds at most "
        f"{units.in_mib(found.pass_peak_bytes)} MiB at once beyond what lay there before{besides}."
    )
    return titled(
        "Memory",
        line,
        _peak_table(found),
        _blocks_table(found.alive_at_peak[:TOP]),
        "" if found.fragmentation is None else fragmentation_line(found.fragmentation),
        "" if found.snapshot is None else f"`{found.snapshot}` opens in PyTorch's viewer, pytorch.org/memory_viz.",
        "\n".join(f"- {note}" for note in found.notes),
        "" if chart is None else f"![Memory over the pass]({chart})",
    )


def fragmentation_line(found: Fragmentation) -> str:
    """Memory that the caching allocator keeps without use."""
    return (
        f"After the pass the allocator has {units.in_mib(found.reserved_bytes)} MiB reserved and "
        f"{units.in_mib(found.allocated_bytes)} MiB allocated: {units.in_mib(found.unused_bytes)} MiB "
        f"({units.percent(found.unused_share)}) are unused, the largest free block has "
        f"{units.in_mib(found.largest_free_bytes)} MiB. At the peak {units.in_mib(found.unused_at_peak_bytes)} MiB "
        "were unused."
    )


def _peak_table(found: MemoryTimeline) -> Block:
    rows = [
        [held, units.in_mib(size), units.share(size, found.peak_bytes)] for held, size in found.at_peak.items() if size
    ]
    rows.append(["all", units.in_mib(found.peak_bytes), "100%"])
    return texts([("held by", "left"), ("MiB at the peak", "right"), ("share", "right")], rows)


def _blocks_table(blocks: Sequence[MemoryBlock]) -> Table[MemoryBlock] | None:
    return Table(_BLOCK, blocks, "The largest blocks of the pass at that moment:") if blocks else None


def _shapes(text: str) -> str:
    shown = text.replace(",", "×")
    return (shown if len(shown) <= _MAX_SHAPES else f"{shown[: _MAX_SHAPES - 1]}…") or ABSENT


_BLOCK: Sequence[Column[MemoryBlock]] = (
    words("operator", lambda one: one.operator or ABSENT),
    words("kind", lambda one: one.category),
    Column("MiB", lambda one: units.in_mib(one.size_bytes)),
    words("inputs", lambda one: _shapes(one.shapes)),
)
