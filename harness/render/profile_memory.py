"""What one pass allocates and frees: as Markdown, and as a chart, change by change (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.core.schemas.profile_memory import Fragmentation, MemoryBlock, MemoryProfile
from harness.render import units
from harness.render.canvas import Margins, canvas
from harness.render.markdown import section, table
from harness.render.style import GREY, INK, drawing
from harness.render.units import ABSENT, MIB

TOP = 5
"""Blocks in the table; memory.json has more."""

_ACTIVATIONS, _TEMPORARIES = "#0072B2", "#E69F00"
_HEIGHT_IN = 2.2
_MAX_SHAPES = 48


def memory_section(found: MemoryProfile, chart: str | None = None) -> str:
    """The peak by who holds it, its largest blocks, how the allocator is used, what is not told. chart: its file."""
    alone = found.activations_peak_bytes
    counts = f"{units.count(found.allocations, 'allocation')} and {units.count(found.frees, 'free')}"
    besides = "" if alone is None else f", activations alone at most {units.in_mib(alone)} MiB"
    line = (
        f"{found.by[0].upper()}{found.by[1:]}. The pass makes {counts}; it holds at most "
        f"{units.in_mib(found.pass_peak_bytes)} MiB at once beyond what lay there before{besides}."
    )
    return section(
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
    """What the caching allocator keeps without use."""
    return (
        f"After the pass the allocator has {units.in_mib(found.reserved_bytes)} MiB reserved and "
        f"{units.in_mib(found.allocated_bytes)} MiB allocated: {units.in_mib(found.unused_bytes)} MiB "
        f"({units.percent(found.unused_share)}) are unused, the largest free block has "
        f"{units.in_mib(found.largest_free_bytes)} MiB. At the peak {units.in_mib(found.unused_at_peak_bytes)} MiB "
        "were unused."
    )


def memory_figure(title: str, found: MemoryProfile) -> Figure:
    """Bytes that the pass holds after each change, temporaries on top of the rest. ValueError where nothing changed.

    In the order of changes, as PyTorch's viewer has it: on an axis of time a peak of some microseconds is not seen.
    """
    if not found.at_ns:
        raise ValueError("no allocations to draw")
    before = found.peak_bytes - found.pass_peak_bytes
    caption = (
        f"{found.by[0].upper()}{found.by[1:]}. Zero is what lay there before the pass: {units.in_mib(before)} MiB. "
        "Their times are in memory.json."
    )
    with drawing():
        figure, (ax,) = canvas(title, (caption,), (1, 1), _HEIGHT_IN, Margins(left=0.7, right=1.5, top=0.15))
        _areas(ax, found, before)
        _mark_peak(ax, found)
        ax.set_xlim(0, len(found.at_ns))
        ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        ax.set_xlabel("allocations and frees of the pass, in order")
        ax.set_ylabel("MiB")
        ax.grid(axis="y")
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), handlelength=1.2, borderaxespad=0)
    return figure


def _areas(ax: Axes, found: MemoryProfile, before: int) -> None:
    at = range(len(found.at_ns) + 1)  # a step lasts until the next one, the last one too
    whole = [(allocated - before) / MIB for allocated in _lasting(found.allocated_bytes)]
    rest = [height - inside / MIB for height, inside in zip(whole, _lasting(found.temporaries_bytes), strict=True)]
    name = "activations" if found.activations_peak_bytes is not None else "activations,\nsome temporaries"
    ax.fill_between(at, rest, step="post", color=_ACTIVATIONS, linewidth=0, label=name)
    if any(found.temporaries_bytes):
        ax.fill_between(
            at, whole, rest, step="post", color=_TEMPORARIES, linewidth=0, label="temporaries of\noperators"
        )
    if found.reserved_bytes is not None:
        reserved = [(size - before) / MIB for size in _lasting(found.reserved_bytes)]
        ax.step(at, reserved, where="post", color=GREY, linewidth=1.2, label="reserved")
    highest = max(*whole, *((size - before) / MIB for size in found.reserved_bytes or ()), 0)
    ax.set_ylim(min(0, *whole), 1.22 * highest or 1)


def _lasting(values: Sequence[int]) -> list[int]:
    return [*values, values[-1]]


def _mark_peak(ax: Axes, found: MemoryProfile) -> None:
    place = max(range(len(found.at_ns)), key=found.allocated_bytes.__getitem__)
    height = found.pass_peak_bytes / MIB
    right = place > len(found.at_ns) / 2
    ax.annotate(
        f"peak {units.significant(height)} MiB",
        (place + right, height),
        xytext=(-3 if right else 3, 5),
        textcoords="offset points",
        ha="right" if right else "left",
        fontsize=8.5,
        color=INK,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
    )


def _peak_table(found: MemoryProfile) -> str:
    rows = [
        [held, units.in_mib(size), units.share(size, found.peak_bytes)] for held, size in found.at_peak.items() if size
    ]
    return table(["held by", "MiB at the peak", "share"], [*rows, ["all", units.in_mib(found.peak_bytes), "100%"]])


def _blocks_table(blocks: Sequence[MemoryBlock]) -> str:
    if not blocks:
        return ""
    rows = [[one.operator or ABSENT, one.category, units.in_mib(one.size_bytes), _shapes(one.shapes)] for one in blocks]
    return f"The largest blocks of the pass at that moment:\n\n{table(['operator', 'kind', 'MiB', 'inputs'], rows)}"


def _shapes(text: str) -> str:
    shown = text.replace(",", "×")
    return (shown if len(shown) <= _MAX_SHAPES else f"{shown[: _MAX_SHAPES - 1]}…") or ABSENT
