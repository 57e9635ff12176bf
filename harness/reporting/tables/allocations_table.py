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


def memory_blocks(timeline: MemoryTimeline, chart: str | None = None) -> list[Block]:
    """The peak by holder, its largest blocks, the use of the allocator, and unknown parts. chart: its file."""
    alone = timeline.activations_peak_bytes
    counts = f"{units.count(timeline.allocations, 'allocation')} and {units.count(timeline.frees, 'free')}"
    besides = "" if alone is None else f", activations alone at most {units.in_mib(alone)} MiB"
    line = (
        f"{timeline.by[0].upper()}{timeline.by[1:]}. The pass makes {counts}; it holds at most "
        f"{units.in_mib(timeline.pass_peak_bytes)} MiB at once beyond what lay there before{besides}."
    )
    return titled(
        "Memory",
        line,
        _peak_table(timeline),
        _blocks_table(timeline.alive_at_peak[:TOP]),
        "" if timeline.fragmentation is None else fragmentation_line(timeline.fragmentation),
        ""
        if timeline.snapshot is None
        else f"`{timeline.snapshot}` opens in PyTorch's viewer, pytorch.org/memory_viz.",
        "\n".join(f"- {note}" for note in timeline.notes),
        "" if chart is None else f"![Memory over the pass]({chart})",
    )


def fragmentation_line(fragmentation: Fragmentation) -> str:
    """Memory that the caching allocator keeps without use."""
    return (
        f"After the pass the allocator has {units.in_mib(fragmentation.reserved_bytes)} MiB reserved and "
        f"{units.in_mib(fragmentation.allocated_bytes)} MiB allocated: {units.in_mib(fragmentation.unused_bytes)} MiB "
        f"({units.percent(fragmentation.unused_share)}) are unused, the largest free block has "
        f"{units.in_mib(fragmentation.largest_free_bytes)} MiB. "
        f"At the peak {units.in_mib(fragmentation.unused_at_peak_bytes)} MiB were unused."
    )


def _peak_table(timeline: MemoryTimeline) -> Block:
    rows = [
        [held, units.in_mib(size), units.share(size, timeline.peak_bytes)]
        for held, size in timeline.at_peak.items()
        if size
    ]
    rows.append(["all", units.in_mib(timeline.peak_bytes), "100%"])
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
