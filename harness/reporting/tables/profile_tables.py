"""The tables of profiles: cost of models, time by layers, groups and operators, allocations, trust (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from harness.aggregation.grades import RANKED, names_of
from harness.core import units
from harness.core.schemas import Precision, Summary
from harness.core.schemas.profile_record import (
    FileSize,
    Fragmentation,
    LayerGroup,
    LayerRow,
    MemoryBlock,
    MemoryTimeline,
    ModelProfile,
    OnnxCount,
    OperatorGaps,
    OperatorRow,
    PartsProfile,
)
from harness.core.units import ABSENT, MILLISECOND, divided
from harness.profiling.launch_gaps import IdleShare, fraction_without_operator, idle_share
from harness.profiling.layers import EVERYTHING, LayerChoice, chosen_layers, ns_by_group, total_ns
from harness.profiling.profile_grades import flags_of, grade_of, repeat_spread
from harness.profiling.read_profiles import Profiled
from harness.profiling.reconcile import Reconciliation, are_kernels, reconcile
from harness.reporting.csv_identity import Line, case_line, in_time_unit, run_columns
from harness.reporting.table import (
    Column,
    DocumentBlock,
    Table,
    explained,
    filled_columns,
    text_table,
    titled_blocks,
    word_column,
)
from harness.reporting.writers import terminal
from harness.reporting.writers.markdown import escape


def progress_line(profile: ModelProfile) -> str:
    """One case in one line, for the terminal; a figure that is not known is left out."""
    figures = {
        "{} M parameters": _millions(profile.parameters),
        "{} GMAC a sample": _work(profile.macs, 1e9, profile, 4),
        "at most {} MiB allocated": units.in_mib(profile.activation_measured_bytes),
        "{} MiB of activations alone": units.in_mib(profile.activation_alone_bytes),
        "{} MiB of activations estimated": units.in_mib(profile.activation_estimated_bytes),
    }
    known = [form.format(figure) for form, figure in figures.items() if figure != ABSENT]
    return f"{profile.case_id}: {', '.join(known) or 'nothing could be counted'}."


def model_cost_tables(profiles: Sequence[ModelProfile], links: Mapping[str, Sequence[str]]) -> list[DocumentBlock]:
    """Models, their files, and the traffic, memory and performance of each case; empty where nothing was profiled.

    links: files of each case by case id, relative to the report.
    """
    if not profiles:
        return []
    profile: Column[ModelProfile] = word_column("profile", lambda profile: _links(links.get(profile.case_id, ())))
    models = list({(model.model, model.sequence_length): model for model in profiles}.values())
    of_models, of_cases = filled_columns(_MODEL, models), filled_columns(_CASE, profiles)
    convention = f"Convention: {profiles[0].convention}. A sample is one image, sequence or input."
    blocks: list[DocumentBlock | None] = [
        f"{convention} {explained(of_models, _ABOUT_MODEL)}".strip(),
        Table(of_models, models),
        "\n".join(
            f"- {escape(model.model)}: {_types_text(model)}"
            for model in _one_profile_a_model(models)
            if model.parameters_by_type
        ),
        _files_table(_one_profile_a_model(models)),
        f"Figures of a batch. {explained(of_cases, _ABOUT_CASE)}".strip(),
        Table([*of_cases, *filled_columns([profile], profiles)], profiles),
        "\n".join(f"- {note}" for note in _notes(profiles)),
    ]
    return [block for block in blocks if block]


def _length(profile: ModelProfile) -> str:
    return str(profile.sequence_length or ABSENT)


def _giga(number: float | None) -> str:
    return units.significant(None if number is None else number / 1e9, digits=4)


def _work(number: float | None, unit: float, profile: ModelProfile, digits: int = 3) -> str:
    """A figure based on the counted products: a lower bound where some operators were not counted, absent where only
    these have products."""
    if profile.uncounted and not number:
        return ABSENT
    text = units.significant(divided(number, unit), digits=digits)
    return f"at least {text}" if profile.uncounted else text


def _millions(number: float | None) -> str:
    return units.significant(None if number is None else number / 1e6)


def _best_share(profile: ModelProfile) -> str:
    share = profile.achieved.peak_share
    return f"at least {units.percent(share)}" if profile.uncounted and share else units.percent(share or None)


def _onnx_text(count: OnnxCount | None) -> str:
    if count is None or (count.uncounted and not count.macs):
        return ABSENT
    return f"at least {_giga(count.macs)}" if count.uncounted else _giga(count.macs)


_MODEL: Sequence[Column[ModelProfile]] = (
    word_column("model", lambda profile: profile.model),
    Column("seq", _length),
    Column("M parameters", lambda profile: _millions(profile.parameters)),
    Column("trainable", lambda profile: _millions(profile.trainable_parameters)),
    Column("GMAC a sample", lambda profile: _work(profile.macs, 1e9, profile, 4)),
    Column("GFLOP a sample", lambda profile: _work(profile.flops, 1e9, profile, 4)),
    Column("GMAC by ONNX", lambda profile: _onnx_text(profile.onnx_count)),
    Column("MiB in fp32", lambda profile: units.in_mib(profile.weight_bytes.get("fp32"))),
    Column("in fp16, bf16", lambda profile: units.in_mib(profile.weight_bytes.get("fp16"))),
)

_CASE: Sequence[Column[ModelProfile]] = (
    word_column("model", lambda profile: profile.model),
    word_column("backend", lambda profile: profile.backend),
    word_column("precision", lambda profile: profile.precision),
    Column("batch", lambda profile: str(profile.batch_size)),
    Column("seq", _length),
    Column("GFLOP", lambda profile: _work(profile.flops_per_batch, 1e9, profile, 4)),
    Column("MB at least", lambda profile: _millions(profile.least_bytes)),
    Column("FLOP a byte", lambda profile: _work(profile.flops_per_byte, 1, profile)),
    Column("MiB at most", lambda profile: units.in_mib(profile.activation_measured_bytes)),
    Column("activations MiB", lambda profile: units.in_mib(profile.activation_alone_bytes)),
    Column("estimated", lambda profile: units.in_mib(profile.activation_estimated_bytes)),
    Column("latency ms", lambda profile: units.significant(divided(profile.achieved.latency_ns, 1e6))),
    Column("GFLOP/s", lambda profile: _work(profile.achieved.flops_per_s, 1e9, profile)),
    Column("of the best", _best_share),
    Column("samples/s", lambda profile: units.significant(profile.achieved.items_per_s)),
    Column("tokens/s", lambda profile: units.significant(profile.achieved.tokens_per_s)),
)


_ABOUT_MODEL: Mapping[str, str] = {
    "GMAC by ONNX": "GMAC by ONNX: a second count, from the shapes of the exported graph.",
}
_ABOUT_CASE: Mapping[str, str] = {
    "latency": "Latency, throughput and FLOP/s are those of the case's row above; memory and profiles come from passes "
    "of their own.",
    "MiB at most": "MiB at most: all that a pass allocates beside weights and inputs, with what operators use inside "
    "themselves.",
    "activations": "Activations: without what operators use inside themselves.",
    "estimated": "Estimated: activations alone.",
}
"""Explanations of columns, by the beginning of the header."""


def _one_profile_a_model(models: Sequence[ModelProfile]) -> list[ModelProfile]:
    """One profile per model, whatever its sequence length."""
    return list({model.model: model for model in models}.values())


def _types_text(profile: ModelProfile) -> str:
    return (
        ", ".join(f"{escape(kind)} {number:,}" for kind, number in profile.parameters_by_type.items()) + " parameters"
    )


def _files_table(models: Sequence[ModelProfile]) -> Table[tuple[str, FileSize]] | None:
    rows = [(model.model, file) for model in models for file in model.files]
    return Table(_FILE, rows) if rows else None


_FILE: Sequence[Column[tuple[str, FileSize]]] = (
    word_column("model", lambda row: row[0]),
    word_column("on disk", lambda row: f"{row[1].kind} {row[1].name}"),
    word_column("file", lambda row: f"`{row[1].path}`"),
    Column("MiB", lambda row: units.in_mib(row[1].size_bytes)),
)


def _links(paths: Sequence[str]) -> str:
    return " ".join(f"[{escape(path.rpartition('/')[2])}]({path})" for path in paths) or ABSENT


def _notes(profiles: Sequence[ModelProfile]) -> list[str]:
    """Missing or doubtful figures, each once with the cases that it concerns."""
    subjects: dict[str, dict[str, None]] = {}
    for profile in profiles:
        second = profile.onnx_count
        by_model = [*profile.count_notes, *(f"not counted: operator {name}" for name in profile.uncounted)]
        by_model += [f"not in the ONNX count: {name}" for name in (second.uncounted if second else ())]
        for note in (*by_model, f"activations, {profile.activation_bytes_by}"):
            subjects.setdefault(note, {})[profile.model] = None
        for note in (f"activations, {profile.activation_measured_by}", *profile.achieved.notes):
            subjects.setdefault(note, {})[profile.backend] = None
    return [f"{', '.join(escape(name) for name in names)}: {escape(note)}" for note, names in subjects.items()]


def model_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each model and sequence length: the cost of one sample, independent of the backend."""
    return [
        {
            "model": model.model,
            "weights": weights,
            "sequence_length": model.sequence_length,
            "parameters": model.parameters,
            "trainable_parameters": model.trainable_parameters,
            "macs_per_item": model.macs,
            "flops_per_item": model.flops,
            "onnx_macs_per_item": _counted_products(model.onnx_count),
            "convention": model.convention,
            "counted_by": model.counted_by,
            "not_counted": "; ".join(model.uncounted),
            "count_notes": "; ".join(model.count_notes),
            **{f"weights_{precision}_bytes": model.weight_bytes.get(precision) for precision in _IN_MEMORY},
            **run_columns(summary),
        }
        for weights, model in _models(cases, by_length=True)
    ]


