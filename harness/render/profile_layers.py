"""Where the time of a case goes, as Markdown: its layers, groups and operators, and the same across backends (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.schemas.profile_parts import Group, LayerRow, OperatorRow, PartsProfile
from harness.measure.layer_sums import by_group, cut, inside, total
from harness.measure.reconcile import Reconciliation, launch_gaps, reconcile
from harness.render import units
from harness.render.markdown import table
from harness.render.units import ABSENT

TOP = 15
"""Rows of a table of layers or operators; the files beside the report have all."""

_MAX_NAME = 48
_MAX_MEMBERS = 4


def profile_text(parts: PartsProfile, on_gpu: bool, measured_ns: int | None = None, top: int = TOP) -> str:
    """Everything about one case: whether its parts add up, groups, the longest layers and operators, notes."""
    found, gaps = reconcile(parts, on_gpu, measured_ns), launch_gaps(parts)
    blocks = [
        reconciliation_line(found) if found else "",
        "" if gaps is None else f"Launch gaps: in {units.percent(gaps)} of the plain latency no kernel ran on the GPU.",
        groups_table({"time": parts}) if parts.layers else "",
        layers_table(parts.layers, top) if parts.layers else "",
        operators_table(parts.operators, top) if parts.operators else "",
        "\n".join(f"- {note}" for note in parts.notes),
    ]
    return "\n\n".join(block for block in blocks if block)


def reconciliation_line(found: Reconciliation) -> str:
    """Whether the parts explain the latency, what profiling cost, and what explains a sum that is off."""
    cost = f"{found.overhead:+.1%}".replace("-", "−")
    line = (
        f"The parts sum to {units.duration(found.parts_ns)}, {found.ratio:.2f} of the plain latency of "
        f"{units.duration(found.plain_ns)}: {found.outcome}. Profiling changed the run by {cost}."
    )
    if found.measured_ns is not None:
        line += f" The case's measured latency is {units.duration(found.measured_ns)}."
    return " ".join([line, *(f"{reason[0].upper()}{reason[1:]}." for reason in found.reasons)])


def layers_table(layers: Sequence[LayerRow], top: int = TOP) -> str:
    """The layers that take the longest by themselves."""
    everything = total(layers)
    chosen = sorted(layers, key=lambda row: -row.self_ns)[:top]
    unit = units.time_unit(row.self_ns for row in chosen)
    # A column that nobody can fill says nothing; the notes say why.
    has_calls = any(row.calls != 1 for row in layers)
    has_flops = any(row.flops is not None for row in layers)
    has_members = any(row.members for row in layers)
    has_modules = any(row.parent and row.depth == 0 for row in layers)
    headers = ["layer", "kind", *(["from module"] if has_modules else []), "group", *(["calls"] if has_calls else [])]
    headers += [
        f"self {unit.name}",
        "share",
        *(["GFLOP"] if has_flops else []),
        "output",
        *(["fused from"] if has_members else []),
    ]
    rows = [
        [
            _short(row.name),
            row.kind,
            *([_short(row.parent or ABSENT)] if has_modules else []),
            row.group,
            *([f"{row.calls:g}"] if has_calls else []),
            units.in_unit(row.self_ns, unit),
            units.percent(row.self_ns / everything),
            *([units.significant(_own_flops(row, layers) / 1e9)] if has_flops else []),
            _shape(row),
            *([_members(row)] if has_members else []),
        ]
        for row in chosen
    ]
    shown = sum(row.self_ns for row in chosen) / everything
    return f"{_of(len(chosen), len(layers), 'layer')}, {units.percent(shown)} of the time:\n\n{table(headers, rows)}"


def operators_table(operators: Sequence[OperatorRow], top: int = TOP) -> str:
    """The operators and kernels that take the longest, on the host and on the device."""
    chosen = operators[:top]
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
            _short(row.name),
            f"{row.calls:g}",
            units.in_unit(row.self_cpu_ns, unit),
            *([units.in_unit(row.self_device_ns, unit)] if on_device else []),
            _short(row.shapes.replace(",", "×")) or ABSENT,
        ]
        for row in chosen
    ]
    return f"{_of(len(chosen), len(operators), 'operator')}, the longest first:\n\n{table(headers, rows)}"


def groups_table(profiles: Mapping[str, PartsProfile]) -> str:
    """Time by group, a column a profile that has layers; each with its share where there is only one."""
    sums = {name: by_group(parts.layers) for name, parts in profiles.items() if parts.layers}
    if not sums:
        return ""
    groups = sorted({group for one in sums.values() for group in one}, key=lambda group: -_most(sums, group))
    unit = units.time_unit(sum(one.values()) for one in sums.values())
    alone = len(sums) == 1
    rows = [
        [
            group,
            *(units.in_unit(one.get(group), unit) for one in sums.values()),
            *([units.percent(one.get(group, 0) / sum(one.values())) for one in sums.values()] if alone else []),
        ]
        for group in groups
    ]
    rows.append(
        ["all", *(units.in_unit(sum(one.values()), unit) for one in sums.values()), *(["100%"] if alone else [])]
    )
    return table(["group", *(f"{name} {unit.name}" for name in sums), *(["share"] if alone else [])], rows)


def modules_table(profiles: Mapping[str, PartsProfile]) -> str:
    """The same modules across backends; the first profile with a module tree says which. Nothing stands for a module
    that a backend fused into others. Empty without a tree, or with fewer than two profiles that know modules."""
    known = {name: parts.layers for name, parts in profiles.items() if any(row.parent for row in parts.layers)}
    modules = next((found for layers in known.values() if (found := cut(layers))), [])
    if not modules or len(known) < 2:
        return ""
    unit = units.time_unit(total(layers) for layers in known.values())
    sums = {name: [inside(layers, module) for module in modules] for name, layers in known.items()}
    rows = [
        [_short(module), *(units.in_unit(sums[name][place], unit) for name in known)]
        for place, module in enumerate(modules)
    ]
    rows.append(
        [
            "elsewhere",
            *(
                units.in_unit(max(0, total(known[name]) - sum(spent or 0 for spent in sums[name])), unit)
                for name in known
            ),
        ],
    )
    rows.append(["all", *(units.in_unit(total(layers), unit) for layers in known.values())])
    return table(["module", *(f"{name} {unit.name}" for name in known)], rows)


def _own_flops(row: LayerRow, layers: Sequence[LayerRow]) -> int:
    return (row.flops or 0) - sum(child.flops or 0 for child in layers if child.parent == row.name)


def _most(sums: Mapping[str, Mapping[Group, int]], group: Group) -> int:
    return max(one.get(group, 0) for one in sums.values())


def _shape(row: LayerRow) -> str:
    return " ".join("×".join(map(str, shape)) or "1" for shape in row.output_shapes) or ABSENT


def _members(row: LayerRow) -> str:
    more = len(row.members) - _MAX_MEMBERS
    return " + ".join(row.members[:_MAX_MEMBERS]) + (f" + {more} more" if more > 0 else "") or ABSENT


def _short(name: str) -> str:
    """A long name by its end, which tells it from others of its kind."""
    return name if len(name) <= _MAX_NAME else f"…{name[1 - _MAX_NAME :]}"


def _of(shown: int, everything: int, what: str) -> str:
    return units.count(everything, what) if shown == everything else f"{shown} of {units.count(everything, what)}"
