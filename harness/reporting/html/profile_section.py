"""The page's profiles: a line for each model, shape and backend, which expands to layers and operators (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from markupsafe import Markup

from harness.core import units
from harness.core.schemas import Row
from harness.core.schemas.profile_record import (
    LayerGroup,
    LayerRow,
    MemoryTimeline,
    ModelProfile,
    OperatorRow,
    PartsProfile,
)
from harness.profiling.layers import OPERATORS, ns_by_group, total_ns
from harness.profiling.read_profiles import Profiled
from harness.profiling.reconcile import parts_total
from harness.profiling.side_by_side import NO_MODULE, ComparedProfiles, compared_profiles, is_tree
from harness.reporting.charts import plotly_drawer
from harness.reporting.charts.plotly_drawer import PlotGroup, short
from harness.reporting.charts.profile_charts import COLOURS, allocations, by_module
from harness.reporting.charts.rows import filter_tags
from harness.reporting.prose.boundaries import BRIEF
from harness.reporting.table import Column, filled_columns, word_column
from harness.reporting.tables.profile_tables import grade_mark, members_text, shapes_text, trust_lines
from harness.reporting.writers.html import KINDS, inline

MAX_LINES = 2_000
"""Lines of one tree: the lines that took longest, with all lines that contain them."""


@dataclass
class TreeLine:
    """A layer, or a module that is known only from its nodes.

    label: its name without the name of the line that contains it; path: its whole name; row: as profiled, None for a
    line made here. self_ns, total_ns: as in LayerRow; total_ns of a line made here is the sum of its nodes.
    """

    label: str
    path: str
    row: LayerRow | None = None
    below: list[TreeLine] = field(default_factory=list)

    @property
    def self_ns(self) -> int:
        """Time of this line alone."""
        return self.row.self_ns if self.row else 0

    @property
    def total_ns(self) -> int:
        """Time of this line and of all lines below it."""
        return self.row.total_ns if self.row else sum(line.total_ns for line in self.below)

    @property
    def group(self) -> LayerGroup | None:
        """Its own group, or the group that all lines below it share."""
        if self.row:
            return self.row.group
        groups = {line.group for line in self.below}
        return groups.pop() if len(groups) == 1 else None


def tree(layers: Sequence[LayerRow]) -> list[TreeLine]:
    """The top lines, each with the lines that it contains, in the order in which they ran."""
    return _modules(layers) if is_tree(layers) else _graph(layers)


def flat(lines: Sequence[TreeLine], most: int = MAX_LINES) -> tuple[list[tuple[int, TreeLine]], int]:
    """(depth, line) from the top, each line before its content; and how many of the shortest lines were left out."""
    everything = list(_walk(lines, 0))
    if len(everything) <= most:
        return everything, 0
    longest = sorted(range(len(everything)), key=lambda place: -everything[place][1].total_ns)[:most]
    kept = set(longest)
    shown, above = [], [True]
    for place, (depth, line) in enumerate(everything):
        # A mean may be above that of the containing line: where that line is left out, this line is too.
        fits = above[depth] and place in kept
        above[depth + 1 :] = [fits]
        if fits:
            shown.append((depth, line))
    return shown, len(everything) - len(shown)


def _walk(lines: Sequence[TreeLine], depth: int) -> Iterator[tuple[int, TreeLine]]:
    for line in lines:
        yield depth, line
        yield from _walk(line.below, depth + 1)


def _modules(layers: Sequence[LayerRow]) -> list[TreeLine]:
    lines = {row.name: TreeLine(_label(row), row.name, row) for row in layers}
    top: list[TreeLine] = []
    for row in layers:
        above = lines.get(row.parent or "")
        (above.below if above else top).append(lines[row.name])
    return top


def _label(row: LayerRow) -> str:
    """The name without the part that the line above already shows; names within a tree are paths."""
    return row.name.removeprefix(f"{row.parent}.")


def _graph(layers: Sequence[LayerRow]) -> list[TreeLine]:
    top = TreeLine("", "")
    modules: dict[str, TreeLine] = {"": top}
    unassigned = TreeLine(NO_MODULE, NO_MODULE)
    several = any(row.parent for row in layers)
    for row in layers:
        above = _module(modules, row.parent) if row.parent else unassigned if several else top
        above.below.append(TreeLine(row.name, row.name, row))
    return [*_joined_line(top).below, *([unassigned] if unassigned.below else [])]


def _module(modules: dict[str, TreeLine], path: str) -> TreeLine:
    """The line of a module; where it is new, it is made with all lines above it."""
    if path not in modules:
        above, _, label = path.rpartition(".")
        modules[path] = TreeLine(label, path)
        _module(modules, above).below.append(modules[path])
    return modules[path]


def _joined_line(line: TreeLine) -> TreeLine:
    """A module that holds only one other module is joined with it in one line: `encoder.layer`."""
    line.below = [_joined_line(below) for below in line.below]
    only = line.below[0] if len(line.below) == 1 else None
    if line.path and only and only.row is None:
        return TreeLine(f"{line.label}.{only.label}", only.path, None, only.below)
    return line


TOP_OPERATORS = 50


def layers_data(layers: Sequence[LayerRow]) -> dict[str, Any]:
    """Layers for the page's script. columns: (name, `word` or `num`); lines: depth, group, share of all time in it and
    below, share by itself, whole name, all layers fused into it, and a cell per column; more: lines left out."""
    everything = max(1, total_ns(layers))
    lines, more = flat(tree(layers), MAX_LINES)
    columns = _columns([line for _, line in lines])
    return {
        "columns": [(column.header, KINDS[column.align]) for column in columns],
        "lines": [
            (
                depth,
                line.group or "",
                short(line.total_ns / everything),
                short(line.self_ns / everything),
                line.path,
                " ".join(line.row.members) if line.row else "",
                *(column.cell(line) for column in columns),
            )
            for depth, line in lines
        ],
        "more": more,
    }


def operators_data(operators: Sequence[OperatorRow]) -> dict[str, Any]:
    """Operators for the page's script. lines: a cell per column, the longest first; more: operators left out."""
    chosen = operators[:TOP_OPERATORS]
    unit = units.time_unit(max(row.self_cpu_ns, row.self_device_ns or 0) for row in chosen)
    columns: list[Column[OperatorRow]] = [
        word_column("operator", lambda row: row.name),
        Column("calls", lambda row: f"{row.calls:g}"),
        Column(f"self CPU {unit.name}", lambda row: units.in_unit(row.self_cpu_ns, unit)),
        Column(f"self CUDA {unit.name}", lambda row: units.in_unit(row.self_device_ns, unit)),
        word_column("inputs", lambda row: row.shapes.replace(",", "×")),
    ]
    shown = filled_columns(columns, chosen)
    return {
        "columns": [(column.header, KINDS[column.align]) for column in shown],
        "lines": [[column.cell(row) for column in shown] for row in chosen],
        "more": len(operators) - len(chosen),
    }