_IN_MEMORY: Sequence[Precision] = ("fp32", "fp16", "bf16")


def _counted_products(count: OnnxCount | None) -> int | None:
    """Counted products; None instead of 0 where only uncounted operators have products."""
    return None if count is None or (count.uncounted and not count.macs) else count.macs


def parameter_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each class of module that has parameters."""
    return [
        {"model": model.model, "weights": weights, "module_type": kind, "parameters": number, **run_columns(summary)}
        for weights, model in _models(cases)
        for kind, number in model.parameters_by_type.items()
    ]


def file_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each file that a backend can load a model from."""
    return [
        {
            "model": model.model,
            "weights": weights,
            "kind": file.kind,
            "name": file.name,
            "path": file.path,
            "file_bytes": file.size_bytes,
            **run_columns(summary),
        }
        for weights, model in _models(cases)
        for file in model.files
    ]


def case_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each case: work, traffic and memory of a batch, and the performance of its row."""
    return [case_line(summary, case.row, _case_line(case.model)) for case in cases]


def _case_line(profile: ModelProfile) -> Line:
    reached = profile.achieved
    return {
        "flops_per_batch": profile.flops_per_batch,
        "least_bytes_per_batch": profile.least_bytes,
        "flops_per_byte": profile.flops_per_byte,
        "pass_peak_bytes": profile.activation_measured_bytes,
        "activations_bytes": profile.activation_alone_bytes,
        "measured_by": profile.activation_measured_by,
        "activations_estimated_bytes": profile.activation_estimated_bytes,
        "estimated_by": profile.activation_bytes_by,
        "latency_median_ms": in_time_unit(reached.latency_ns, MILLISECOND),
        "device_median_ms": in_time_unit(reached.device_ns, MILLISECOND),
        "flops_per_s": reached.flops_per_s,
        "flops_share_of_best": reached.peak_share,
        "throughput_items_per_s": reached.items_per_s,
        "throughput_tokens_per_s": reached.tokens_per_s,
        "notes": "; ".join(reached.notes),
    }


def _models(cases: Iterable[Profiled], by_length: bool = False) -> list[tuple[str, ModelProfile]]:
    """(weights, profile) of each model once; by_length: once for each sequence length."""
    models: dict[tuple[str, int | None], tuple[str, ModelProfile]] = {}
    for case in cases:
        length = case.model.sequence_length if by_length else None
        models.setdefault((case.model.model, length), (case.row.weights, case.model))
    return list(models.values())


TOP_LAYERS = 15
"""Rows of a table of layers or operators; the files beside the report have all rows."""

_MAX_NAME = 48
_MAX_MEMBERS = 4


def profile_blocks(
    parts: PartsProfile, on_gpu: bool, measured_ns: int | None = None, choice: LayerChoice = EVERYTHING
) -> list[DocumentBlock]:
    """The profile of one case: its grade, whether its parts add up, groups, the longest layers and operators, notes.

    choice: the layers in the table of layers; sums and groups are always of all layers.
    """
    blocks: list[DocumentBlock | None] = [
        *trust_lines(parts, on_gpu, measured_ns),
        groups_table({"time": parts}),
        layers_block(parts.layers, choice=choice) if parts.layers else None,
        operators_table(parts.operators),
        "\n".join(f"- {note}" for note in parts.notes),
    ]
    return [block for block in blocks if block]


def trust_lines(parts: PartsProfile, on_gpu: bool, measured_ns: int | None) -> list[str]:
    """How far the times can be trusted: grade and flags, whether they add up, how the repeats agree, launch gaps."""
    reconciled, gaps = reconcile(parts, on_gpu, measured_ns), idle_share(parts, measured_ns)
    return [
        grade_line(parts),
        *([reconciliation_line(reconciled)] if reconciled else []),
        *([repeats_line(parts)] if parts.ratios else []),
        *([gaps_line(gaps)] if gaps else []),
        *([operator_gaps_line(parts.operator_gaps)] if parts.operator_gaps else []),
    ]


def grade_line(parts: PartsProfile) -> str:
    """The grade of a profile, and the evidence and the remedy of each flag."""
    flags, grade = flags_of(parts), grade_of(parts)
    if not flags:
        return f"Grade {grade}: a monitor watched it, and nothing disturbed it."
    reasons = " ".join(f"{flag.name}: {flag.detail}. {flag.remedy}" for flag in flags)
    return f"Grade {grade}{', so that nothing is concluded from its times' if grade == 'C' else ''}. {reasons}"


def repeats_line(parts: PartsProfile) -> str:
    """The number of repeats, and how far their sums differ."""
    often = units.count(len(parts.ratios), "time")
    apart = repeat_spread(parts.ratios)
    range_ = f"{min(parts.ratios):.2f} to {max(parts.ratios):.2f} of the plain latency"
    spreads = "" if apart is None else f", a spread of {units.percent(apart)}"
    return f"Profiled {often}, each in a fresh process: the parts sum to {range_}{spreads}. The last one is shown."


def gaps_line(share: IdleShare) -> str:
    """The share of the latency in which no kernel ran, and which latency that is."""
    return f"Launch gaps: in {units.percent(share.share)} of the {share.of} no kernel ran on the GPU."


def operator_gaps_line(gaps: OperatorGaps) -> str:
    """On a CPU: the share of traced time in which no operator ran; an upper bound, as a profiler slows the host."""
    share = units.percent(fraction_without_operator(gaps))
    return f"Time without an operator: {share} of the traced passes, at most; Python and waits between calls."


def grade_mark(parts: PartsProfile) -> str:
    """Text after the name of a profile that shows nothing: ` (grade C)`; empty where the profile may be trusted."""
    if grade_of(parts) not in RANKED:
        return f" (grade {grade_of(parts)})"
    reconciled = reconcile(parts, are_kernels(parts))
    return f" ({reconciled.outcome})" if reconciled and reconciled.outcome == "unexplained" else ""


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


def layers_block(layers: Sequence[LayerRow], top: int = TOP_LAYERS, choice: LayerChoice = EVERYTHING) -> DocumentBlock:
    """The table of layers, or a sentence that no layer matches."""
    return _layers_table(layers, top, choice) or f"No layer matches {choice_words(choice)}."


def _layers_table(layers: Sequence[LayerRow], top: int, choice: LayerChoice) -> Table[LayerRow] | None:
    """The chosen layers with the longest self time, and a line with the rest; None where no layer matches."""
    chosen = chosen_layers(layers, choice)
    if not chosen:
        return None
    everything = total_ns(layers)
    shown = sorted(chosen, key=lambda row: -row.self_ns)[:top]
    unit = units.time_unit(row.self_ns for row in shown)
    # A column without figures is left out; the notes say why.
    columns = [
        (True, word_column("layer", lambda row: short_name(row.name))),
        (True, word_column("kind", lambda row: row.kind)),
        (any(row.parent and row.depth == 0 for row in layers), _FROM_MODULE),
        (True, word_column("group", lambda row: row.group)),
        (any(row.calls != 1 for row in layers), _CALLS),
        (True, Column[LayerRow](f"self {unit.name}", lambda row: units.in_unit(row.self_ns, unit))),
        (True, Column[LayerRow]("share", lambda row: units.share(row.self_ns, everything))),
        (
            any(row.stream_ns is not None for row in layers),
            Column[LayerRow](f"in stream {unit.name}", lambda row: units.in_unit(row.stream_ns, unit)),
        ),
        (any(row.flops is not None for row in layers), Column("GFLOP", _gflop)),
        (True, word_column("output", lambda row: shapes_text(row) or ABSENT)),
        (any(row.members for row in layers), word_column("fused from", lambda row: members_text(row) or ABSENT)),
    ]
    share = units.share(total_ns(shown), everything)
    title = f"{_part_text(len(shown), len(chosen), 'layer')}{_choice_text(choice, len(layers))}, {share} of the time:"
    return Table([column for there, column in columns if there], shown, title, sums_line(layers, chosen, shown))


_FROM_MODULE: Column[LayerRow] = word_column("from module", lambda row: short_name(row.parent or ABSENT))
_CALLS: Column[LayerRow] = Column("calls", lambda row: f"{row.calls:g}")


def _gflop(row: LayerRow) -> str:
    return ABSENT if row.flops is None else units.significant(row.flops / 1e9)


def sums_line(layers: Sequence[LayerRow], rows: Sequence[LayerRow], shown: Sequence[LayerRow]) -> str:
    """The parts that complete the shown layers to the whole sum; empty where all layers are shown.

    rows: the chosen layers, of which the longest are shown.
    """
    rest = [row for row in rows if row not in shown]
    outside = total_ns(layers) - total_ns(rows)
    parts = [f"shown {units.duration(total_ns(shown))}"]
    if rest:
        parts.append(f"{units.count(len(rest), 'shorter one')} {units.duration(total_ns(rest))}")
    if outside:
        parts.append(f"left out by the choice {units.duration(outside)}")
    return "" if len(parts) == 1 else f"Sums: {' + '.join(parts)} = {units.duration(total_ns(layers))}."


def choice_words(choice: LayerChoice) -> str:
    """The words of a choice, for a sentence."""
    return " or ".join(f"`{word}`" for word in choice.words)


def operators_table(operators: Sequence[OperatorRow]) -> Table[OperatorRow] | None:
    """The operators and kernels with the longest times, on the host and on the device; None without operators."""
    if not operators:
        return None
    shown = operators[:TOP_LAYERS]
    title = f"{_part_text(len(shown), len(operators), 'operator')}, the longest first:"
    named = _operator_columns(operators, shown, lambda name: short_name(kernel_name(name)))
    return Table([*named, word_column("inputs", _inputs)], shown, title)


def _inputs(row: OperatorRow) -> str:
    return short_name(row.shapes.replace(",", "×")) or ABSENT


def _operator_columns(
    operators: Sequence[OperatorRow], shown: Sequence[OperatorRow], named: Callable[[str], str]
) -> list[Column[OperatorRow]]:
    unit = units.time_unit(max(row.self_cpu_ns, row.self_device_ns or 0) for row in shown)
    columns = [
        word_column("operator", lambda row: named(row.name)),
        Column[OperatorRow]("calls", lambda row: f"{row.calls:g}"),
        Column[OperatorRow](f"self CPU {unit.name}", lambda row: units.in_unit(row.self_cpu_ns, unit)),
    ]
    if any(row.self_device_ns is not None for row in operators):
        columns.append(Column(f"self CUDA {unit.name}", lambda row: units.in_unit(row.self_device_ns, unit)))
    return columns


def groups_table(profiles: Mapping[str, PartsProfile]) -> Table[Sequence[str]] | None:
    """Time by group, a column per profile that has layers, marked where the profile shows nothing; with shares where
    there is only one profile."""
    sums = {f"{name}{grade_mark(parts)}": ns_by_group(parts.layers) for name, parts in profiles.items() if parts.layers}
    if not sums:
        return None
    groups = sorted({group for spent in sums.values() for group in spent}, key=lambda group: -_most(sums, group))
    unit = units.time_unit(sum(spent.values()) for spent in sums.values())
    alone = len(sums) == 1
    rows = [
        [
            group,
            *(units.in_unit(spent.get(group), unit) for spent in sums.values()),
            *([units.share(spent.get(group, 0), sum(spent.values())) for spent in sums.values()] if alone else []),
        ]
        for group in groups
    ]
    rows.append(
        ["all", *(units.in_unit(sum(spent.values()), unit) for spent in sums.values()), *(["100%"] if alone else [])]
    )
    figures = [*(f"{name} {unit.name}" for name in sums), *(["share"] if alone else [])]
    return text_table([("group", "left"), *((name, "right") for name in figures)], rows)


def _most(sums: Mapping[str, Mapping[LayerGroup, int]], group: LayerGroup) -> int:
    return max(spent.get(group, 0) for spent in sums.values())


def shapes_text(row: LayerRow) -> str:
    """The shapes of a layer's outputs; empty where none is known."""
    return " ".join("×".join(map(str, shape)) or "1" for shape in row.output_shapes)


