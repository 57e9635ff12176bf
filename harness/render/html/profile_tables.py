"""The layers and operators of one profile as the page's script shows them: columns and lines of text (pure).

They stand in the page as data and become tables when somebody opens them: a run of many cases has more lines than a
page can hold as elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.core.schemas.profile_parts import LayerRow, OperatorRow
from harness.measure.layer_sums import total
from harness.render import units
from harness.render.html.layer_tree import MAX_LINES, Line, flat, tree
from harness.reporting.charts.plotly_drawer import short
from harness.reporting.table import Column, filled, words
from harness.reporting.writers.html import KINDS

TOP_OPERATORS = 50

_MAX_MEMBERS = 4


def layers_data(layers: Sequence[LayerRow]) -> dict[str, Any]:
    """columns: (name, `word` or `num`); lines: depth, group, share of all time in it and below, share by itself, whole
    name, everything that was fused into it, and a cell a column; more: lines left out."""
    everything = max(1, total(layers))
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
    """columns, lines: a cell a column, the longest first; more: operators left out."""
    chosen = operators[:TOP_OPERATORS]
    unit = units.time_unit(max(row.self_cpu_ns, row.self_device_ns or 0) for row in chosen)
    columns: list[Column[OperatorRow]] = [
        words("operator", lambda row: row.name),
        Column("calls", lambda row: f"{row.calls:g}"),
        Column(f"self CPU {unit.name}", lambda row: units.in_unit(row.self_cpu_ns, unit)),
        Column(f"self CUDA {unit.name}", lambda row: units.in_unit(row.self_device_ns, unit)),
        words("inputs", lambda row: row.shapes.replace(",", "×")),
    ]
    shown = filled(columns, chosen)
    return {
        "columns": [(column.header, KINDS[column.align]) for column in shown],
        "lines": [[column.cell(row) for column in shown] for row in chosen],
        "more": len(operators) - len(chosen),
    }


def _columns(lines: Sequence[Line]) -> list[Column[Line]]:
    """Those in which something is known; the notes of the profile say why the others are missing."""
    unit = units.time_unit(line.total_ns for line in lines)
    columns: list[Column[Line]] = [
        words("layer", lambda line: line.label),
        words("kind", lambda line: line.row.kind if line.row else ""),
        Column(f"total {unit.name}", lambda line: units.in_unit(line.total_ns, unit)),
        Column(f"self {unit.name}", lambda line: units.in_unit(line.self_ns, unit)),
        Column("calls", lambda line: f"{line.row.calls:g}" if line.row and line.row.calls != 1 else ""),
        Column("GFLOP", lambda line: units.significant(flops / 1e9) if (flops := _flops(line)) else ""),
        # FLOP a nanosecond are GFLOP a second.
        Column("GFLOP/s", lambda line: units.significant(flops / line.total_ns) if (flops := _flops(line)) else ""),
        Column("M parameters", lambda line: units.significant(held / 1e6) if (held := _parameters(line)) else ""),
        words("output", lambda line: _shapes(line.row) if line.row else ""),
        Column("output KiB", lambda line: units.significant(made / 1024) if (made := _output_bytes(line)) else ""),
        words("fused from", _members),
    ]
    return filled(columns, lines)


def _flops(line: Line) -> int | None:
    return line.row.flops if line.row and line.total_ns else None


def _parameters(line: Line) -> int | None:
    return line.row.parameters if line.row else None


def _output_bytes(line: Line) -> int | None:
    return line.row.output_bytes if line.row else None


def _shapes(row: LayerRow) -> str:
    return " ".join("×".join(map(str, shape)) or "1" for shape in row.output_shapes)


def _members(line: Line) -> str:
    members = line.row.members if line.row else ()
    more = len(members) - _MAX_MEMBERS
    return " + ".join(members[:_MAX_MEMBERS]) + (f" + {more} more" if more > 0 else "")
