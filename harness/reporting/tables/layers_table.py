"""The time of a case by layers, groups and operators, as Markdown (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from harness.aggregation.flags import RANKED
from harness.core.schemas import Summary
from harness.core.schemas.profile_record import (
    Group,
    LayerRow,
    OperatorGaps,
    OperatorRow,
    PartsProfile,
)
from harness.profiling.grades import flags_of, grade_of, spread
from harness.profiling.launch_gaps import IdleShare, idle_share, without_operator
from harness.profiling.layers import (
    EVERYTHING,
    LayerChoice,
    by_group,
    chosen,
    total,
)
from harness.profiling.load_profiles import Profiled
from harness.profiling.reconcile import Reconciliation, are_kernels, reconcile
from harness.reporting import units
from harness.reporting.labels import Line, about, per
from harness.reporting.table import Block, Column, Table, texts, words
from harness.reporting.units import ABSENT, MILLISECOND
from harness.reporting.writers import terminal

TOP = 15
"""Rows of a table of layers or operators; the files beside the report have all rows."""

_MAX_NAME = 48
_MAX_MEMBERS = 4


def profile_blocks(
    parts: PartsProfile, on_gpu: bool, measured_ns: int | None = None, choice: LayerChoice = EVERYTHING
) -> list[Block]:
    """The profile of one case: its grade, whether its parts add up, groups, the longest layers and operators, notes.

    choice: the layers in the table of layers; sums and groups are always of all layers.
    """
    blocks: list[Block | None] = [
        *trust_lines(parts, on_gpu, measured_ns),
        groups_table({"time": parts}),
        layers_block(parts.layers, choice=choice) if parts.layers else None,
        operators_table(parts.operators),
        "\n".join(f"- {note}" for note in parts.notes),
    ]
    return [block for block in blocks if block]


def trust_lines(parts: PartsProfile, on_gpu: bool, measured_ns: int | None = None) -> list[str]:
    """How far the times can be trusted: grade and flags, whether they add up, how the repeats agree, launch gaps."""
    found, gaps = reconcile(parts, on_gpu, measured_ns), idle_share(parts, measured_ns)
    return [
        grade_line(parts),
        *([reconciliation_line(found)] if found else []),
        *([repeats_line(parts)] if parts.ratios else []),
        *([gaps_line(gaps)] if gaps else []),
        *([operator_gaps_line(parts.operator_gaps)] if parts.operator_gaps else []),
    ]


def grade_line(parts: PartsProfile) -> str:
    """The grade of a profile, and the evidence and the remedy of each flag."""
    flags, grade = flags_of(parts), grade_of(parts)
    if not flags:
        return f"Grade {grade}: a monitor watched it, and nothing disturbed it."
    said = " ".join(f"{flag.name}: {flag.detail}. {flag.remedy}" for flag in flags)
    return f"Grade {grade}{', so that nothing is concluded from its times' if grade == 'C' else ''}. {said}"


def repeats_line(parts: PartsProfile) -> str:
    """The number of repeats, and how far their sums differ."""
    often = units.count(len(parts.ratios), "time")
    apart = spread(parts.ratios)
    range_ = f"{min(parts.ratios):.2f} to {max(parts.ratios):.2f} of the plain latency"
    spreads = "" if apart is None else f", a spread of {units.percent(apart)}"
    return f"Profiled {often}, each in a fresh process: the parts sum to {range_}{spreads}. The last one is shown."


def gaps_line(share: IdleShare) -> str:
    """The share of the latency in which no kernel ran, and which latency that is."""
    return f"Launch gaps: in {units.percent(share.share)} of the {share.of} no kernel ran on the GPU."


def operator_gaps_line(found: OperatorGaps) -> str:
    """On a CPU: the share of traced time in which no operator ran; an upper bound, as a profiler slows the host."""
    share = units.percent(without_operator(found))
    return f"Time without an operator: {share} of the traced passes, at most; Python and waits between calls."


def mark(parts: PartsProfile) -> str:
    """Text after the name of a profile that shows nothing: ` (grade C)`; empty where the profile may be trusted."""
    if grade_of(parts) not in RANKED:
        return f" (grade {grade_of(parts)})"
    found = reconcile(parts, are_kernels(parts))
    return f" ({found.outcome})" if found and found.outcome == "unexplained" else ""


def reconciliation_line(reconciliation: Reconciliation) -> str:
    """Whether the parts explain the latency, the cost of profiling, and measurements that explain a wrong sum."""
    cost = f"{reconciliation.overhead:+.1%}".replace("-", "−")
    reasons = (
        f", {reconciliation.corrected:.2f} with what was measured beside them"
        if reconciliation.outcome == "explained"
        else ""
    )
    line = (
        f"The parts sum to {units.duration(reconciliation.parts_ns)}, {reconciliation.ratio:.2f} of the plain "
        f"latency of {units.duration(reconciliation.plain_ns)}: {reconciliation.outcome}{reasons}. "
        f"Profiling changed the run by {cost}."
    )
    if reconciliation.measured_ns is not None:
        line += f" The case's measured latency is {units.duration(reconciliation.measured_ns)}."
    return " ".join([line, *(f"{reason[0].upper()}{reason[1:]}." for reason in reconciliation.reasons)])


def layers_block(layers: Sequence[LayerRow], top: int = TOP, choice: LayerChoice = EVERYTHING) -> Block:
    """The table of layers, or a sentence that no layer matches."""
    return layers_table(layers, top, choice) or f"No layer matches {choice_words(choice)}."


def layers_table(
    layers: Sequence[LayerRow], top: int = TOP, choice: LayerChoice = EVERYTHING
) -> Table[LayerRow] | None:
    """The chosen layers with the longest self time, and a line with the rest; None where no layer matches."""
    found = chosen(layers, choice)
    if not found:
        return None
    everything = total(layers)
    shown = sorted(found, key=lambda row: -row.self_ns)[:top]
    unit = units.time_unit(row.self_ns for row in shown)
    # A column without figures is left out; the notes say why.
    columns = [
        (True, words("layer", lambda row: short_name(row.name))),
        (True, words("kind", lambda row: row.kind)),
        (any(row.parent and row.depth == 0 for row in layers), _FROM_MODULE),
        (True, words("group", lambda row: row.group)),
        (any(row.calls != 1 for row in layers), _CALLS),
        (True, Column[LayerRow](f"self {unit.name}", lambda row: units.in_unit(row.self_ns, unit))),
        (True, Column[LayerRow]("share", lambda row: units.share(row.self_ns, everything))),
        (
            any(row.stream_ns is not None for row in layers),
            Column[LayerRow](f"in stream {unit.name}", lambda row: units.in_unit(row.stream_ns, unit)),
        ),
        (any(row.flops is not None for row in layers), Column("GFLOP", _gflop)),
        (True, words("output", _shape)),
        (any(row.members for row in layers), words("fused from", _members)),
    ]
    share = units.share(total(shown), everything)
    title = f"{_of(len(shown), len(found), 'layer')}{_that_match(choice, len(layers))}, {share} of the time:"
    return Table([column for there, column in columns if there], shown, title, sums_line(layers, found, shown))


_FROM_MODULE: Column[LayerRow] = words("from module", lambda row: short_name(row.parent or ABSENT))
_CALLS: Column[LayerRow] = Column("calls", lambda row: f"{row.calls:g}")


def _gflop(row: LayerRow) -> str:
    return ABSENT if row.flops is None else units.significant(row.flops / 1e9)


def sums_line(layers: Sequence[LayerRow], rows: Sequence[LayerRow], shown: Sequence[LayerRow]) -> str:
    """The parts that complete the shown layers to the whole sum; empty where all layers are shown.

    found: the chosen layers, of which the longest are shown.
    """
    rest = [row for row in rows if row not in shown]
    outside = total(layers) - total(rows)
    parts = [f"shown {units.duration(total(shown))}"]
    if rest:
        parts.append(f"{units.count(len(rest), 'shorter one')} {units.duration(total(rest))}")
    if outside:
        parts.append(f"left out by the choice {units.duration(outside)}")
    return "" if len(parts) == 1 else f"Sums: {' + '.join(parts)} = {units.duration(total(layers))}."


def choice_words(choice: LayerChoice) -> str:
    """The words of a choice, for a sentence."""
    return " or ".join(f"`{word}`" for word in choice.words)


def operators_table(operators: Sequence[OperatorRow]) -> Table[OperatorRow] | None:
    """The operators and kernels with the longest times, on the host and on the device; None without operators."""
    if not operators:
        return None
    shown = operators[:TOP]
    title = f"{_of(len(shown), len(operators), 'operator')}, the longest first:"
    named = _operator_columns(operators, shown, lambda name: short_name(kernel_name(name)))
    return Table([*named, words("inputs", _inputs)], shown, title)


def _inputs(row: OperatorRow) -> str:
    return short_name(row.shapes.replace(",", "×")) or ABSENT


def _operator_columns(
    operators: Sequence[OperatorRow], shown: Sequence[OperatorRow], named: Callable[[str], str]
) -> list[Column[OperatorRow]]:
    unit = units.time_unit(max(row.self_cpu_ns, row.self_device_ns or 0) for row in shown)
    columns = [
        words("operator", lambda row: named(row.name)),
        Column[OperatorRow]("calls", lambda row: f"{row.calls:g}"),
        Column[OperatorRow](f"self CPU {unit.name}", lambda row: units.in_unit(row.self_cpu_ns, unit)),
    ]
    if any(row.self_device_ns is not None for row in operators):
        columns.append(Column(f"self CUDA {unit.name}", lambda row: units.in_unit(row.self_device_ns, unit)))
    return columns


def groups_table(profiles: Mapping[str, PartsProfile]) -> Table[Sequence[str]] | None:
    """Time by group, a column per profile that has layers, marked where the profile shows nothing; with shares where
    there is only one profile."""
    sums = {f"{name}{mark(parts)}": by_group(parts.layers) for name, parts in profiles.items() if parts.layers}
    if not sums:
        return None
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
    figures = [*(f"{name} {unit.name}" for name in sums), *(["share"] if alone else [])]
    return texts([("group", "left"), *((name, "right") for name in figures)], rows)


def _most(sums: Mapping[str, Mapping[Group, int]], group: Group) -> int:
    return max(one.get(group, 0) for one in sums.values())


def _shape(row: LayerRow) -> str:
    return " ".join("×".join(map(str, shape)) or "1" for shape in row.output_shapes) or ABSENT


def _members(row: LayerRow) -> str:
    more = len(row.members) - _MAX_MEMBERS
    return " + ".join(row.members[:_MAX_MEMBERS]) + (f" + {more} more" if more > 0 else "") or ABSENT


def short_name(name: str, longest: int = _MAX_NAME) -> str:
    """A long name, shortened to its end, which differs from similar names."""
    return name if len(name) <= longest else f"…{name[1 - longest :]}"


def _of(shown: int, everything: int, what: str) -> str:
    return units.count(everything, what) if shown == everything else f"{shown} of {units.count(everything, what)}"


def _that_match(choice: LayerChoice, everything: int) -> str:
    named = f" matching {choice_words(choice)} (of {everything})" if choice.words else ""
    return named if choice.depth is None else f"{named} down to depth {choice.depth}, what is deeper added to them"


def group_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each group of layers of each case; the shares of a case add up to 1."""
    return [
        about(summary, one.row, {"group": group, **_spent(spent, one.layers)})
        for one in cases
        for group, spent in by_group(one.layers).items()
    ]