def members_text(row: LayerRow) -> str:
    """The nodes that a layer was fused from, the first of many; empty for a layer of one node."""
    more = len(row.members) - _MAX_MEMBERS
    return " + ".join(row.members[:_MAX_MEMBERS]) + (f" + {more} more" if more > 0 else "")


def short_name(name: str, longest: int = _MAX_NAME) -> str:
    """A long name, shortened to its end, which differs from similar names."""
    return name if len(name) <= longest else f"…{name[1 - longest :]}"


def _part_text(shown: int, everything: int, thing: str) -> str:
    return units.count(everything, thing) if shown == everything else f"{shown} of {units.count(everything, thing)}"


def _choice_text(choice: LayerChoice, everything: int) -> str:
    named = f" matching {choice_words(choice)} (of {everything})" if choice.words else ""
    return named if choice.depth is None else f"{named} down to depth {choice.depth}, what is deeper added to them"


def group_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each group of layers of each case; the shares of a case add up to 1."""
    return [
        case_line(summary, case.row, {"group": group, **_spent(spent, case.layers)})
        for case in cases
        for group, spent in ns_by_group(case.layers).items()
    ]


def layer_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each layer of each case, in the order of its profiler."""
    return [case_line(summary, case.row, _layer(layer, case.layers)) for case in cases for layer in case.layers]


