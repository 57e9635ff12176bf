"""The chart of the allocations and frees of one pass, change by change (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.core.schemas.profile_record import MemoryTimeline
from harness.reporting import units
from harness.reporting.charts.matplotlib_drawer import PanelMargins, canvas
from harness.reporting.charts.style import GREY, INK, drawing
from harness.reporting.units import MIB

_ACTIVATIONS, _TEMPORARIES = "#0072B2", "#E69F00"
_HEIGHT_IN = 2.2


def memory_figure(title: str, found: MemoryTimeline) -> Figure:
    """Bytes that the pass holds after each change, temporaries on top of the rest. ValueError where nothing changed.

    The x axis is the order of changes, as in PyTorch's viewer: on a time axis a peak of some microseconds is invisible.
    """
    if not found.at_ns:
        raise ValueError("no allocations to draw")
    before = found.peak_bytes - found.pass_peak_bytes
    caption = (
        f"{found.by[0].upper()}{found.by[1:]}. Zero is what lay there before the pass: {units.in_mib(before)} MiB. "
        "Their times are in memory.json."
    )
    with drawing():
        figure, (ax,) = canvas(title, (caption,), (1, 1), _HEIGHT_IN, PanelMargins(left=0.7, right=1.5, top=0.15))
        _areas(ax, found, before)
        _mark_peak(ax, found)
        ax.set_xlim(0, len(found.at_ns))
        ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        ax.set_xlabel("allocations and frees of the pass, in order")
        ax.set_ylabel("MiB")
        ax.grid(axis="y")
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), handlelength=1.2, borderaxespad=0)
    return figure


def _areas(ax: Axes, found: MemoryTimeline, before: int) -> None:
    at = range(len(found.at_ns) + 1)  # a step lasts until the next step; so does the last one
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


def _mark_peak(ax: Axes, found: MemoryTimeline) -> None:
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