def _columns(lines: Sequence[TreeLine]) -> list[Column[TreeLine]]:
    """The columns with known values; the notes of the profile say why the other columns are missing."""
    unit = units.time_unit(line.total_ns for line in lines)
    columns: list[Column[TreeLine]] = [
        word_column("layer", lambda line: line.label),
        word_column("kind", lambda line: line.row.kind if line.row else ""),
        Column(f"total {unit.name}", lambda line: units.in_unit(line.total_ns, unit)),
        Column(f"self {unit.name}", lambda line: units.in_unit(line.self_ns, unit)),
        Column("calls", lambda line: f"{line.row.calls:g}" if line.row and line.row.calls != 1 else ""),
        Column("GFLOP", lambda line: units.significant(flops / 1e9) if (flops := _flops(line)) else ""),
        # FLOP per nanosecond equal GFLOP per second.
        Column("GFLOP/s", lambda line: units.significant(flops / line.total_ns) if (flops := _flops(line)) else ""),
        Column("M parameters", lambda line: units.significant(held / 1e6) if (held := _parameters(line)) else ""),
        word_column("output", lambda line: shapes_text(line.row) if line.row else ""),
        Column("output KiB", lambda line: units.significant(made / 1024) if (made := _output_bytes(line)) else ""),
        word_column("fused from", lambda line: members_text(line.row) if line.row else ""),
    ]
    return filled_columns(columns, lines)


def _flops(line: TreeLine) -> int | None:
    return line.row.flops if line.row and line.total_ns else None


def _parameters(line: TreeLine) -> int | None:
    return line.row.parameters if line.row else None


def _output_bytes(line: TreeLine) -> int | None:
    return line.row.output_bytes if line.row else None


MAX_PAGE_LINES = 20_000
"""Layers in one page, about 100 bytes each; cases beyond it link to their files."""