def _layer(layer: LayerRow, layers: Sequence[LayerRow]) -> Line:
    return {
        "layer": layer.name,
        "kind": layer.kind,
        "group": layer.group,
        "depth": layer.depth,
        "parent": layer.parent,
        "calls": layer.calls,
        **_spent(layer.self_ns, layers),
        "total_ms": in_time_unit(layer.total_ns, MILLISECOND),
        "in_stream_ms": in_time_unit(layer.stream_ns, MILLISECOND),
        "flops": layer.flops,
        "parameters": layer.parameters,
        "output_shapes": " ".join("x".join(map(str, shape)) or "1" for shape in layer.output_shapes),
        "output_bytes": layer.output_bytes,
        "fused_from": " ".join(layer.members),
    }


def operator_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each operator or kernel of each case."""
    return [
        case_line(summary, case.row, _operator(operator))
        for case in cases
        for operator in (case.parts.operators if case.parts else ())
    ]


def _operator(operator: OperatorRow) -> Line:
    return {
        "operator": operator.name,
        "input_shapes": operator.shapes,
        "calls": operator.calls,
        "self_cpu_ms": in_time_unit(operator.self_cpu_ns, MILLISECOND),
        "self_device_ms": in_time_unit(operator.self_device_ns, MILLISECOND),
    }


def _spent(self_ns: int | None, layers: Sequence[LayerRow]) -> Line:
    total = total_ns(layers)
    share = None if self_ns is None or not total else self_ns / total
    return {"self_ms": in_time_unit(self_ns, MILLISECOND), "self_share": share}


TERMINAL_TOP = 10

_MAX_TERMINAL_NAME = 60


def terminal_layers(
    case_id: str, parts: PartsProfile, choice: LayerChoice = EVERYTHING, top: int = TERMINAL_TOP
) -> str:
    """The chosen layers with the longest self time; the longest operators where the backend exposes no layers."""
    if not parts.layers:
        return "\n".join([f"{case_id}: operators, {_trust(parts)}", _terminal_operators(parts.operators[:top])])
    chosen = chosen_layers(parts.layers, choice)
    if not chosen:
        return f"{case_id}: no layer matches {choice_words(choice)}"
    shown = sorted(chosen, key=lambda row: -row.self_ns)[:top]
    lines = [
        f"{case_id}: layers, {_trust(parts)}",
        _terminal_layers(shown, total_ns(parts.layers)),
        sums_line(parts.layers, chosen, shown),
    ]
    return "\n".join(filter(None, lines))


def _trust(parts: PartsProfile) -> str:
    """Grade and flags, the sum of the parts, the number of repeats."""
    flags = ", ".join(names_of(flags_of(parts)))
    grade = f"grade {grade_of(parts)}{f' ({flags})' if flags else ''}"
    reconciled = reconcile(parts, are_kernels(parts))
    sums = f", {reconciled.ratio:.2f} of the plain latency: {reconciled.outcome}" if reconciled else ""
    repeats = f", {units.count(len(parts.ratios), 'repeat')}" if parts.ratios else ""
    apart = repeat_spread(parts.ratios)
    return f"{grade}{sums}{repeats}{f' within {units.percent(apart)}' if apart is not None else ''}"


def _terminal_layers(shown: Sequence[LayerRow], everything_ns: int) -> str:
    def name(row: LayerRow) -> str:
        return short_name(row.parent or row.name if row.depth == 0 else row.name, _MAX_TERMINAL_NAME)

    unit = units.time_unit(row.self_ns for row in shown)
    columns = [
        word_column("module or layer", name),
        word_column("kind", lambda row: row.kind),
        word_column("group", lambda row: row.group),
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
    spent = ns_by_group(parts.layers).get("embedding")
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


def profile_section(
    profiles: Sequence[ModelProfile],
    parts: Mapping[str, PartsProfile],
    folder: str,
    compared: Sequence[DocumentBlock] = (),
) -> list[DocumentBlock]:
    """The whole section; empty where nothing was profiled.

    parts: by case id, for the cases that have them; folder: of the profiles, relative to the report; compared: the
    sections that compare backends side by side.
    """
    links = {profile.case_id: _files(profile, parts.get(profile.case_id), folder) for profile in profiles}
    shapes: dict[tuple[str, int | None, int], list[ModelProfile]] = {}
    for profile in profiles:
        if profile.case_id in parts:
            shapes.setdefault((profile.model, profile.sequence_length, profile.batch_size), []).append(profile)
    alone = [
        block
        for group in shapes.values()
        if not _is_side_by_side(group, parts)
        for block in _shape_blocks(group, {_name(profile): parts[profile.case_id] for profile in group})
    ]
    trust = trust_table(profiles, parts)
    return [*model_cost_tables(profiles, links), *([trust] if trust else []), *compared, *alone]


def _is_side_by_side(group: Sequence[ModelProfile], parts: Mapping[str, PartsProfile]) -> bool:
    """Cases that differ only in the backend are compared side by side, except profiles that show nothing."""
    backends, precisions = {profile.backend for profile in group}, {profile.precision for profile in group}
    return (
        len(backends) > 1 and len(precisions) == 1 and not any(grade_mark(parts[profile.case_id]) for profile in group)
    )


def trust_table(
    profiles: Sequence[ModelProfile], parts: Mapping[str, PartsProfile]
) -> Table[tuple[ModelProfile, PartsProfile]] | None:
    """How far each profile can be trusted, and the flags of grade C; None where no profile has parts.

    parts: by case id.
    """
    with_parts = [(profile, parts[profile.case_id]) for profile in profiles if profile.case_id in parts]
    if not with_parts:
        return None
    with_length = any(profile.sequence_length for profile, _ in with_parts)
    columns = [column for column in _TRUST if with_length or column.header != "seq"]
    gaps = filled_columns([_GAPS], with_parts)
    why = [
        f"- `{profile.case_id}`: " + " ".join(f"{flag.name}: {flag.detail}. {flag.remedy}" for flag in flags_of(of))
        for profile, of in with_parts
        if grade_of(of) not in RANKED
    ]
    how = (
        "Layers and operators of each case, by its own profiler beside a monitor, in fresh processes until two sums "
        "agree. Parts / plain: their sum over the latency of the same process without its profiler."
    )
    outcomes = [_outcome(of) for _, of in with_parts]
    if any(outcome.startswith("explained") for outcome in outcomes):
        how += " Explained: with what was measured beside them it comes to the figure there."
    useless = {
        "grade C": any(grade_of(of) not in RANKED for _, of in with_parts),
        "an unexplained sum": "unexplained" in outcomes,
    }
    if any(useless.values()):
        how += f" Of {' and of '.join(name for name, occurs in useless.items() if occurs)} nothing is concluded."
    if gaps:
        how += (
            " No kernel or operator: on a GPU the share of the latency in which none ran; on a CPU of traced passes, "
            "which the profiler stretches."
        )
    return Table([*columns, *gaps], with_parts, how, "\n".join(why))


def _backend(profile: ModelProfile) -> str:
    return profile.backend if profile.setting == "default" else f"{profile.backend} {profile.setting}"


def _ratio(parts: PartsProfile) -> str:
    reconciled = reconcile(parts, are_kernels(parts))
    return f"{reconciled.ratio:.2f}" if reconciled else units.ABSENT


def _outcome(parts: PartsProfile) -> str:
    reconciled = reconcile(parts, are_kernels(parts))
    if reconciled is None:
        return units.ABSENT
    return f"explained, {reconciled.corrected:.2f}" if reconciled.outcome == "explained" else reconciled.outcome


def _without(profile: ModelProfile, parts: PartsProfile) -> str:
    """The share of time in which nothing computed: on a GPU of the latency, on a CPU of the traced passes."""
    gaps = idle_share(parts, profile.achieved.latency_ns)
    if gaps is not None:
        return units.percent(gaps.share)
    return units.percent(None if parts.operator_gaps is None else fraction_without_operator(parts.operator_gaps))


_TRUST: Sequence[Column[tuple[ModelProfile, PartsProfile]]] = (
    word_column("model", lambda row: row[0].model),
    word_column("backend", lambda row: _backend(row[0])),
    word_column("precision", lambda row: row[0].precision),
    Column("batch", lambda row: str(row[0].batch_size)),
    Column("seq", lambda row: str(row[0].sequence_length or units.ABSENT)),
    word_column("grade", lambda row: " ".join([grade_of(row[1]), *names_of(flags_of(row[1]))])),
    Column("parts / plain", lambda row: _ratio(row[1])),
    Column("sum", lambda row: _outcome(row[1])),
    Column("repeats", lambda row: str(len(row[1].ratios) or units.ABSENT)),
    Column("spread", lambda row: units.percent(repeat_spread(row[1].ratios))),
)
_GAPS: Column[tuple[ModelProfile, PartsProfile]] = Column("no kernel or operator", lambda row: _without(*row))


def _shape_blocks(group: Sequence[ModelProfile], named: Mapping[str, PartsProfile]) -> list[DocumentBlock]:
    """Groups of layers of one model at one shape, a column per backend and precision."""
    groups = groups_table(named)
    if groups is None:
        return []
    first = group[0]
    length = f", sequence length {first.sequence_length}" if first.sequence_length else ""
    title = f"Where the time of {first.model} goes at batch {first.batch_size}{length}"
    how = "By each backend's own profiler, which costs time itself."
    if any(map(grade_mark, named.values())):
        how += " Nothing is concluded from the times of marked columns; each case's `parts.md` says why."
    return titled_blocks(title, how, groups, level=3)


def _name(profile: ModelProfile) -> str:
    setting = "" if profile.setting == "default" else f" {profile.setting}"
    return f"{profile.backend} {profile.precision}{setting}"


def _files(profile: ModelProfile, parts: PartsProfile | None, folder: str) -> list[str]:
    names = ["model.json", *profile.memory_files, *(["parts.md", *parts.traces] if parts else [])]
    return [f"{folder}/{profile.case_id}/{name}" for name in names]


def sum_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each case with parts: whether they add up to the latency, and explanations where they do not."""
    return [case_line(summary, case.row, _sums(case, case.parts)) for case in cases if case.parts]


