"""The chart of the allocations and frees of one pass, change by change (pure)."""

from __future__ import annotations

from harness.core.schemas.profile_record import MemoryTimeline
from harness.reporting import units
from harness.reporting.charts.spec import Area, Areas, Axis, even_ticks
from harness.reporting.charts.style import GREY
from harness.reporting.units import MIB

_ACTIVATIONS, _TEMPORARIES = "#0072B2", "#E69F00"


def allocations(title: str, timeline: MemoryTimeline) -> Areas:
    """Bytes that the pass holds after each change, temporaries on top of the rest. ValueError where nothing changed.

    The x axis is the order of changes, as in PyTorch's viewer: on a time axis a peak of some microseconds is invisible.
    """
    if not timeline.at_ns:
        raise ValueError("no allocations to draw")
    before = timeline.peak_bytes - timeline.pass_peak_bytes
    whole = tuple((allocated - before) / MIB for allocated in timeline.allocated_bytes)
    rest = tuple(height - inside / MIB for height, inside in zip(whole, timeline.temporaries_bytes, strict=True))
    name = "activations" if timeline.activations_peak_bytes is not None else "activations,\nsome temporaries"
    areas = [Area(name, _ACTIVATIONS, rest)]
    if any(timeline.temporaries_bytes):
        areas.append(Area("temporaries of\noperators", _TEMPORARIES, whole))
    outline = None
    if timeline.reserved_bytes is not None:
        outline = Area("reserved", GREY, tuple((size - before) / MIB for size in timeline.reserved_bytes))
    highest = max(*whole, *(outline.tops if outline else ()), 0)
    low, high = min(0, *whole), 1.22 * highest or 1
    peak = timeline.pass_peak_bytes / MIB
    return Areas(
        title,
        "Memory over the pass",
        f"{timeline.by[0].upper()}{timeline.by[1:]}. Zero: the {units.in_mib(before)} MiB allocated before the pass. "
        "The times of the changes are in memory.json.",
        "",
        Axis(
            "allocations and frees of the pass, in order",
            0,
            len(timeline.at_ns),
            tuple(even_ticks(0, len(timeline.at_ns), 8)),
        ),
        Axis("MiB", low, high, tuple(even_ticks(low, high, 5))),
        tuple(areas),
        outline,
        (
            max(range(len(timeline.at_ns)), key=timeline.allocated_bytes.__getitem__),
            peak,
            f"peak {units.significant(peak)} MiB",
        ),
    )