MAX_CHANGES = 4_000
"""Allocations and frees in a chart of the page; a longer pass has its chart in a file."""

Parts = tuple[Row, ModelProfile, PartsProfile]

_FILES = ("model.json", "parts.json", "parts.md")
_NO_PART = "in no part"


@dataclass(frozen=True)
class RunProfiles:
    """All profiles of a run. folder: their folder, relative to the page."""

    folder: str = ""
    cases: Sequence[Profiled] = ()


NOTHING_PROFILED = RunProfiles()


@dataclass(frozen=True)
class TimeSegment:
    """A part of a bar. width: a share of the longest bar beside it; text: for readers; is_group: a group of layers."""

    name: str
    width: float
    text: str
    is_group: bool


@dataclass(frozen=True)
class ProfiledCase:
    """One profiled case.

    tags: values by which the page filters; figure: its time in words; bar: that time by group; sums: how far it can be
    trusted; facts: (name, figure) of the model level; links: (name, path) of its files; data: layers and operators for
    the page's script, None where the backend exposes none or the page has no room; crowded: no room for its layers;
    memory: the chart of its allocations.
    """

    case_id: str
    name: str
    tags: Sequence[str | None]
    figure: str
    bar: Sequence[TimeSegment]
    sums: Sequence[Markup]
    facts: Sequence[tuple[str, str]]
    links: Sequence[tuple[str, str]]
    notes: Sequence[str]
    data: Mapping[str, Any]
    crowded: bool
    has_traces: bool
    memory: Sequence[PlotGroup] = ()


@dataclass(frozen=True)
class ProfileGroup:
    """The cases of one model at one shape."""

    title: str
    conditions: str
    plots: Sequence[PlotGroup]
    cases: Sequence[ProfiledCase]

    @property
    def all_plots(self) -> list[PlotGroup]:
        """The plots of this profile and of its cases."""
        return [*self.plots, *(plot for case in self.cases for plot in case.memory)]


def profile_groups(profiles: RunProfiles) -> list[ProfileGroup]:
    """Profiled cases by model and shape, in the order of the rows."""
    shapes: dict[tuple[str, int | None, int, str], list[Parts]] = {}
    for row, model, parts in _with_parts(profiles.cases):
        key = (model.model, model.sequence_length, model.batch_size, row.device)
        shapes.setdefault(key, []).append((row, model, parts))
    beside = compared_profiles(profiles.cases)
    timelines = {profile.row.case_id: profile.memory for profile in profiles.cases}
    groups = _groups(beside)
    room = MAX_PAGE_LINES
    result = []
    for group in shapes.values():
        longest = max(_bar_ns(parts, row) for row, _, parts in group)
        cases = []
        for row, model, parts in group:
            bar = list(_bar(parts, row.device == "cuda", groups.get(row.case_id), longest))
            memory = _memory_plots(timelines.get(row.case_id))
            cases.append(replace(_case(model, parts, row, profiles.folder, bar, room), memory=memory))
            room -= len(cases[-1].data["layers"]["lines"]) if cases[-1].data["layers"] else 0
        row, model, _ = group[0]
        ids = {row.case_id for row, _, _ in group}
        specs = [by_module(compared) for compared in beside if compared.rows[0].case_id in ids]
        plots = [plotly_drawer.draw(spec) for spec in specs if spec]
        result.append(ProfileGroup(_title(model), _conditions(row), plots, cases))
    return result


def _memory_plots(timeline: MemoryTimeline | None) -> list[PlotGroup]:
    if timeline is None or not 0 < len(timeline.at_ns) <= MAX_CHANGES:
        return []
    return [plotly_drawer.draw(allocations("", timeline))]


def _groups(beside: Sequence[ComparedProfiles]) -> dict[str, dict[str, int]]:
    """Case → group → time in ns for backends that are compared side by side, where operators are grouped by name."""
    return {
        column.case_id: {line.name: spent for line in compared.groups.lines if (spent := line.times_ns[place])}
        for compared in beside
        for place, column in enumerate(compared.groups.columns)
    }


def _with_parts(profiled: Sequence[Profiled]) -> Iterable[Parts]:
    for profile in profiled:
        if profile.parts:
            yield profile.row, profile.model, profile.parts


def _title(profile: ModelProfile) -> str:
    length = f", sequence length {profile.sequence_length}" if profile.sequence_length else ""
    return f"{profile.model}, batch {profile.batch_size}{length}"


