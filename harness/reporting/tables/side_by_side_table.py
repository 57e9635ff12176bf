"""The report's comparison of backends on one model: the layers that explain the difference in time (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.aggregation.grades import names_of
from harness.core import units
from harness.core.schemas import Summary
from harness.core.schemas.profile_record import LaunchGaps
from harness.core.units import MILLISECOND, TimeUnit
from harness.profiling.launch_gaps import host_wait_fraction, idle_fraction
from harness.profiling.profile_grades import flags_of, grade_of
from harness.profiling.read_profiles import Profiled
from harness.profiling.reconcile import HIGH, LOW
from harness.profiling.side_by_side import (
    MODEL,
    ComparedColumn,
    ComparedProfiles,
    NotCompared,
    SideBySide,
    SideBySideLine,
    compared_profiles,
    line_gain_ns,
)
from harness.reporting.csv_identity import Line as CsvLine
from harness.reporting.csv_identity import case_line, in_time_unit
from harness.reporting.table import DocumentBlock, Table, text_table, titled_blocks

TOP = 12
"""Modules in a table, those with the largest gain or loss; one line holds the rest."""

_MAX_MEMBERS = 3

IDLE = "no kernel running"
"""For a backend whose profiler lists kernels: the rest of its measured latency, or else of its plain latency."""


def side_by_side_section(comparison: ComparedProfiles, stated: str, image: str) -> list[DocumentBlock]:
    """One comparison as a section of the report.

    stated: the conditions of its rows. image: its chart, empty where none was drawn.
    """
    groups = comparison.groups
    measured = any(column.latency_ns is not None for column in groups.columns)
    how = (
        "Times of one pass by each backend's own profiler. Plain latency: that process without it"
        f"{'; measured latency: the median of `run`' if measured else ''}. Gain: what a line takes longer in "
        f"{groups.slowest.name} than in {groups.fastest.name}; a kernel that fuses several modules counts for the "
        "group of its product."
    )
    gaps = [f"- {gaps_line(column, column.parts.launch_gaps)}" for column in groups.columns if column.parts.launch_gaps]
    return titled_blocks(
        title_of(comparison),
        f"{gain_sentence(groups)} {how}",
        " ".join(filter(None, (doubts(groups), left_out_sentence(comparison.left_out)))),
        image,
        stated,
        gains_table(groups, "group"),
        *(_module_blocks(comparison.modules, stated) if comparison.modules else ()),
        "\n".join(gaps),
        level=3,
    )


def not_compared_section(compared: NotCompared) -> list[DocumentBlock]:
    """Why backends that were profiled alike are not compared side by side."""
    why = f"Fewer than two of these profiles can be relied on. {left_out_sentence(compared.left_out)}"
    return titled_blocks(f"{compared.shape}: not side by side", why, level=3)


def left_out_sentence(left_out: Sequence[tuple[str, str]]) -> str:
    """Backends that are left out of a comparison, and why; empty without any."""
    return f"Left out: {'; '.join(f'{name}, {why}' for name, why in left_out)}." if left_out else ""


def title_of(comparison: ComparedProfiles) -> str:
    """Title of a comparison: `minilm-l6, fp32, batch 1, sequence 128: where openvino gains on torch-eager`."""
    backends = {row.case_id: row.backend for row in comparison.rows}
    fast, slow = (backends[column.case_id] for column in (comparison.groups.fastest, comparison.groups.slowest))
    return f"{comparison.shape}: where {fast} gains on {slow}"


def _module_blocks(side: SideBySide, stated: str) -> tuple[DocumentBlock, ...]:
    text = (
        f"The same by module, {side.fastest.name} against {side.slowest.name}. `*` is the number of a block; "
        "modules in brackets are not separate in every backend, and so share a line."
    )
    return text, stated, gains_table(side, "module")


def gain_sentence(side: SideBySide) -> str:
    """The gain of the fastest over the slowest backend, by parts and as measured, and the line with most of it."""
    fast, slow = side.fastest, side.slowest
    first = side.lines[0]
    text = (
        f"{fast.name} takes {units.duration(abs(side.gain_ns))} {'less' if side.gain_ns >= 0 else 'more'} than "
        f"{slow.name} by their parts"
    )
    if side.measured_gain_ns is not None:
        text += f" and {units.duration(side.measured_gain_ns)} less as measured"
    if side.idle_gain_ns > abs(side.gain_ns):
        waits = f"for {units.duration(side.idle_gain_ns)} more no kernel of {slow.name} runs"
        return f"{text}; {waits}, and most of the difference comes from that."
    if side.gain_ns <= 0:
        return f"{text}: these profiles do not explain the difference."
    without_layers = [column.name for column in (fast, slow) if not column.parts.layers]
    if without_layers:
        names = " and ".join(without_layers)
        return f"{text}. Cannot attribute the difference to layer groups: {names} reports operators only."
    share = (
        f"{units.percent(line_gain_ns(first) / side.gain_ns)} of it"
        if line_gain_ns(first) <= side.gain_ns
        else "all of it"
    )
    return f"{text}; {first.name} brings {share}."


def doubts(side: SideBySide) -> str:
    """Where columns are not comparable, and how much of the table stays valid; empty where all are comparable."""
    off = [
        f"{column.name} {units.significant(column.factor)}"
        for column in side.columns
        if column.factor is not None and not LOW <= column.factor <= HIGH
    ]
    alone = [column.name for column in side.columns if column.kernels_alone]
    less_sure = [
        f"{column.name} ({', '.join(names_of(flags_of(column.parts)))})"
        for column in side.columns
        if grade_of(column.parts) != "A"
    ]
    texts = [
        f"Only kernels are known of {', '.join(alone)}: the time in which none ran on the GPU is in no line of "
        "theirs, while the others' layers include it."
        if alone and len(alone) < len(side.columns)
        else "",
        f"The parts are not {LOW} to {HIGH} of the measured latency ({', '.join(off)}): shares within a column hold "
        "better than differences between columns; each backend's `parts.md` has the reasons."
        if off
        else "",
        f"Profiles of grade B: {', '.join(less_sure)}." if less_sure else "",
    ]
    return " ".join(filter(None, texts))


def gains_table(side: SideBySide, header: str, top: int = TOP) -> Table[Sequence[str]]:
    """A row per line, a column per backend and the gain; then the sums, and how they compare with the latency.

    header: of the first column, `group` or `module`.
    """
    unit = units.time_unit(column.parts_ns for column in side.columns)
    shown, rest = _cut(side.lines, top)
    rows = [_row(_name(line), line, unit) for line in shown]
    if rest:
        rows.append(_row(units.count(len(rest), f"more {header}"), _sum(rest, len(side.columns)), unit))
    rows.append(_sums("sum of the parts", [column.parts_ns for column in side.columns], side.gain_ns, unit))
    if any(column.idle_ns for column in side.columns):
        idle = [column.idle_ns if column.kernels_alone else None for column in side.columns]
        rows.append(_sums(IDLE, idle, side.idle_gain_ns, unit))
    plain = [column.parts.plain_ns for column in side.columns]
    rows.append(_sums("plain latency", plain, plain[-1] - plain[0], unit))
    if any(column.latency_ns is not None for column in side.columns):
        latencies = [column.latency_ns for column in side.columns]
        rows.append(_sums("measured latency", latencies, side.measured_gain_ns, unit))
        rows.append(["parts / measured", *(units.significant(column.factor) for column in side.columns), units.ABSENT])
    figures = [f"{name} {unit.name}" for name in (*(column.name for column in side.columns), "gain")]
    return text_table([(header, "left"), *((name, "right") for name in figures)], rows)


def gaps_line(column: ComparedColumn, gaps: LaunchGaps) -> str:
    """How long the GPU was idle, and what it waited for."""
    text = f"{column.name}: GPU idle {units.percent(idle_fraction(gaps))} of the traced window"
    if (for_launches := host_wait_fraction(gaps)) is not None:
        text += f", {units.percent(for_launches)} waiting for launches"
    if share := column.idle_share:
        text += f"; {units.percent(share.share)} of the {share.of}, without the profiler, which slows the host"
    return f"{text}."


def _cut(lines: Sequence[SideBySideLine], top: int) -> tuple[list[SideBySideLine], list[SideBySideLine]]:
    """The lines with the largest effect on the difference, in their order, and the other lines."""
    if len(lines) <= top + 1:
        return list(lines), []
    kept = {line.name for line in sorted(lines, key=lambda line: -abs(line_gain_ns(line)))[:top]}
    return [line for line in lines if line.name in kept], [line for line in lines if line.name not in kept]


def _row(name: str, line: SideBySideLine, unit: TimeUnit) -> list[str]:
    return _sums(name, line.times_ns, line_gain_ns(line), unit)


def _sums(name: str, times_ns: Sequence[float | None], gain_ns: float | None, unit: TimeUnit) -> list[str]:
    return [name, *(units.in_unit(spent, unit) for spent in times_ns), units.in_unit(gain_ns, unit).replace("-", "−")]


def _sum(lines: Sequence[SideBySideLine], columns: int) -> SideBySideLine:
    return SideBySideLine("", tuple(sum(line.times_ns[place] or 0 for line in lines) for place in range(columns)))


def _name(line: SideBySideLine) -> str:
    """Name of a line that joins several modules, with their names: `output (dense, LayerNorm)`."""
    last = [module.rpartition(".")[2] for module in line.modules if not _is_line(module, line.name)]
    members = list(dict.fromkeys(last))
    if not members:
        return line.name
    more = len(members) - _MAX_MEMBERS
    return f"{line.name} ({', '.join(members[:_MAX_MEMBERS])}{f' + {more} more' if more > 0 else ''})"


def _is_line(module: str, name: str) -> bool:
    """Whether the line is named after this module, as one of several blocks or not."""
    return module == name or (module.count(".") == name.count(".") and name != MODEL)


def group_gain_lines(summary: Summary, cases: Sequence[Profiled]) -> list[CsvLine]:
    """A line for each group and backend of cases that differ only in their backend."""
    return _comparison_lines(summary, cases, "group", [comparison.groups for comparison in compared_profiles(cases)])


def module_gain_lines(summary: Summary, cases: Sequence[Profiled]) -> list[CsvLine]:
    """A line for each module that all backends expose, and each backend."""
    return _comparison_lines(
        summary, cases, "module", [comparison.modules for comparison in compared_profiles(cases) if comparison.modules]
    )


def _comparison_lines(
    summary: Summary, cases: Sequence[Profiled], header: str, compared: Sequence[SideBySide]
) -> list[CsvLine]:
    """Lines of the comparisons. header: name of the first column. Gains are gains of each backend over the slowest."""
    rows = {case.row.case_id: case.row for case in cases}
    lines = []
    for beside in compared:
        for line in beside.lines:
            slowest_ns = line.times_ns[-1] or 0
            for column, spent in zip(beside.columns, line.times_ns, strict=True):
                figures: CsvLine = {
                    header: line.name,
                    "modules": " ".join(line.modules),
                    "self_ms": in_time_unit(spent, MILLISECOND),
                    "gain_ms": in_time_unit(slowest_ns - (spent or 0), MILLISECOND),
                    "gain_over": beside.slowest.case_id,
                }
                lines.append(case_line(summary, rows[column.case_id], figures))
    return lines
