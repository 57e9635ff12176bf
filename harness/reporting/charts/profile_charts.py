"""The charts of profiles: time by layer as stacked bars, and allocations and frees change by change (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from harness.core import units
from harness.core.schemas import Row
from harness.core.schemas.profile_record import MemoryTimeline
from harness.core.units import MIB, TimeUnit
from harness.profiling.side_by_side import ComparedColumn, ComparedProfiles, SideBySide, SideBySideLine, line_gain_ns
from harness.reporting.charts.rows import filter_tags
from harness.reporting.charts.spec import Area, Areas, Axis, Bar, Segment, Stacked, axis_from_zero, even_ticks
from harness.reporting.charts.style import GREY
from harness.reporting.tables.side_by_side_table import IDLE, title_of

COLOURS: Mapping[str, str] = {
    "attention": "#332288",
    "mlp": "#CC6677",
    "convolution": "#88CCEE",
    "linear": "#DDCC77",
    "normalisation": "#117733",
    "embedding": "#882255",
    "activation": "#44AA99",
    "pooling": "#999933",
    "layout": "#AA4499",
    "matmul": "#EE8866",
    "elementwise": "#6699CC",
    "other": "#DDDDDD",
    "operators": "#8C8C8C",
}
"""Paul Tol's muted scheme (personal.sron.nl/~pault), distinct with every common colour blindness, two colours of his
other schemes for kernels, and greys for unknown parts. A group has the same colour and place in every chart."""

MAX_SEGMENTS = 14
"""Largest number of modules of a bar; the shortest of the others share one segment."""

_TRIANGLE = "Triangle: the median latency measured without a profiler."


def by_group(alike: ComparedProfiles, conditions: str) -> Stacked:
    """The groups of layers of a comparison, the fastest backend first."""
    lines = sorted(alike.groups.lines, key=lambda line: list(COLOURS).index(line.name))
    reading = (
        "Segments: self times by each backend's own profiler, in a pass of its own; a kernel that fuses several "
        f"modules counts for the group of its product. {_TRIANGLE}"
    )

    def written(line: SideBySideLine, figure: str) -> tuple[str, ...]:
        return (f"{line.name} {figure}", figure)

    known = [(line.name, line) for line in lines]
    title = title_of(alike)
    return _stacked(title, title, reading, conditions, alike.groups, alike.rows, known, written)


def by_module(alike: ComparedProfiles) -> Stacked | None:
    """The modules of a comparison in the colours of their groups; None where fewer than two backends have modules."""
    modules = alike.modules
    if modules is None:
        return None
    order = list(COLOURS)
    known = [(_group(line, modules.columns), line) for line in _longest(modules)]
    # Segments of one group are side by side, the longest first.
    known.sort(key=lambda pair: order.index(pair[0]))
    reading = (
        "Segment: time in a module by itself, all blocks together, in the colour of its group; a kernel that fuses "
        f"several modules counts for what they share. {_TRIANGLE}"
    )
    title = f"{alike.shape}: the same modules in each backend"
    return _stacked(title, title, reading, "", modules, alike.rows, known, lambda line, _: (short_name(line),))


def _stacked(
    title: str,
    heading: str,
    reading: str,
    conditions: str,
    side: SideBySide,
    rows: Sequence[Row],
    known: Sequence[tuple[str, SideBySideLine]],
    written: Callable[[SideBySideLine, str], tuple[str, ...]],
) -> Stacked:
    """The bars. known: (group, line) in the order of the segments. written: labels for a segment with this figure."""
    unit = units.time_unit(column.parts_ns for column in side.columns)
    by_id = {row.case_id: row for row in rows}
    bars = []
    for place, column in enumerate(side.columns):
        segments = [
            _segment(group, line, spent, side, place, unit, written)
            for group, line in known
            if (spent := line.times_ns[place]) is not None
        ]
        bars.append(_bar(column, segments, by_id[column.case_id], unit))
    idle = any(bar.idle for bar in bars)
    ends = [sum(segment.length for segment in bar.segments) + bar.idle for bar in bars]
    longest = max([*ends, *(bar.latency or 0 for bar in bars)])
    return Stacked(
        title,
        heading,
        reading,
        conditions,
        axis_from_zero(f"time of one inference ({unit.name})", longest, room=1.02, most=6),
        tuple(bars),
        tuple(dict.fromkeys(line.name for _, line in known)),
        tuple((name, COLOURS[name]) for name in COLOURS if name in {group for group, _ in known}),
        IDLE if idle else "",
    )


def _segment(
    group: str,
    line: SideBySideLine,
    spent: int,
    side: SideBySide,
    place: int,
    unit: TimeUnit,
    written: Callable[[SideBySideLine, str], tuple[str, ...]],
) -> Segment:
    labels = written(line, units.in_unit(spent, unit))
    return Segment(line.name, COLOURS[group], spent / unit.ns, labels, _hover(line, side, place))


def _bar(column: ComparedColumn, segments: Sequence[Segment], row: Row, unit: TimeUnit) -> Bar:
    latency = column.latency_ns
    idle = (
        f"{escape(column.name)}: no kernel running for {units.duration(column.idle_ns)} of its "
        f"{column.idle_share.of if column.idle_share else 'latency'}"
        if column.idle_ns
        else ""
    )
    return Bar(
        column.name,
        "" if latency is None else f"{units.in_unit(latency, unit)} {unit.name}",
        tuple(segments),
        column.idle_ns / unit.ns,
        idle,
        None if latency is None else latency / unit.ns,
        "" if latency is None else f"measured latency {units.duration(latency)}",
        filter_tags(row),
    )


def _longest(side: SideBySide) -> list[SideBySideLine]:
    """The lines, the longest first; those above the limit are joined in one line."""
    lines = sorted((line for line in side.lines if _sum(line)), key=lambda line: -_sum(line))
    if len(lines) <= MAX_SEGMENTS:
        return lines
    rest = lines[MAX_SEGMENTS - 1 :]
    times = tuple(sum(line.times_ns[place] or 0 for line in rest) for place in range(len(side.columns)))
    return [*lines[: MAX_SEGMENTS - 1], SideBySideLine(f"{len(rest)} shorter ones", times)]


def _sum(line: SideBySideLine) -> int:
    return sum(spent or 0 for spent in line.times_ns)


def short_name(line: SideBySideLine) -> str:
    """The name within its block, or the end of its path, which may fit on a segment."""
    _, block, inside = line.name.partition(" (")[0].rpartition("*.")
    if block or " " in inside:
        return inside
    path, _, last = inside.rpartition(".")
    return last if last != "*" else f"{path.rpartition('.')[2]}.*"


def _hover(line: SideBySideLine, side: SideBySide, place: int) -> str:
    spent, column = line.times_ns[place] or 0, side.columns[place]
    gain = line_gain_ns(line)
    verb, than = ("gains", "over") if gain >= 0 else ("loses", "to")
    return "<br>".join(
        (
            f"<b>{escape(line.name)}</b>",
            f"{escape(column.name)}: {units.duration(spent)}, {units.share(spent, column.parts_ns)} of its parts",
            f"{escape(side.fastest.name)} {verb} {units.duration(abs(gain))} here {than} {escape(side.slowest.name)}",
        )
    )


def _group(line: SideBySideLine, columns: Sequence[ComparedColumn]) -> str:
    """The group in which the modules of a line spend most of their time."""
    sums = {"other": 0}
    for column in columns:
        for row in column.parts.layers:
            if row.name in line.modules or row.parent in line.modules:
                sums[row.group] = sums.get(row.group, 0) + row.self_ns
    return max(sums, key=lambda name: sums[name])


_ACTIVATIONS, _TEMPORARIES = "#0072B2", "#E69F00"


def allocations(title: str, timeline: MemoryTimeline) -> Areas:
    """Bytes that the pass holds after each change, temporaries on top of the rest. ValueError where nothing changed.

    The x axis is the order of changes, as in PyTorch's viewer: on a time axis a peak of some microseconds is invisible.
    """
    if not timeline.at_ns:
        raise ValueError("no allocations to draw")
    before = timeline.peak_bytes - timeline.pass_peak_bytes
    heights = tuple((allocated - before) / MIB for allocated in timeline.allocated_bytes)
    rest = tuple(height - inside / MIB for height, inside in zip(heights, timeline.temporaries_bytes, strict=True))
    name = "activations" if timeline.activations_peak_bytes is not None else "activations,\nsome temporaries"
    areas = [Area(name, _ACTIVATIONS, rest)]
    if any(timeline.temporaries_bytes):
        areas.append(Area("temporaries of\noperators", _TEMPORARIES, heights))
    outline = None
    if timeline.reserved_bytes is not None:
        outline = Area("reserved", GREY, tuple((size - before) / MIB for size in timeline.reserved_bytes))
    highest = max(*heights, *(outline.tops if outline else ()), 0)
    low, high = min(0, *heights), 1.22 * highest or 1
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