def _conditions(row: Row) -> str:
    return (
        f"Conditions: {row.device}, {BRIEF[row.boundary]}, one inference of the whole batch; means over profiled "
        "runs of typical length, by each backend's own profiler in a process of its own. Bars share one scale."
    )


def _case(
    profile: ModelProfile, parts: PartsProfile, row: Row, folder: str, bar: Sequence[TimeSegment], room: int
) -> ProfiledCase:
    latency = profile.achieved.latency_ns
    lines = trust_lines(parts, row.device == "cuda", None if latency is None else round(latency))
    fits = parts.layers and min(len(parts.layers), MAX_LINES) <= room
    setting = "" if profile.setting == "default" else f" {profile.setting}"
    return ProfiledCase(
        case_id=profile.case_id,
        name=f"{profile.backend} {profile.precision}{setting}{grade_mark(parts)}",
        tags=filter_tags(row),
        figure=units.duration(parts.plain_ns),
        bar=bar,
        sums=[inline(line) for line in lines],
        facts=list(_facts(profile)),
        links=[
            (name, f"{folder}/{profile.case_id}/{name}") for name in (*_FILES, *profile.memory_files, *parts.traces)
        ],
        notes=parts.notes,
        data={
            "layers": layers_data(parts.layers) if fits else None,
            "operators": operators_data(parts.operators) if parts.operators else None,
        },
        crowded=bool(parts.layers) and not fits,
        has_traces=bool(parts.traces),
    )


def _bar_ns(parts: PartsProfile, row: Row) -> int:
    return max(parts.plain_ns, parts_total(parts, row.device == "cuda") or 0)


def _bar(parts: PartsProfile, on_gpu: bool, groups: Mapping[str, int] | None, longest: int) -> Iterable[TimeSegment]:
    """Groups in the order of all charts, and the part of the plain latency that no group explains. groups: where they
    are known from the comparison with other backends."""
    total_ns = parts_total(parts, on_gpu) or 0
    alone = {str(name): spent for name, spent in ns_by_group(parts.layers).items()} or {OPERATORS: total_ns}
    sums = groups or alone
    known = {name: sums[name] for name in COLOURS if name in sums}
    rest = {_NO_PART: parts.plain_ns - total_ns} if parts.plain_ns > total_ns else {}
    for name, spent in {**known, **rest}.items():
        if spent:
            text = f"{name} {units.duration(spent)}, {units.share(spent, max(total_ns, parts.plain_ns))}"
            yield TimeSegment(name, short(spent / longest), text, name not in (OPERATORS, _NO_PART))


def group_style() -> str:
    """One colour per group, the same as in the charts of the other report."""
    return "".join(f".g-{name} {{ --own: {colour}; }}\n" for name, colour in COLOURS.items())


def _facts(profile: ModelProfile) -> Iterable[tuple[str, str]]:
    """Known figures of the model level, each with its unit."""
    achieved = profile.achieved
    giga, million = 1e9, 1e6

    def figure(value: float | None, unit: str, divisor: float = 1) -> str:
        return "" if value is None else f"{units.significant(value / divisor)} {unit}".strip()

    def work(value: float | None, unit: str, divisor: float = 1) -> str:
        """A figure based on the counted products, which may be only a part of all products."""
        if profile.uncounted:
            return f"at least {figure(value, unit, divisor)}" if value else ""
        return figure(value, unit, divisor)

    best = "" if achieved.peak_share is None else f", {units.percent(achieved.peak_share)} of the best"
    known = {
        "measured latency": "" if achieved.latency_ns is None else units.duration(achieved.latency_ns),
        "throughput": figure(achieved.items_per_s, "samples/s"),
        "tokens": figure(achieved.tokens_per_s, "tokens/s"),
        "work": work(profile.flops_per_batch, "GFLOP", giga),
        "achieved": rate + best if (rate := work(achieved.flops_per_s, "GFLOP/s", giga)) else "",
        "parameters": figure(profile.parameters, "M", million),
        "least bytes moved": figure(profile.least_bytes, "MB", million),
        "intensity": work(profile.flops_per_byte, "FLOP a byte"),
        "allocated at most": figure(profile.activation_measured_bytes, "MiB", units.MIB),
        "activations of it": figure(profile.activation_alone_bytes, "MiB", units.MIB),
        "activations, estimated": figure(profile.activation_estimated_bytes, "MiB", units.MIB),
    }
    return [(name, text) for name, text in known.items() if text]
