"""The longest layers of one case for a terminal: plain columns, and a line with which they add up (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from harness.core.schemas.profile_parts import LayerRow, OperatorRow, PartsProfile
from harness.measure.layer_choice import EVERYTHING, Choice, chosen
from harness.measure.layer_sums import total
from harness.measure.profile_grades import flags_of, grade_of, spread
from harness.measure.reconcile import are_kernels, reconcile
from harness.render import units
from harness.reporting.tables.layers import choice_words, short_name, sums_line

TOP = 10

_MAX_NAME = 60


def terminal_layers(case_id: str, parts: PartsProfile, choice: Choice = EVERYTHING, top: int = TOP) -> str:
    """The longest layers of a choice by time alone; the longest operators where the backend tells no layers."""
    if not parts.layers:
        return "\n".join([f"{case_id}: operators, {_trust(parts)}", _operators(parts.operators[:top])])
    found = chosen(parts.layers, choice)
    if not found:
        return f"{case_id}: no layer matches {choice_words(choice)}"
    shown = sorted(found, key=lambda row: -row.self_ns)[:top]
    lines = [
        f"{case_id}: layers, {_trust(parts)}",
        _layers(shown, total(parts.layers)),
        sums_line(parts.layers, found, shown),
    ]
    return "\n".join(filter(None, lines))


def _trust(parts: PartsProfile) -> str:
    """Grade and flags, how the parts sum up, how often it was profiled."""
    flags = ", ".join(dict.fromkeys(flag.name for flag in flags_of(parts)))
    grade = f"grade {grade_of(parts)}{f' ({flags})' if flags else ''}"
    found = reconcile(parts, are_kernels(parts))
    sums = f", {found.ratio:.2f} of the plain latency: {found.outcome}" if found else ""
    repeats = f", {units.count(len(parts.ratios), 'repeat')}" if parts.ratios else ""
    apart = spread(parts.ratios)
    return f"{grade}{sums}{repeats}{f' within {units.percent(apart)}' if apart is not None else ''}"


def _layers(shown: Sequence[LayerRow], everything_ns: int) -> str:
    unit = units.time_unit(row.self_ns for row in shown)
    rows = [
        [
            short_name(row.parent or row.name if row.depth == 0 else row.name, _MAX_NAME),
            row.kind,
            row.group,
            units.in_unit(row.self_ns, unit),
            units.share(row.self_ns, everything_ns),
        ]
        for row in shown
    ]
    align = ("left", "left", "left", "right", "right")
    return _plain(["module or layer", "kind", "group", f"self {unit.name}", "share"], rows, align)


def _operators(shown: Sequence[OperatorRow]) -> str:
    unit = units.time_unit(max(row.self_cpu_ns, row.self_device_ns or 0) for row in shown)
    on_device = any(row.self_device_ns is not None for row in shown)
    headers = ["operator", "calls", f"self CPU {unit.name}", *([f"self CUDA {unit.name}"] if on_device else [])]
    rows = [
        [
            short_name(row.name, _MAX_NAME),
            f"{row.calls:g}",
            units.in_unit(row.self_cpu_ns, unit),
            *([units.in_unit(row.self_device_ns, unit)] if on_device else []),
        ]
        for row in shown
    ]
    return _plain(headers, rows, ("left", *("right",) * (len(headers) - 1)))


def _plain(headers: Sequence[str], rows: Sequence[Sequence[str]], align: Sequence[str]) -> str:
    return tabulate(rows, headers, tablefmt="simple", colalign=align if rows else None, disable_numparse=True)