def _sums(profiled: Profiled, parts: PartsProfile) -> Line:
    measured = profiled.model.achieved.latency_ns
    sums = reconcile(parts, profiled.row.device == "cuda", None if measured is None else round(measured))
    gaps = idle_share(parts, measured)
    return {
        "profile_grade": grade_of(parts),
        "profile_flags": " ".join(names_of(flags_of(parts))),
        "outcome": sums.outcome if sums else None,
        "parts_ms": in_time_unit(sums.parts_ns if sums else None, MILLISECOND),
        "profiled_run_ms": in_time_unit(parts.window_ns, MILLISECOND),
        "plain_run_ms": in_time_unit(parts.plain_ns, MILLISECOND),
        "measured_latency_ms": in_time_unit(measured, MILLISECOND),
        "parts_over_plain": sums.ratio if sums else None,
        "corrected_parts_over_plain": sums.corrected if sums else None,
        "repeats": len(parts.ratios) or None,
        "repeats_spread": repeat_spread(parts.ratios),
        "profiling_overhead_share": sums.overhead if sums else None,
        "launch_gap_share": gaps.share if gaps else None,
        "launch_gap_share_of": gaps.of if gaps else None,
        "without_operator_share": fraction_without_operator(parts.operator_gaps) if parts.operator_gaps else None,
        "tokenising_ms": in_time_unit(parts.tokenising.time_ns if parts.tokenising else None, MILLISECOND),
        "reasons": "; ".join(sums.reasons) if sums else None,
        "notes": "; ".join(parts.notes),
    }


