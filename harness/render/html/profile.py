"""The page's profiles: model, shape and backend as lines that fold out to layers and operators (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from harness.core.schemas import Row
from harness.core.schemas.profile import ModelProfile
from harness.core.schemas.profile_parts import PartsProfile
from harness.measure.alike import Alike, alike
from harness.measure.layer_sums import by_group
from harness.measure.operator_groups import OPERATORS
from harness.measure.profiled import Profiled
from harness.measure.reconcile import parts_total
from harness.render import units
from harness.render.html.layer_tree import MAX_LINES
from harness.render.html.profile_tables import layers_data, operators_data
from harness.reporting.charts import plotly_drawer
from harness.reporting.charts.layers import COLOURS, by_module
from harness.reporting.charts.plotly_drawer import PlotGroup, short
from harness.reporting.charts.rows import tags
from harness.reporting.tables.layers import mark, trust_lines
from harness.reporting.writers.html import inline

MAX_PAGE_LINES = 20_000
"""Layers in one page, about 100 bytes each; cases beyond it link to their files."""

Parts = tuple[Row, ModelProfile, PartsProfile]

_FILES = ("model.json", "parts.json", "parts.md")
_NO_PART = "in no part"


@dataclass(frozen=True)
class Profiles:
    """All that was profiled of a run. folder: where it stands, relative to the page."""

    folder: str = ""
    found: Sequence[Profiled] = ()


NOTHING_PROFILED = Profiles()


@dataclass(frozen=True)
class Segment:
    """A part of a bar. width: a share of the longest bar beside it; text: for readers; is_group: layers are of it."""

    name: str
    width: float
    text: str
    is_group: bool


@dataclass(frozen=True)
class Case:
    """One profiled case.

    tags: what the page filters by; figure: its time in words; bar: that time by group; sums: how far it can be trusted;
    facts: (name, figure) of the model level; links: (name, path) of its files; data: layers and operators for the
    page's script, None of each that was not told or found no room; crowded: layers found none.
    """

    case_id: str
    name: str
    tags: Sequence[str | None]
    figure: str
    bar: Sequence[Segment]
    sums: Sequence[Markup]
    facts: Sequence[tuple[str, str]]
    links: Sequence[tuple[str, str]]
    notes: Sequence[str]
    data: Mapping[str, Any]
    crowded: bool
    has_traces: bool


@dataclass(frozen=True)
class Kin:
    """The cases of one model at one shape."""

    title: str
    conditions: str
    plots: Sequence[PlotGroup]
    cases: Sequence[Case]


def kins(profiles: Profiles) -> list[Kin]:
    """By model and shape in the order of the rows."""
    shapes: dict[tuple[str, int | None, int, str], list[Parts]] = {}
    for row, model, parts in _with_parts(profiles.found):
        key = (model.model, model.sequence_length, model.batch_size, row.device)
        shapes.setdefault(key, []).append((row, model, parts))
    beside = alike(profiles.found)
    groups = _groups(beside)
    room = MAX_PAGE_LINES
    result = []
    for kin in shapes.values():
        longest = max(_bar_ns(parts, row) for row, _, parts in kin)
        cases = []
        for row, model, parts in kin:
            bar = list(_bar(parts, row.device == "cuda", groups.get(row.case_id), longest))
            cases.append(_case(model, parts, row, profiles.folder, bar, room))
            room -= len(cases[-1].data["layers"]["lines"]) if cases[-1].data["layers"] else 0
        row, model, _ = kin[0]
        ids = {row.case_id for row, _, _ in kin}
        specs = [by_module(found) for found in beside if found.rows[0].case_id in ids]
        plots = [plotly_drawer.draw(spec) for spec in specs if spec]
        result.append(Kin(_title(model), _conditions(row), plots, cases))
    return result


def _groups(beside: Sequence[Alike]) -> dict[str, dict[str, int]]:
    """Case → group → time in ns, where backends stand side by side: operators are told apart by name there."""
    return {
        column.case_id: {line.name: spent for line in found.groups.lines if (spent := line.times_ns[place])}
        for found in beside
        for place, column in enumerate(found.groups.columns)
    }


def _with_parts(profiled: Sequence[Profiled]) -> Iterable[Parts]:
    for found in profiled:
        if found.parts:
            yield found.row, found.model, found.parts


def _title(found: ModelProfile) -> str:
    length = f", sequence length {found.sequence_length}" if found.sequence_length else ""
    return f"{found.model}, batch {found.batch_size}{length}"


def _conditions(row: Row) -> str:
    return (
        f"Conditions: {row.device}, {row.boundary} boundary, one inference of the whole batch; means over profiled "
        "runs of typical length, by each backend's own profiler in a process of its own. Bars share one scale."
    )


def _case(found: ModelProfile, parts: PartsProfile, row: Row, folder: str, bar: Sequence[Segment], room: int) -> Case:
    latency = found.achieved.latency_ns
    lines = trust_lines(parts, row.device == "cuda", None if latency is None else round(latency))
    fits = parts.layers and min(len(parts.layers), MAX_LINES) <= room
    way = "" if found.setting == "default" else f" {found.setting}"
    return Case(
        case_id=found.case_id,
        name=f"{found.backend} {found.precision}{way}{mark(parts)}",
        tags=tags(row),
        figure=units.duration(parts.plain_ns),
        bar=bar,
        sums=[inline(line) for line in lines],
        facts=list(_facts(found)),
        links=[(name, f"{folder}/{found.case_id}/{name}") for name in (*_FILES, *found.memory_files, *parts.traces)],
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


def _bar(parts: PartsProfile, on_gpu: bool, groups: Mapping[str, int] | None, longest: int) -> Iterable[Segment]:
    """Groups in their order of every figure, and what of the plain latency stands in no part. groups: where they are
    known from the comparison with other backends."""
    told = parts_total(parts, on_gpu) or 0
    alone = {str(name): spent for name, spent in by_group(parts.layers).items()} or {OPERATORS: told}
    sums = groups or alone
    known = {name: sums[name] for name in COLOURS if name in sums}
    rest = {_NO_PART: parts.plain_ns - told} if parts.plain_ns > told else {}
    for name, spent in {**known, **rest}.items():
        if spent:
            text = f"{name} {units.duration(spent)}, {units.share(spent, max(told, parts.plain_ns))}"
            yield Segment(name, short(spent / longest), text, name not in (OPERATORS, _NO_PART))


def group_style() -> str:
    """One colour a group, the same as in the other report's charts."""
    return "".join(f".g-{name} {{ --own: {colour}; }}\n" for name, colour in COLOURS.items())


