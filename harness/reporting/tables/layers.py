"""Where the time of a case goes, as Markdown: its layers, groups and operators (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.schemas import Summary
from harness.core.schemas.profile_parts import Group, LayerRow, OperatorRow, PartsProfile
from harness.measure.grades import RANKED
from harness.measure.launch_gaps import IdleShare, idle_share
from harness.measure.layer_choice import EVERYTHING, Choice, chosen
from harness.measure.layer_sums import by_group, total
from harness.measure.profile_grades import flags_of, grade_of, spread
from harness.measure.profiled import Profiled
from harness.measure.reconcile import Reconciliation, are_kernels, reconcile
from harness.render import units
from harness.render.kernel_names import kernel_name
from harness.render.units import ABSENT, MILLISECOND
from harness.reporting.labels import Line, about, per
from harness.reporting.writers.markdown import table

TOP = 15
"""Rows of a table of layers or operators; the files beside the report have all."""

_MAX_NAME = 48
_MAX_MEMBERS = 4


def profile_text(parts: PartsProfile, on_gpu: bool, measured_ns: int | None = None, choice: Choice = EVERYTHING) -> str:
    """Everything about one case: its grade, whether its parts add up, groups, the longest layers and operators, notes.

    choice: which layers the table of layers shows; sums and groups are always those of all.
    """
    blocks = [
        *trust_lines(parts, on_gpu, measured_ns),
        groups_table({"time": parts}) if parts.layers else "",
        layers_table(parts.layers, choice=choice) if parts.layers else "",
        operators_table(parts.operators) if parts.operators else "",
        "\n".join(f"- {note}" for note in parts.notes),
    ]
    return "\n\n".join(block for block in blocks if block)


def trust_lines(parts: PartsProfile, on_gpu: bool, measured_ns: int | None = None) -> list[str]:
    """How far the times can be trusted: grade and flags, whether they add up, how the repeats agree, launch gaps."""
    found, gaps = reconcile(parts, on_gpu, measured_ns), idle_share(parts, measured_ns)
    return [
        grade_line(parts),
        *([reconciliation_line(found)] if found else []),
        *([repeats_line(parts)] if parts.ratios else []),
        *([gaps_line(gaps)] if gaps else []),
    ]


def grade_line(parts: PartsProfile) -> str:
    """The grade of a profile, and of each flag what happened and what to do."""
    flags, grade = flags_of(parts), grade_of(parts)
    if not flags:
        return f"Grade {grade}: a monitor watched it, and nothing disturbed it."
    said = " ".join(f"{flag.name}: {flag.detail}. {flag.remedy}" for flag in flags)
    return f"Grade {grade}{', so that nothing is concluded from its times' if grade == 'C' else ''}. {said}"


def repeats_line(parts: PartsProfile) -> str:
    """How often it was profiled, and how far the sums of the repeats lie apart."""
    often = units.count(len(parts.ratios), "time")
    apart = spread(parts.ratios)
    range_ = f"{min(parts.ratios):.2f} to {max(parts.ratios):.2f} of the plain latency"
    spreads = "" if apart is None else f", a spread of {units.percent(apart)}"
    return f"Profiled {often}, each in a fresh process: the parts sum to {range_}{spreads}. The last one is shown."


def gaps_line(found: IdleShare) -> str:
    """In which share of which latency no kernel ran."""
    return f"Launch gaps: in {units.percent(found.share)} of the {found.of} no kernel ran on the GPU."


def mark(parts: PartsProfile) -> str:
    """What stands behind the name of a profile that shows nothing: ` (grade C)`; empty where it may be trusted."""
    if grade_of(parts) not in RANKED:
        return f" (grade {grade_of(parts)})"
    found = reconcile(parts, are_kernels(parts))
    return f" ({found.outcome})" if found and found.outcome == "unexplained" else ""


def reconciliation_line(found: Reconciliation) -> str:
    """Whether the parts explain the latency, what profiling cost, and what was measured of a sum that is off."""
    cost = f"{found.overhead:+.1%}".replace("-", "−")
    reasons = f", {found.corrected:.2f} with what was measured beside them" if found.outcome == "explained" else ""
    line = (
        f"The parts sum to {units.duration(found.parts_ns)}, {found.ratio:.2f} of the plain latency of "
        f"{units.duration(found.plain_ns)}: {found.outcome}{reasons}. Profiling changed the run by {cost}."
    )
    if found.measured_ns is not None:
        line += f" The case's measured latency is {units.duration(found.measured_ns)}."
    return " ".join([line, *(f"{reason[0].upper()}{reason[1:]}." for reason in found.reasons)])


def layers_table(layers: Sequence[LayerRow], top: int = TOP, choice: Choice = EVERYTHING) -> str:
    """The layers of a choice that take the longest by themselves, and a line with which all of them add up."""
    found = chosen(layers, choice)
    if not found:
        return f"No layer matches {choice_words(choice)}."
    everything = total(layers)
    shown = sorted(found, key=lambda row: -row.self_ns)[:top]
    unit = units.time_unit(row.self_ns for row in shown)
    # A column that nobody can fill says nothing; the notes say why.
    has_calls = any(row.calls != 1 for row in layers)
    has_flops = any(row.flops is not None for row in layers)
    has_members = any(row.members for row in layers)
    in_stream = any(row.stream_ns is not None for row in layers)
    has_modules = any(row.parent and row.depth == 0 for row in layers)
    headers = ["layer", "kind", *(["from module"] if has_modules else []), "group", *(["calls"] if has_calls else [])]
    headers += [
        f"self {unit.name}",
        "share",
        *([f"in stream {unit.name}"] if in_stream else []),
        *(["GFLOP"] if has_flops else []),
        "output",
        *(["fused from"] if has_members else []),
    ]
    rows = [
        [
            short_name(row.name),
            row.kind,
            *([short_name(row.parent or ABSENT)] if has_modules else []),
            row.group,
            *([f"{row.calls:g}"] if has_calls else []),
            units.in_unit(row.self_ns, unit),
            units.share(row.self_ns, everything),
            *([units.in_unit(row.stream_ns, unit)] if in_stream else []),
            *([units.significant(None if row.flops is None else row.flops / 1e9)] if has_flops else []),
            _shape(row),
            *([_members(row)] if has_members else []),
        ]
        for row in shown
    ]
    share = units.share(total(shown), everything)
    title = f"{_of(len(shown), len(found), 'layer')}{_that_match(choice, len(layers))}, {share} of the time:"
    return f"{title}\n\n{table(headers, rows)}\n\n{sums_line(layers, found, shown)}".rstrip()


def sums_line(layers: Sequence[LayerRow], found: Sequence[LayerRow], shown: Sequence[LayerRow]) -> str:
    """With which parts the layers shown add up to all; empty where they are all.

    found: what the choice holds, of which the longest are shown.
    """
    rest = [row for row in found if row not in shown]
    outside = total(layers) - total(found)
    parts = [f"shown {units.duration(total(shown))}"]
    if rest:
        parts.append(f"{units.count(len(rest), 'shorter one')} {units.duration(total(rest))}")
    if outside:
        parts.append(f"left out by the choice {units.duration(outside)}")
    return "" if len(parts) == 1 else f"Sums: {' + '.join(parts)} = {units.duration(total(layers))}."


def choice_words(choice: Choice) -> str:
    """The words of a choice as a sentence has them."""
    return " or ".join(f"`{word}`" for word in choice.words)


def operators_table(operators: Sequence[OperatorRow]) -> str:
    """The operators and kernels that take the longest, on the host and on the device."""
    chosen = operators[:TOP]
    on_device = any(row.self_device_ns is not None for row in operators)
    unit = units.time_unit(max(row.self_cpu_ns, row.self_device_ns or 0) for row in chosen)
    headers = [
        "operator",
        "calls",
        f"self CPU {unit.name}",
        *([f"self CUDA {unit.name}"] if on_device else []),
        "inputs",
    ]
    rows = [
        [
            short_name(kernel_name(row.name)),
            f"{row.calls:g}",
            units.in_unit(row.self_cpu_ns, unit),
            *([units.in_unit(row.self_device_ns, unit)] if on_device else []),
            short_name(row.shapes.replace(",", "×")) or ABSENT,
        ]
        for row in chosen
    ]
    return f"{_of(len(chosen), len(operators), 'operator')}, the longest first:\n\n{table(headers, rows)}"


def groups_table(profiles: Mapping[str, PartsProfile]) -> str:
    """Time by group, a column a profile that has layers, marked where it shows nothing; each with its share where there
    is only one."""
    sums = {f"{name}{mark(parts)}": by_group(parts.layers) for name, parts in profiles.items() if parts.layers}
    if not sums:
        return ""
    groups = sorted({group for one in sums.values() for group in one}, key=lambda group: -_most(sums, group))
    unit = units.time_unit(sum(one.values()) for one in sums.values())
    alone = len(sums) == 1
    rows = [
        [
            group,
            *(units.in_unit(one.get(group), unit) for one in sums.values()),
            *([units.share(one.get(group, 0), sum(one.values())) for one in sums.values()] if alone else []),
        ]
        for group in groups
    ]
    rows.append(
        ["all", *(units.in_unit(sum(one.values()), unit) for one in sums.values()), *(["100%"] if alone else [])]
    )
    return table(["group", *(f"{name} {unit.name}" for name in sums), *(["share"] if alone else [])], rows)


def _most(sums: Mapping[str, Mapping[Group, int]], group: Group) -> int:
    return max(one.get(group, 0) for one in sums.values())


def _shape(row: LayerRow) -> str:
    return " ".join("×".join(map(str, shape)) or "1" for shape in row.output_shapes) or ABSENT


def _members(row: LayerRow) -> str:
    more = len(row.members) - _MAX_MEMBERS
    return " + ".join(row.members[:_MAX_MEMBERS]) + (f" + {more} more" if more > 0 else "") or ABSENT


def short_name(name: str, longest: int = _MAX_NAME) -> str:
    """A long name by its end, which tells it from others of its kind."""
    return name if len(name) <= longest else f"…{name[1 - longest :]}"


def _of(shown: int, everything: int, what: str) -> str:
    return units.count(everything, what) if shown == everything else f"{shown} of {units.count(everything, what)}"


def _that_match(choice: Choice, everything: int) -> str:
    named = f" matching {choice_words(choice)} (of {everything})" if choice.words else ""
    return named if choice.depth is None else f"{named} down to depth {choice.depth}, what is deeper added to them"


def group_lines(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """A line for each group of layers of each case; the shares of a case add up to 1."""
    return [
        about(summary, one.row, {"group": group, **_spent(spent, one.layers)})
        for one in found
        for group, spent in by_group(one.layers).items()
    ]


def layer_lines(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """A line for each layer of each case, in the order in which its profiler told them."""
    return [about(summary, one.row, _layer(layer, one.layers)) for one in found for layer in one.layers]


def _layer(layer: LayerRow, layers: Sequence[LayerRow]) -> Line:
    return {
        "layer": layer.name,
        "kind": layer.kind,
        "group": layer.group,
        "depth": layer.depth,
        "parent": layer.parent,
        "calls": layer.calls,
        **_spent(layer.self_ns, layers),
        "total_ms": per(layer.total_ns, MILLISECOND),
        "in_stream_ms": per(layer.stream_ns, MILLISECOND),
        "flops": layer.flops,
        "parameters": layer.parameters,
        "output_shapes": " ".join("x".join(map(str, shape)) or "1" for shape in layer.output_shapes),
        "output_bytes": layer.output_bytes,
        "fused_from": " ".join(layer.members),
    }


def operator_lines(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """A line for each operator or kernel of each case."""
    return [
        about(summary, one.row, _operator(operator))
        for one in found
        for operator in (one.parts.operators if one.parts else ())
    ]


def _operator(operator: OperatorRow) -> Line:
    return {
        "operator": operator.name,
        "input_shapes": operator.shapes,
        "calls": operator.calls,
        "self_cpu_ms": per(operator.self_cpu_ns, MILLISECOND),
        "self_device_ms": per(operator.self_device_ns, MILLISECOND),
    }


def _spent(self_ns: int | None, layers: Sequence[LayerRow]) -> Line:
    whole = total(layers)
    share = None if self_ns is None or not whole else self_ns / whole
    return {"self_ms": per(self_ns, MILLISECOND), "self_share": share}