TOP_BLOCKS = 5
"""Number of blocks in the table; memory.json has more."""

_MAX_SHAPES = 48


def memory_blocks(timeline: MemoryTimeline, chart: str | None = None) -> list[DocumentBlock]:
    """The peak by holder, its largest blocks, the use of the allocator, and unknown parts. chart: its file."""
    alone = timeline.activations_peak_bytes
    counts = f"{units.count(timeline.allocations, 'allocation')} and {units.count(timeline.frees, 'free')}"
    besides = "" if alone is None else f", activations alone at most {units.in_mib(alone)} MiB"
    line = (
        f"{timeline.by[0].upper()}{timeline.by[1:]}. The pass makes {counts}; it holds at most "
        f"{units.in_mib(timeline.pass_peak_bytes)} MiB at once beyond what lay there before{besides}."
    )
    return titled_blocks(
        "Memory",
        line,
        _peak_table(timeline),
        _blocks_table(timeline.alive_at_peak[:TOP_BLOCKS]),
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


def _peak_table(timeline: MemoryTimeline) -> DocumentBlock:
    rows = [
        [held, units.in_mib(size), units.share(size, timeline.peak_bytes)]
        for held, size in timeline.at_peak.items()
        if size
    ]
    rows.append(["all", units.in_mib(timeline.peak_bytes), "100%"])
    return text_table([("held by", "left"), ("MiB at the peak", "right"), ("share", "right")], rows)


def _blocks_table(blocks: Sequence[MemoryBlock]) -> Table[MemoryBlock] | None:
    return Table(_BLOCK, blocks, "The largest blocks of the pass at that moment:") if blocks else None


def _shapes(text: str) -> str:
    shown = text.replace(",", "×")
    return (shown if len(shown) <= _MAX_SHAPES else f"{shown[: _MAX_SHAPES - 1]}…") or ABSENT


_BLOCK: Sequence[Column[MemoryBlock]] = (
    word_column("operator", lambda block: block.operator or ABSENT),
    word_column("kind", lambda block: block.category),
    Column("MiB", lambda block: units.in_mib(block.size_bytes)),
    word_column("inputs", lambda block: _shapes(block.shapes)),
)