def _facts(found: ModelProfile) -> Iterable[tuple[str, str]]:
    """What is known of the model level, each with its unit."""
    achieved = found.achieved
    giga, million = 1e9, 1e6

    def figure(value: float | None, unit: str, divisor: float = 1) -> str:
        return "" if value is None else f"{units.significant(value / divisor)} {unit}".strip()

    def work(value: float | None, unit: str, divisor: float = 1) -> str:
        """A figure that rests on the counted products, which may be a part of all."""
        if found.uncounted:
            return f"at least {figure(value, unit, divisor)}" if value else ""
        return figure(value, unit, divisor)

    best = "" if achieved.peak_share is None else f", {units.percent(achieved.peak_share)} of the best"
    known = {
        "measured latency": "" if achieved.latency_ns is None else units.duration(achieved.latency_ns),
        "throughput": figure(achieved.items_per_s, "items/s"),
        "tokens": figure(achieved.tokens_per_s, "tokens/s"),
        "work": work(found.flops_per_batch, "GFLOP", giga),
        "achieved": rate + best if (rate := work(achieved.flops_per_s, "GFLOP/s", giga)) else "",
        "parameters": figure(found.parameters, "M", million),
        "least bytes moved": figure(found.least_bytes, "MB", million),
        "intensity": work(found.flops_per_byte, "FLOP a byte"),
        "allocated at most": figure(found.activation_measured_bytes, "MiB", units.MIB),
        "activations of it": figure(found.activation_alone_bytes, "MiB", units.MIB),
        "activations, estimated": figure(found.activation_estimated_bytes, "MiB", units.MIB),
    }
    return [(name, text) for name, text in known.items() if text]