def layer_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each layer of each case, in the order of its profiler."""
    return [about(summary, one.row, _layer(layer, one.layers)) for one in cases for layer in one.layers]


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


def operator_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each operator or kernel of each case."""
    return [
        about(summary, one.row, _operator(operator))
        for one in cases
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


TERMINAL_TOP = 10

_MAX_TERMINAL_NAME = 60


def terminal_layers(
    case_id: str, parts: PartsProfile, choice: LayerChoice = EVERYTHING, top: int = TERMINAL_TOP
) -> str:
    """The chosen layers with the longest self time; the longest operators where the backend exposes no layers."""
    if not parts.layers:
        return "\n".join([f"{case_id}: operators, {_trust(parts)}", _terminal_operators(parts.operators[:top])])
    found = chosen(parts.layers, choice)
    if not found:
        return f"{case_id}: no layer matches {choice_words(choice)}"
    shown = sorted(found, key=lambda row: -row.self_ns)[:top]
    lines = [
        f"{case_id}: layers, {_trust(parts)}",
        _terminal_layers(shown, total(parts.layers)),
        sums_line(parts.layers, found, shown),
    ]
    return "\n".join(filter(None, lines))


def _trust(parts: PartsProfile) -> str:
    """Grade and flags, the sum of the parts, the number of repeats."""
    flags = ", ".join(dict.fromkeys(flag.name for flag in flags_of(parts)))
    grade = f"grade {grade_of(parts)}{f' ({flags})' if flags else ''}"
    found = reconcile(parts, are_kernels(parts))
    sums = f", {found.ratio:.2f} of the plain latency: {found.outcome}" if found else ""
    repeats = f", {units.count(len(parts.ratios), 'repeat')}" if parts.ratios else ""
    apart = spread(parts.ratios)
    return f"{grade}{sums}{repeats}{f' within {units.percent(apart)}' if apart is not None else ''}"


def _terminal_layers(shown: Sequence[LayerRow], everything_ns: int) -> str:
    def name(row: LayerRow) -> str:
        return short_name(row.parent or row.name if row.depth == 0 else row.name, _MAX_TERMINAL_NAME)

    unit = units.time_unit(row.self_ns for row in shown)
    columns = [
        words("module or layer", name),
        words("kind", lambda row: row.kind),
        words("group", lambda row: row.group),
        Column[LayerRow](f"self {unit.name}", lambda row: units.in_unit(row.self_ns, unit)),
        Column[LayerRow]("share", lambda row: units.share(row.self_ns, everything_ns)),
    ]
    return terminal.table_text(Table(columns, shown))


def _terminal_operators(shown: Sequence[OperatorRow]) -> str:
    columns = _operator_columns(shown, shown, lambda name: short_name(name, _MAX_TERMINAL_NAME))
    return terminal.table_text(Table(columns, shown))


def tokenising_line(parts: PartsProfile) -> str:
    """Sentences on tokenising; empty where the inputs are no text."""
    tokenising = parts.tokenising
    if tokenising is None:
        return ""
    length = "" if tokenising.tokens_a_text is None else f" of {tokenising.tokens_a_text} tokens"
    batch = f"{units.count(tokenising.texts, 'text')}{length}"
    time = (
        f"takes {units.duration(tokenising.time_ns)} on the host" if tokenising.time_ns is not None else "has no figure"
    )
    return f"Tokenising {batch} {time}, apart from the latency ({tokenising.by}). {_embedding(parts)}"


def _embedding(parts: PartsProfile) -> str:
    if not parts.layers:
        return "Embedding: unknown, without a per-layer profile."
    spent = by_group(parts.layers).get("embedding")
    if spent is None:
        return "Embedding: no layer of its own here."
    return f"Embedding takes {units.duration(spent)}, as part of it."


_NAMESPACE = re.compile(r"\(anonymous namespace\)::|\b[a-z_]\w*::")
_BASE = re.compile(r"\w+")
_OPERATION = re.compile(r"\b(?:OP_\w+|\w*Functor\w*|\w+_kernel_(?:cuda|impl)|\w+KernelImpl)\b")
"""Template arguments that name the operation of an elementwise kernel."""
_ENTRY = re.compile(r"(?:Kernel2?|device_kernel)<(\w+)")
"""CUTLASS starts every kernel through the same function; the first template argument names the kernel."""
_COMMON_END = re.compile(r"_execute\w*_kernel__\w+$")
"""Common end of cuDNN's kernel names, after the tile sizes that distinguish them."""
_HASHED = re.compile(r"^## (Call CompiledFxGraph) \w+ ##$")
"""Inductor's range around a compiled graph, with the hash of its code."""


def kernel_name(name: str) -> str:
    """`void lib::elementwise<4, lib::OP_Add<half>>(int, …)` → `elementwise<OP_Add>`; others without common ends.

    A signature has hundreds of characters, and its end, the arguments, is the same for many kernels.
    """
    signature = name.removeprefix("void ")
    if signature == name:
        return _HASHED.sub(r"\1", _COMMON_END.sub("", name))
    plain = _NAMESPACE.sub("", signature)
    if entry := _ENTRY.match(plain):
        return entry[1]
    base = _BASE.match(plain)
    if base is None:
        return name
    computes = _OPERATION.search(plain, base.end())
    return f"{base[0]}<{computes[0]}>" if computes else base[0]
